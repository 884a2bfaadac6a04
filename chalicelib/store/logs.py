"""The logs of jobs: one stream of bytes a job, each piece with the time it was written.

A stream grows by offset: what comes twice is cut, what would leave a gap is not taken, so an agent may repeat itself
and never needs an answer to have arrived. What one `append` adds is one *chunk*, whole or absent, with a checksum; a
chunk knows its place in the stream and the times it spans, so a reader steps over those it doesn't need.

`FileLogs` keeps a job's chunks one after another in a file, `BlobLogs` an object a chunk. An object's name holds the
chunk's place, length and times, thus two writers that race write two objects instead of one over the other, a listing
alone tells the stream's end, and a reader cuts the overlap.

A token is `<place>.<offset>`: the chunk (its place in the file; its offset in the stream) and the byte to go on from.
"""

from __future__ import annotations

import fcntl
import os
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from chalicelib.domain.instants import Micros
from chalicelib.errors import DstackError
from chalicelib.store.blobs import Blobs
from chalicelib.store.disk import disk_error, make_folder, sync_folder
from chalicelib.store.log_pages import (
    LogPage,
    Piece,
    Span,
    Token,
    bad_token,
    checked_ids,
    fresh,
    packed,
    page_of,
    request_of,
    token_of,
    unpacked,
)

__all__ = ["BlobLogs", "FileLogs", "LogPage", "LogStore", "Piece"]


class LogStore(Protocol):
    def append(self, project_id: str, job_id: str, offset: int, records: Sequence[Piece]) -> int:
        """Adds bytes from `offset` on and answers the stream's end: all before it is lasting. A gap adds nothing."""

    def end(self, project_id: str, job_id: str) -> int: ...

    def read(
        self,
        project_id: str,
        job_id: str,
        *,
        start: Micros | None = None,
        end: Micros | None = None,
        token: str | None = None,
        limit: int = 1000,
        max_bytes: int = 1_000_000,
        descending: bool = False,
    ) -> LogPage:
        """Records with start <= at < end, oldest first, or newest first if `descending`. A page ends by records or by
        bytes; a record larger than a page comes in parts, divided between characters. A malformed token is Invalid."""

    def delete(self, project_id: str, job_id: str) -> None: ...


# --- files ------------------------------------------------------------------------------------------------------------

_MARK = b"dlog"
_HEAD = struct.Struct(
    "<4sIQIqqI"
)  # mark, payload bytes, offset, content bytes, low, high, checksum of all before and after
_FOOT = struct.Struct("<I")  # bytes of the whole frame, so that the file reads backwards too


class _Frame(NamedTuple):
    place: int
    size: int
    first: int
    last: int
    low: Micros
    high: Micros
    payload: int  # bytes
    checksum: int


class FileLogs:
    """A file a job. A chunk is on the disk before it is acknowledged; one cut short by a crash is removed by the next
    append and never shown. The file's own lock orders writers, in this process and in others."""

    def __init__(self, root: str | Path) -> None:
        self._root = Path(root)

    def append(self, project_id: str, job_id: str, offset: int, records: Sequence[Piece]) -> int:
        path = self._path(project_id, job_id)
        try:
            make_folder(path.parent)
            with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "rb+", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                size, end = _tail(file.fileno())
                pieces = fresh(end, offset, records)
                if pieces:
                    if size == 0:
                        sync_folder(path.parent)
                    end = _write(file.fileno(), size, end, pieces)
                return end
        except OSError as error:
            raise disk_error(path, error) from error

    def end(self, project_id: str, job_id: str) -> int:
        handle = self._open(project_id, job_id)
        if handle is None:
            return 0
        try:
            return _tail(handle)[1]
        finally:
            os.close(handle)

    def read(
        self,
        project_id: str,
        job_id: str,
        *,
        start: Micros | None = None,
        end: Micros | None = None,
        token: str | None = None,
        limit: int = 1000,
        max_bytes: int = 1_000_000,
        descending: bool = False,
    ) -> LogPage:
        ask = request_of(start, end, limit, max_bytes, descending)
        at = token_of(token)
        handle = self._open(project_id, job_id)
        if handle is None:
            return LogPage((), None, "" if descending else str(at or Token(0, 0)))
        try:
            spans = _backwards(handle, at) if descending else _forwards(handle, at)
            return page_of(spans, ask, at or Token(0, 0))
        finally:
            os.close(handle)

    def delete(self, project_id: str, job_id: str) -> None:
        path = self._path(project_id, job_id)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise disk_error(path, error) from error

    def _path(self, project_id: str, job_id: str) -> Path:
        project_id, job_id = checked_ids(project_id, job_id)
        return self._root / project_id / f"{job_id}.log"

    def _open(self, project_id: str, job_id: str) -> int | None:
        path = self._path(project_id, job_id)
        try:
            return os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise disk_error(path, error) from error


