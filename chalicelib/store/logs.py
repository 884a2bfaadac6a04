"""The logs of jobs: one stream of bytes per job, each piece with the time it was written.

A stream grows by offset: duplicates are cut, and what would leave a gap is not accepted, so an agent can repeat itself
and never needs to know whether a reply got lost. Each `append` adds one *chunk*, whole or not at all; a chunk knows its
bounds in the stream and the times it spans, so a reader skips those it doesn't need.

A token is `<place>.<offset>`: the chunk (its place in the file; its offset in the stream) and the byte to continue at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from chalicelib.store.log_pages import EVERYTHING, LogAsk, LogPage, Piece

__all__ = ["LogAsk", "LogPage", "LogStore", "Piece"]


class LogStore(Protocol):
    def append(self, project_id: str, job_id: str, offset: int, records: Sequence[Piece]) -> int:
        """Add bytes from `offset` on; returns the stream's end, up to which all is durable. A gap adds nothing."""

    def end(self, project_id: str, job_id: str) -> int: ...

    def read(self, project_id: str, job_id: str, ask: LogAsk = EVERYTHING) -> LogPage:
        """A page is limited by records and by bytes; a record larger than a page comes in parts, split between
        characters. A malformed token raises Invalid."""

    def delete(self, project_id: str, job_id: str) -> None: ...
