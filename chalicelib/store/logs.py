"""The logs of jobs: one stream of bytes per job, each piece with the time at which it was written.

A stream grows by offset: duplicates are cut, and data after a gap isn't accepted, so agents can repeat themselves and
needn't know whether a response was lost. Each `append` adds one *chunk*, completely or not at all; a chunk has its
bounds in the stream and in time, so readers skip those that they don't need.

A token is `<place>.<offset>`: the chunk (its place in the file, or its offset in the stream) and the byte to continue
at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from chalicelib.store.log_pages import EVERYTHING, LogPage, LogQuery, Piece

__all__ = ["LogPage", "LogQuery", "LogStore", "Piece"]


class LogStore(Protocol):
    def append(self, project_id: str, job_id: str, offset: int, records: Sequence[Piece]) -> int:
        """Add bytes from `offset` on. Returns the stream's end, up to which it is durable. After a gap nothing is
        added."""

    def end(self, project_id: str, job_id: str) -> int: ...

    def read(self, project_id: str, job_id: str, query: LogQuery = EVERYTHING) -> LogPage:
        """Read a page, which is limited by records and by bytes; a record larger than a page is split between
        characters. A malformed token raises Invalid."""

    def delete(self, project_id: str, job_id: str) -> None: ...
