"""Gaps in a task's output: what was dropped, and the line in its place that says so.

The server accepts output only as one unbroken sequence of bytes, so dropping some shifts the rest: a position in
the log, as the server counts, no longer equals the position on disk. `Gaps` converts between the two. Each gap is
recorded before its bytes are deleted, so a crash in between leaves too much on disk, never a gap in the log.
"""

from __future__ import annotations

import json
import os
from typing import List, Optional

from .records import record
from .tasks import read_text, write_atomic

AWAY = "the control plane was out of reach"
REFUSED = "the control plane can't take them"
FILE = "holes"  # the name that earlier agents gave it
END = 1 << 62  # beyond every position


@record(frozen=True)
class Gap:
    start: int  # on disk
    end: int
    at: int  # when the bytes were dropped, in microseconds since 1970
    why: str

    @property
    def line(self) -> bytes:
        size = self.end - self.start
        amount = "%.1f MB" % (size / 1e6) if size >= 100000 else "%d bytes" % size
        return ("\r\n… %s of log were dropped here: %s …\r\n" % (amount, self.why)).encode("utf-8")


@record(frozen=True)
class LogPlace:
    """The place of a byte of the log: in a gap's line (`position` counts within the line), or on disk."""

    gap: Optional[Gap]
    position: int
    room: int  # bytes from there to the next gap, or to the end of the line


class Gaps:
    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, FILE)
        self.entries: List[Gap] = [Gap(*fields) for fields in json.loads(read_text(self._path) or "[]")]

    def add(self, start: int, end: int, at: int, why: str) -> None:
        """Skip these bytes on disk. If they follow the last gap and are of the same kind, that gap grows."""
        entries = self.entries
        if why == AWAY and entries and (entries[-1].end, entries[-1].why) == (start, why):
            entries, start = entries[:-1], entries[-1].start
        longer = sorted([*entries, Gap(start, end, at, why)], key=lambda gap: gap.start)
        write_atomic(self._path, json.dumps([[gap.start, gap.end, gap.at, gap.why] for gap in longer]))
        self.entries = longer

    def place(self, offset: int) -> LogPlace:
        """Where to find the byte at this offset of the log."""
        before = 0  # bytes by which the log is shorter than the disk up to here
        for gap in self.entries:
            begins = gap.start - before
            if offset < begins:
                return LogPlace(None, offset + before, begins - offset)
            if offset < begins + len(gap.line):
                return LogPlace(gap, offset - begins, begins + len(gap.line) - offset)
            before += gap.end - gap.start - len(gap.line)
        return LogPlace(None, offset + before, END)

    def in_log(self, position: int) -> int:
        """The offset in the log of a position on disk; within a gap, the offset of the gap's line."""
        before = 0
        for gap in self.entries:
            if position <= gap.start:
                break
            if position < gap.end:
                return gap.start - before
            before += gap.end - gap.start - len(gap.line)
        return position - before

    def covers(self, start: int, end: int) -> bool:
        return any(gap.start <= start and end <= gap.end for gap in self.entries)
