"""Logs in files: one per job, a sequence of chunks.

Each chunk is a frame with a checksum. It is on disk before it is acknowledged; a frame cut short by a crash is never
shown, and the next append removes it.
"""

from __future__ import annotations

import fcntl
import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from chalicelib.domain.instants import Micros
from chalicelib.errors import DstackError
from chalicelib.store.disk import disk_error, make_folder, sync_folder
from chalicelib.store.log_pages import (
    EVERYTHING,
    LogPage,
    LogQuery,
    Piece,
    Span,
    Token,
    bad_token,
    beyond_end,
    checked_ids,
    packed,
    page_of,
    token_of,
    unpacked,
)

_MARK = b"dlog"
# The mark, the payload's bytes, the offset, the content's bytes, the low and high time, the checksum of all the rest.
_HEAD = struct.Struct("<4sIQIqqI")
_FOOT = struct.Struct("<I")  # bytes of the whole frame, so that the file can also be read backwards


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
    """Log files. A file's lock serialises writers in this process and in others."""

    def __init__(self, root: str | Path) -> None:
        self._root = Path(root)

    def append(self, project_id: str, job_id: str, offset: int, records: Sequence[Piece]) -> int:
        path = self._path(project_id, job_id)
        try:
            make_folder(path.parent)
            with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "rb+") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                size, end = _tail(file.fileno())
                pieces = beyond_end(end, offset, records)
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

    def read(self, project_id: str, job_id: str, query: LogQuery = EVERYTHING) -> LogPage:
        at = token_of(query.token)
        handle = self._open(project_id, job_id)
        if handle is None:
            return LogPage((), None, "" if query.descending else str(at or Token(0, 0)))
        try:
            spans = _backwards(handle, at) if query.descending else _forwards(handle, at)
            return page_of(spans, query, at or Token(0, 0))
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
    """Write a frame at `size`, truncating anything that a crash may have left there."""
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
    """The frame that begins at `place`, if there is one that ends by `limit`; its payload isn't checked."""
    raw = os.pread(handle, _HEAD.size, place)
    if len(raw) < _HEAD.size:
        return None
    mark, payload, offset, content, low, high, checksum = _HEAD.unpack(raw)
    size = _HEAD.size + payload + _FOOT.size
    if mark != _MARK or place + size > limit:
        return None
    return _Frame(place, size, offset, offset + content, low, high, payload, checksum)


def _payload(handle: int, frame: _Frame) -> bytes | None:
    """The frame's payload, or None if the checksum doesn't match."""
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
    """Where the intact part of the file ends, and the stream's end there."""
    size = os.fstat(handle).st_size
    last = _frame_before(handle, size)
    if last is not None and _payload(handle, last) is not None:
        return size, last.last
    # The file is empty, or a crash interrupted the last frame. Everything before it was already on disk.
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


def _frame_of(handle: int, token: Token, size: int) -> _Frame:
    """The frame that a token means: the one at its place; or the one with its offset, if the token was given elsewhere,
    before the log was copied here."""
    frame = _frame_at(handle, token.place, size)
    if frame is None or not frame.first <= token.offset <= frame.last:
        frame = _frame_at(handle, 0, size)
        while frame is not None and token.offset > frame.last:
            frame = _frame_at(handle, frame.place + frame.size, size)
    if frame is None:
        raise bad_token()
    return frame


def _forwards(handle: int, token: Token | None) -> Iterator[Span]:
    size, _ = _tail(handle)
    first = token.offset if token else 0
    frame = _frame_of(handle, token, size) if token and token.place else _frame_at(handle, 0, size)
    while frame is not None:
        yield _span(handle, frame, max(first, frame.first), frame.last)
        frame = _frame_at(handle, frame.place + frame.size, size)


def _backwards(handle: int, token: Token | None) -> Iterator[Span]:
    if token is None:
        frame, last = _frame_before(handle, _tail(handle)[0]), None
    else:
        frame, last = _frame_of(handle, token, _tail(handle)[0]), token.offset
    while frame is not None:
        yield _span(handle, frame, frame.first, frame.last if last is None else min(last, frame.last))
        frame, last = _frame_before(handle, frame.place), None
