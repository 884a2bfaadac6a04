"""A task's output on disk: every byte with the time it was read, addressed by its offset in the whole log.

A spool is a folder of segments named by the offset of their first byte; a segment is a sequence of frames
(microseconds, length, bytes). One supervisor writes, one agent reads, and what the server has is deleted segment by
segment. A frame cut short by a crash or a full disk was never announced: the writer cuts it off, a reader stops before
it.
"""

from __future__ import annotations

import os
import struct
from typing import List, Optional, Tuple

FRAME = struct.Struct("<QI")
SEGMENT_BYTES = 4 * 1024 * 1024
RECORDS_MOST = 5000  # per read: a program that writes byte by byte must not cause messages of endless tiny records


def segments(folder: str) -> List[int]:
    try:
        return sorted(int(name) for name in os.listdir(folder) if name.isdigit())
    except FileNotFoundError:
        return []


def segment_path(folder: str, start: int) -> str:
    return os.path.join(folder, "%020d" % start)


class SpoolWriter:
    """Appends; OSError (a full disk) leaves the spool as it was before the call."""

    def __init__(self, folder: str) -> None:
        os.makedirs(folder, exist_ok=True)
        self._folder = folder
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
        if self.end - self._start >= SEGMENT_BYTES:
            self._rotate()
        frame = FRAME.pack(at_micros, len(data)) + data
        written = 0
        try:
            while written < len(frame):
                written += os.pwrite(self._fd, frame[written:], self._size + written)
        except OSError:
            os.ftruncate(self._fd, self._size)
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

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._start: Optional[int] = None  # the segment under the cursor
        self._position = 0  # a frame begins here in the segment …
        self._offset = 0  # … and here in the log
        self._end_start: Optional[int] = None
        self._end_position = 0
        self._end = 0

    def end(self) -> int:
        """The log's length so far, in bytes."""
        starts = segments(self._folder)
        if not starts:
            return self._end
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
        return self._end

    def read(self, offset: int, limit: int) -> Tuple[int, List[Tuple[int, bytes]]]:
        """The offset read from, which is later than `offset` if the log begins later, and at most `limit` bytes."""
        records: List[Tuple[int, bytes]] = []
        starts = segments(self._folder)
        if not starts:
            return offset, records
        offset = max(offset, starts[0])
        if self._start not in starts or offset < self._offset:
            self._start = max(start for start in starts if start <= offset)
            self._position, self._offset = 0, self._start
        room = limit
        while room > 0:
            room = self._read_segment(offset, limit, records)
            later = [start for start in starts if start > (self._start or 0)]
            if room <= 0 or len(records) >= RECORDS_MOST or not later or self._offset < later[0]:
                break
            self._start, self._position, self._offset = later[0], 0, later[0]
        return offset, records

    def _read_segment(self, offset: int, limit: int, records: List[Tuple[int, bytes]]) -> int:
        """Add this segment's records; returns how many bytes of `limit` are left."""
        room = limit - sum(len(data) for _, data in records)
        with open(segment_path(self._folder, self._start or 0), "rb") as segment:
            segment.seek(self._position)
            while room > 0 and len(records) < RECORDS_MOST:
                head = segment.read(FRAME.size)
                if len(head) < FRAME.size:
                    break
                at, length = FRAME.unpack(head)
                data = segment.read(length)
                if len(data) < length:
                    break
                wanted = data[max(0, offset - self._offset) :][:room]
                if wanted:
                    records.append((at, wanted))
                    room -= len(wanted)
                if self._offset + length > max(offset, self._offset) + len(wanted) and room <= 0:
                    break  # cut inside this frame: the next read begins with it again
                self._position += FRAME.size + length
                self._offset += length
        return room

    def trim(self, offset: int) -> None:
        """Delete the segments that lie wholly before `offset`; the last one always stays."""
        starts = segments(self._folder)
        for place, start in enumerate(starts[:-1]):
            if starts[place + 1] <= offset:
                os.unlink(segment_path(self._folder, start))