def _write(handle: int, size: int, end: int, pieces: Sequence[Piece]) -> int:
    """Adds a frame at `size`, which cuts off what a crash may have left there."""
    payload = packed(pieces)
    content = sum(len(data) for _, data in pieces)
    times = [at for at, _ in pieces]
    head = _HEAD.pack(_MARK, len(payload), end, content, min(times), max(times), 0)
    head = head[:-4] + zlib.crc32(payload, zlib.crc32(head[:-4])).to_bytes(4, "little")
    frame = head + payload + _FOOT.pack(len(head) + len(payload) + _FOOT.size)
    os.ftruncate(handle, size)
    try:
        written = 0
        while written < len(frame):
            written += os.pwrite(handle, frame[written:], size + written)
        os.fdatasync(handle)
    except OSError:
        os.ftruncate(handle, size)
        raise
    return end + content


def _frame_at(handle: int, place: int, limit: int) -> _Frame | None:
    """The frame that begins at `place`, if one can that ends at `limit` or before; its payload is not looked at."""
    raw = os.pread(handle, _HEAD.size, place)
    if len(raw) < _HEAD.size:
        return None
    mark, payload, offset, content, low, high, checksum = _HEAD.unpack(raw)
    size = _HEAD.size + payload + _FOOT.size
    if mark != _MARK or place + size > limit:
        return None
    return _Frame(place, size, offset, offset + content, low, high, payload, checksum)


def _payload(handle: int, frame: _Frame) -> bytes | None:
    """What is in the frame, or None if it isn't what was written."""
    raw = os.pread(handle, _HEAD.size + frame.payload, frame.place)
    head, payload = raw[: _HEAD.size - 4], raw[_HEAD.size :]
    sound = len(payload) == frame.payload and zlib.crc32(payload, zlib.crc32(head)) == frame.checksum
    return payload if sound else None


def _frame_before(handle: int, place: int) -> _Frame | None:
    if place < _HEAD.size + _FOOT.size:
        return None
    (size,) = _FOOT.unpack(os.pread(handle, _FOOT.size, place - _FOOT.size))
    frame = _frame_at(handle, place - size, place) if size <= place else None
    return frame if frame is not None and frame.size == size else None


def _tail(handle: int) -> tuple[int, int]:
    """Where the sound part of the file ends, and the stream's end there."""
    size = os.fstat(handle).st_size
    last = _frame_before(handle, size)
    if last is not None and _payload(handle, last) is not None:
        return size, last.last
    # Nothing yet, or a crash while the last frame was written. All before it was on the disk when it began.
    place = end = 0
    while (frame := _frame_at(handle, place, size)) is not None:
        if frame.place + frame.size == size and _payload(handle, frame) is None:
            break
        place, end = place + frame.size, frame.last
    return place, end


def _span(handle: int, frame: _Frame, first: int, last: int) -> Span:
    def load() -> Iterable[tuple[int, Micros, bytes]]:
        payload = _payload(handle, frame)
        if payload is None:
            raise DstackError(
                f"Bytes {frame.first} to {frame.last} of this log are damaged on the server's disk.",
                hint="Ask for a time before or after them.",
            )
        return unpacked(payload, frame.first)

    return Span(frame.place, first, last, frame.low, frame.high, load)


