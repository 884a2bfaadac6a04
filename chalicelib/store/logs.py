"""The logs of jobs: one stream of bytes a job, each piece with the time it was written.

A stream grows by offset: what comes twice is cut, what would leave a gap is not taken, so an agent may repeat itself
and never needs an answer to have arrived. What one `append` adds is one *chunk*, whole or absent; a chunk knows its
place in the stream and the times it spans, so a reader steps over those it doesn't need.

A token is `<place>.<offset>`: the chunk (its place in the file; its offset in the stream) and the byte to go on from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from chalicelib.store.log_pages import EVERYTHING, LogAsk, LogPage, Piece

__all__ = ["LogAsk", "LogPage", "LogStore", "Piece"]


class LogStore(Protocol):
    def append(self, project_id: str, job_id: str, offset: int, records: Sequence[Piece]) -> int:
        """Adds bytes from `offset` on and answers the stream's end: all before it is lasting. A gap adds nothing."""

    def end(self, project_id: str, job_id: str) -> int: ...

    def read(self, project_id: str, job_id: str, ask: LogAsk = EVERYTHING) -> LogPage:
        """A page ends by records or by bytes; a record larger than a page comes in parts, divided between characters.
        A malformed token is Invalid."""

    def delete(self, project_id: str, job_id: str) -> None: ...
