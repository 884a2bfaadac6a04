"""A task's output on disk: every byte with the time it was read, addressed by its offset in the whole log.

A spool is a folder of segments named by the offset of their first byte; a segment is a row of frames (microseconds,
length, bytes). One supervisor writes, one agent reads, and what the server has stored is deleted segment by segment. A
frame that a crash or a full disk cut short was never announced: the writer removes it, a reader stops before it.

The writer counts bytes on disk, the reader bytes of the log: where output was left out (`gaps`), the two differ.

Output that the server has stored is still useful to clients that attach, which show the log from its beginning: some
megabytes of it stay in the folder `replay`, which doesn't count towards the spool's limit. It is emptied when the disk
is short of space.
"""

from __future__ import annotations

import contextlib
import os
import struct
from typing import BinaryIO, Callable, List, Optional, Tuple

from . import gaps
from .gaps import AWAY, REFUSED, Gaps
from .limits import RECORDS_A_READ
from .tasks import FULL

FRAME = struct.Struct("<QI")
SEGMENT_BYTES = 4 << 20
REPLAY_BYTES = 16 << 20
SHORT_BYTES = 64 << 20  # with less free space than this, output that the server has stored is deleted
FIRST_SEGMENTS = 2  # the oldest, never left out: the server may have part of it, if its acknowledgement was lost


def segments(folder: str) -> List[int]:
    try:
        return sorted(int(name) for name in os.listdir(folder) if name.isdigit())
    except FileNotFoundError:
        return []


def segment_path(folder: str, start: int) -> str:
    return os.path.join(folder, "%020d" % start)


def free_bytes(folder: str) -> int:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