def _forwards(handle: int, token: Token | None) -> Iterator[Span]:
    size, _ = _tail(handle)
    place, first = token or Token(0, 0)
    frame = _frame_at(handle, place, size)
    if place != 0 and (frame is None or not frame.first <= first <= frame.last):
        raise bad_token()
    while frame is not None:
        yield _span(handle, frame, max(first, frame.first), frame.last)
        frame = _frame_at(handle, frame.place + frame.size, size)


def _backwards(handle: int, token: Token | None) -> Iterator[Span]:
    if token is None:
        frame = _frame_before(handle, _tail(handle)[0])
        last = None if frame is None else frame.last
    else:
        frame, last = _frame_at(handle, token.place, _tail(handle)[0]), token.offset
        if frame is None or not frame.first <= token.offset <= frame.last:
            raise bad_token()
    while frame is not None:
        yield _span(handle, frame, frame.first, frame.last if last is None else min(last, frame.last))
        frame, last = _frame_before(handle, frame.place), None


# --- blobs ------------------------------------------------------------------------------------------------------------

_NAME = re.compile(r"(\d{16})\.(\d{16})\.(\d{17})\.(\d{17})")
_LISTED = 1000


class BlobLogs:
    """An object a chunk, for S3: `logs/<project>/<job>/<first>.<last>.<low>.<high>`."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    def append(self, project_id: str, job_id: str, offset: int, records: Sequence[Piece]) -> int:
        end = self.end(project_id, job_id)
        pieces = fresh(end, offset, records)
        if not pieces:
            return end
        last = end + sum(len(data) for _, data in pieces)
        times = [max(0, at) for at, _ in pieces]
        name = f"{end:016d}.{last:016d}.{min(times):017d}.{max(times):017d}"
        self._blobs.put(self._folder(project_id, job_id) + name, packed(pieces))
        return last

    def end(self, project_id: str, job_id: str) -> int:
        return max((span.last for span in self._spans(self._folder(project_id, job_id), None)), default=0)

    def read(
        self,
        project_id: str,
        job_id: str,
        *,
        start: Micros | None = None,
        end: Micros | None = None,
        token: str | None = None,
        limit: int = 1000,
        max_bytes: int = 1_000_000,
        descending: bool = False,
    ) -> LogPage:
        ask = request_of(start, end, limit, max_bytes, descending)
        at = token_of(token)
        folder = self._folder(project_id, job_id)
        if not descending:
            return page_of(self._spans(folder, at), ask, at or Token(0, 0))
        spans = list(self._spans(folder, None))
        if at is not None:
            spans = [span._replace(last=min(span.last, at.offset)) for span in spans if span.first < at.offset]
        return page_of(reversed(spans), ask, at or Token(0, 0))

    def delete(self, project_id: str, job_id: str) -> None:
        folder = self._folder(project_id, job_id)
        while names := self._blobs.list(folder, limit=_LISTED):
            for name in names:
                self._blobs.delete(name)

    def _folder(self, project_id: str, job_id: str) -> str:
        return "logs/{}/{}/".format(*checked_ids(project_id, job_id))

    def _spans(self, folder: str, token: Token | None) -> Iterator[Span]:
        """The stream in order, without what racing writers put there twice."""
        reached = 0 if token is None else token.offset
        after = "" if token is None else f"{folder}{token.place:016d}"
        while names := self._blobs.list(folder, after, _LISTED):
            for name in names:
                span = self._span(name, name[len(folder) :])
                if span is not None and span.last > reached:
                    yield span._replace(first=max(span.first, reached))
                    reached = span.last
            after = names[-1]

    def _span(self, name: str, parts: str) -> Span | None:
        found = _NAME.fullmatch(parts)
        if found is None:
            return None
        first, last, low, high = map(int, found.groups())

        def load() -> Iterable[tuple[int, Micros, bytes]]:
            payload = self._blobs.get(name)
            return () if payload is None else unpacked(payload, first)  # deleted meanwhile

        return Span(first, first, last, low, high, load)
