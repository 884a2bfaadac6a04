"""A task's output on disk: every byte with the time it was read, addressed by its offset in the whole log.

A spool is a folder of segments named by the offset of their first byte; a segment is a row of frames (microseconds,
length, bytes). One supervisor writes, one agent reads, and what the server holds is deleted segment by segment. A
frame cut short by a crash or a full disk was never announced to anybody: the writer cuts it off, a reader stops
before it.

The writer counts what is on disk, the reader what is in the log: where output was left out (`gaps`), the two differ.

What the server holds isn't needed here any more, but whoever attaches wants to see the log from its beginning: some
megabytes of it stay in the folder `replay`, beside the spool and its quota. A disk that is short of room has none.
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
SHORT_BYTES = 64 << 20  # with less than this free, nothing stays here that the server holds
SEGMENTS_KEPT = 2  # the oldest: the server may hold part of it, if its acknowledgement was lost


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
    """Appends; OSError (a full disk) leaves the spool as it was before the call. Where the disk is full a new segment
    begins, because only whole ones can be freed."""

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
                with contextlib.suppress(OSError):  # there isn't even room for that: the next call tries again
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
    """Reads while the writer writes. It remembers its position, so reading on needs no scan."""

    def __init__(self, folder: str, free: Callable[[str], int] = free_bytes) -> None:
        """`free`: how many bytes the disk under a folder still takes."""
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
        """At most `limit` bytes from `offset` on, or from where the log begins if later: the first value says."""
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
            later = [start for start in starts if start > (self._start or 0)]
            if room <= 0 or len(records) >= RECORDS_A_READ or not later or self._offset < later[0]:
                break
            self._start, self._position, self._offset = later[0], 0, later[0]
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
                wanted = data[skipped:][:room]
                if wanted:
                    records.append((at, wanted))
                    room -= len(wanted)
                if skipped + len(wanted) < length:
                    break  # cut inside this frame: the next read begins with it again
                self._position += FRAME.size + length
                self._offset += length
        return room

    def trim(self, offset: int) -> None:
        """The server holds what is before `offset`: segments that lie wholly there go, but for the writer's."""
        self._held = offset
        held = self._held_segments()
        if held and not self.ease():
            for start in held:
                self._retire(start)

    def ease(self) -> bool:
        """Is the disk short of room? Then nothing stays that the server holds; the oldest goes first, because a reader
        must not find a gap."""
        short = os.path.isdir(self._folder) and self._free(self._folder) < SHORT_BYTES
        if short:
            for old in segments(self._replay):
                os.unlink(segment_path(self._replay, old))
            for start in self._held_segments():
                os.unlink(segment_path(self._folder, start))
        return short

    def _held_segments(self) -> List[int]:
        place = self._gaps.place(self._held)
        position = place.position if place.gap is None else place.gap.start
        return [start for start, end in self._whole() if end <= position]

    def _retire(self, start: int) -> None:
        os.makedirs(self._replay, mode=0o700, exist_ok=True)
        os.rename(segment_path(self._folder, start), segment_path(self._replay, start))
        size = 0
        for old in reversed(segments(self._replay)):
            size += os.path.getsize(segment_path(self._replay, old))
            if size > REPLAY_BYTES:
                os.unlink(segment_path(self._replay, old))

    def _starts(self) -> List[int]:
        return segments(self._folder)

    def _open(self, start: int) -> BinaryIO:
        return open(segment_path(self._folder, start), "rb")

    def _whole(self) -> List[Tuple[int, int]]:
        """The segments that aren't written to any more, each with where the next one begins."""
        starts = segments(self._folder)
        return [(start, starts[place + 1]) for place, start in enumerate(starts[:-1])]

    def keep_within(self, most: int, at: int) -> int:
        """Leave out the oldest output that nobody can have yet, until the folder has at most `most` bytes; answers how
        many bytes of output that were."""
        whole = self._whole()
        over = sum(self._size(start) for start in segments(self._folder)) - most
        dropped = 0
        while over > 0 and dropped < len(whole) - SEGMENTS_KEPT:
            over -= self._size(whole[SEGMENTS_KEPT + dropped][0])
            dropped += 1
        if not dropped:
            return 0
        start, end = whole[SEGMENTS_KEPT][0], whole[SEGMENTS_KEPT + dropped - 1][1]
        self._gaps.add(start, end, at, AWAY)
        self._clear()
        return end - start

    def skip(self, offset: int, end: int, at: int) -> None:
        """Skip this part of the log, which the server can't accept."""
        first, last = self._gaps.place(offset), self._gaps.place(end)
        if first.gap is None and last.gap is None and first.position < last.position:
            self._gaps.add(first.position, last.position, at, REFUSED)
            self._clear()

    def _clear(self) -> None:
        """Delete the skipped segments; a crash may have left some."""
        for start, end in self._whole():
            if self._gaps.covers(start, end):
                os.unlink(segment_path(self._folder, start))

    def _size(self, start: int) -> int:
        return os.path.getsize(segment_path(self._folder, start))


class ReplayReader(SpoolReader):
    """Reads the log from as far back as it is still here, beside the agent's own reader: it changes nothing, and sees
    what that leaves out meanwhile."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self._seen = self._noted()

    def read(self, offset: int, limit: int) -> Tuple[int, List[Tuple[int, bytes]]]:
        noted = self._noted()
        if noted != self._seen:
            self._seen, self._gaps, self._start = noted, Gaps(self._folder), None
        try:
            return super().read(offset, limit)
        except FileNotFoundError:  # dropped at this moment
            self._start = None
            return offset, []

    def _noted(self) -> Tuple[int, ...]:
        try:
            noted = os.stat(os.path.join(self._folder, gaps.FILE))
        except FileNotFoundError:
            return ()
        return noted.st_ino, noted.st_mtime_ns, noted.st_size

    def _starts(self) -> List[int]:
        kept = segments(self._replay)  # first: a segment may move there, but not back
        return sorted({*kept, *segments(self._folder)})

    def _open(self, start: int) -> BinaryIO:
        try:
            return super()._open(start)
        except FileNotFoundError:
            return open(segment_path(self._replay, start), "rb")

    def _clear(self) -> None:
        """Another reader's task."""