class SpoolWriter:
    """Appends output. An OSError, such as a full disk, leaves the spool as it was before the call. On a full disk a new
    segment begins, because only closed segments can be freed."""

    def __init__(self, folder: str, segment_bytes: int = SEGMENT_BYTES) -> None:
        os.makedirs(folder, exist_ok=True)
        self._folder, self._segment_bytes = folder, segment_bytes
        starts = segments(folder)
        self._start = starts[-1] if starts else 0
        self._fd = os.open(segment_path(folder, self._start), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._size, self.end = self._recover()
        os.ftruncate(self._fd, self._size)

    def _recover(self) -> Tuple[int, int]:
        position, end, size = 0, self._start, os.fstat(self._fd).st_size
        while position + FRAME.size <= size:
            _, length = FRAME.unpack(os.pread(self._fd, FRAME.size, position))
            if position + FRAME.size + length > size:
                break
            position += FRAME.size + length
            end += length
        return position, end

    def append(self, at_micros: int, data: bytes) -> None:
        if self.end - self._start >= self._segment_bytes:
            self._rotate()
        frame = FRAME.pack(at_micros, len(data)) + data
        written = 0
        try:
            while written < len(frame):
                written += os.pwrite(self._fd, frame[written:], self._size + written)
        except OSError as problem:
            os.ftruncate(self._fd, self._size)
            if problem.errno in FULL and self.end > self._start:
                with contextlib.suppress(OSError):  # no space even for a new segment: the next call tries again
                    self._rotate()
            raise
        self._size += len(frame)
        self.end += len(data)

    def _rotate(self) -> None:
        fd = os.open(segment_path(self._folder, self.end), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.close(self._fd)
        self._fd, self._start, self._size = fd, self.end, 0

    def close(self) -> None:
        os.close(self._fd)


class SpoolReader:
    """Reads while the writer writes. It stores its position, so the next read needs no scan."""

    def __init__(self, folder: str, free: Callable[[str], int] = free_bytes) -> None:
        """`free` returns the free bytes of the disk under a folder."""
        self._folder, self._gaps, self._free = folder, Gaps(folder), free
        self._replay = os.path.join(folder, "replay")
        self._held = 0
        self._start: Optional[int] = None  # the segment under the cursor
        self._position = 0  # a frame begins here in the segment …
        self._offset = 0  # … and here among all bytes
        self._end_start: Optional[int] = None
        self._end_position = 0
        self._end = 0
        self._clear()

    def end(self) -> int:
        """The log's length so far, in bytes."""
        starts = segments(self._folder)
        if not starts:
            return self._gaps.in_log(self._end)
        if self._end_start != starts[-1]:
            self._end_start, self._end_position, self._end = starts[-1], 0, starts[-1]
        with open(segment_path(self._folder, starts[-1]), "rb") as segment:
            size = os.fstat(segment.fileno()).st_size
            while self._end_position + FRAME.size <= size:
                segment.seek(self._end_position)
                _, length = FRAME.unpack(segment.read(FRAME.size))
                if self._end_position + FRAME.size + length > size:
                    break
                self._end_position += FRAME.size + length
                self._end += length
        return self._gaps.in_log(self._end)

    def read(self, offset: int, limit: int) -> Tuple[int, List[Tuple[int, bytes]]]:
        """At most `limit` bytes from `offset` on, or from the log's first byte if that is later; returns where from."""
        starts = self._starts()
        if not starts:
            return offset, []
        offset = max(offset, self._gaps.in_log(starts[0]))
        place = self._gaps.place(offset)
        if place.gap is not None:
            return offset, [(place.gap.at, place.gap.line[place.position :][:limit])]
        return offset, self._read_disk(starts, place.position, min(limit, place.room))

    def _read_disk(self, starts: List[int], offset: int, limit: int) -> List[Tuple[int, bytes]]:
        records: List[Tuple[int, bytes]] = []
        segment = max(start for start in starts if start <= offset)
        if self._start != segment or offset < self._offset:
            self._start, self._position, self._offset = segment, 0, segment
        while True:
            room = self._read_segment(offset, limit, records)
            following = [start for start in starts if start > (self._start or 0)]
            if room <= 0 or len(records) >= RECORDS_A_READ or not following or self._offset < following[0]:
                break
            self._start, self._position, self._offset = following[0], 0, following[0]
        return records

    def _read_segment(self, offset: int, limit: int, records: List[Tuple[int, bytes]]) -> int:
        """Add this segment's records; returns how many bytes of `limit` are left."""
        room = limit - sum(len(data) for _, data in records)
        with self._open(self._start or 0) as segment:
            segment.seek(self._position)
            while room > 0 and len(records) < RECORDS_A_READ:
                head = segment.read(FRAME.size)
                if len(head) < FRAME.size:
                    break
                at, length = FRAME.unpack(head)
                data = segment.read(length)
                if len(data) < length:
                    break
                skipped = max(0, offset - self._offset)
                part = data[skipped:][:room]
                if part:
                    records.append((at, part))
                    room -= len(part)
                if skipped + len(part) < length:
                    break  # cut inside this frame: the next read begins with it again
                self._position += FRAME.size + length
                self._offset += length
        return room

    def trim(self, offset: int) -> None:
        """Retire the segments that the server has stored, which is all output before `offset`; not the writer's."""
        self._held = offset
        held = self._held_segments()
        if held and not self.make_room():
            for start in held:
                self._retire(start)

    def make_room(self) -> bool:
        """On a disk that is short of space, delete what the server has stored, the oldest first so that a reader never
        finds a gap. Returns whether the disk is short of space."""
        short = os.path.isdir(self._folder) and self._free(self._folder) < SHORT_BYTES
        if short:
            for start in segments(self._replay):
                os.unlink(segment_path(self._replay, start))
            for start in self._held_segments():
                os.unlink(segment_path(self._folder, start))
        return short

    def _held_segments(self) -> List[int]:
        place = self._gaps.place(self._held)
        position = place.position if place.gap is None else place.gap.start
        return [start for start, end in self._closed_segments() if end <= position]

    def _retire(self, start: int) -> None:
        os.makedirs(self._replay, mode=0o700, exist_ok=True)
        os.rename(segment_path(self._folder, start), segment_path(self._replay, start))
        size = 0
        for replayed in reversed(segments(self._replay)):
            size += os.path.getsize(segment_path(self._replay, replayed))
            if size > REPLAY_BYTES:
                os.unlink(segment_path(self._replay, replayed))

    def _starts(self) -> List[int]:
        return segments(self._folder)

    def _open(self, start: int) -> BinaryIO:
        return open(segment_path(self._folder, start), "rb")

    def _closed_segments(self) -> List[Tuple[int, int]]:
        """The segments that the writer has finished, each with the offset of the next."""
        starts = segments(self._folder)
        return [(start, starts[place + 1]) for place, start in enumerate(starts[:-1])]

    def shrink_to(self, most: int, at: int) -> int:
        """Leave out the oldest output that the server can't have yet, until the folder has at most `most` bytes.
        Returns how many bytes of output were dropped."""
        closed = self._closed_segments()
        over = sum(self._size(start) for start in segments(self._folder)) - most
        dropped = 0
        while over > 0 and dropped < len(closed) - FIRST_SEGMENTS:
            over -= self._size(closed[FIRST_SEGMENTS + dropped][0])
            dropped += 1
        if not dropped:
            return 0
        start, end = closed[FIRST_SEGMENTS][0], closed[FIRST_SEGMENTS + dropped - 1][1]
        self._gaps.add(start, end, at, AWAY)
        self._clear()
        return end - start

    def skip(self, offset: int, end: int, at: int) -> None:
        """Leave out this part of the log, which the server can't accept."""
        first, last = self._gaps.place(offset), self._gaps.place(end)
        if first.gap is None and last.gap is None and first.position < last.position:
            self._gaps.add(first.position, last.position, at, REFUSED)
            self._clear()

    def _clear(self) -> None:
        """Delete the segments in gaps; a crash may have left some."""
        for start, end in self._closed_segments():
            if self._gaps.covers(start, end):
                os.unlink(segment_path(self._folder, start))

    def _size(self, start: int) -> int:
        return os.path.getsize(segment_path(self._folder, start))


class ReplayReader(SpoolReader):
    """Reads the log from the oldest byte that is still on disk. It changes nothing, and follows the gaps that the
    agent's own reader adds meanwhile."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self._version = self._gaps_version()

    def read(self, offset: int, limit: int) -> Tuple[int, List[Tuple[int, bytes]]]:
        version = self._gaps_version()
        if version != self._version:
            self._version, self._gaps, self._start = version, Gaps(self._folder), None
        try:
            return super().read(offset, limit)
        except FileNotFoundError:  # dropped at this moment
            self._start = None
            return offset, []

    def _gaps_version(self) -> Tuple[int, ...]:
        try:
            found = os.stat(os.path.join(self._folder, gaps.FILE))
        except FileNotFoundError:
            return ()
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _starts(self) -> List[int]:
        replayed = segments(self._replay)  # read first: a segment may move there, but not back
        return sorted({*replayed, *segments(self._folder)})

    def _open(self, start: int) -> BinaryIO:
        try:
            return super()._open(start)
        except FileNotFoundError:
            return open(segment_path(self._replay, start), "rb")

    def _clear(self) -> None:
        """Only the agent's reader deletes."""
