"""Logs in a blob store, one object per chunk, for S3.

An object's name has the chunk's bounds and times: `logs/<project>/<job>/<first>.<last>.<low>.<high>`. So racing writers
write two objects instead of overwriting each other, a listing alone shows the stream's end, and a reader cuts the
overlap.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from chalicelib.domain.instants import Micros
from chalicelib.store.blobs import Blobs
from chalicelib.store.log_pages import (
    EVERYTHING,
    LogAsk,
    LogPage,
    Piece,
    Span,
    Token,
    checked_ids,
    fresh,
    packed,
    page_of,
    token_of,
    unpacked,
)

_NAME = re.compile(r"(\d{16})\.(\d{16})\.(\d{17})\.(\d{17})")
_LISTED = 1000


class BlobLogs:
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

    def read(self, project_id: str, job_id: str, ask: LogAsk = EVERYTHING) -> LogPage:
        at = token_of(ask.token)
        folder = self._folder(project_id, job_id)
        if not ask.descending:
            return page_of(self._spans(folder, at), ask, at or Token(0, 0))
        spans = list(self._spans(folder, None))
        if at is not None:
            spans = [span._replace(last=min(span.last, at.offset)) for span in spans if span.first < at.offset]
        return page_of(reversed(spans), ask, at or Token(0, 0))

    def delete(self, project_id: str, job_id: str) -> None:
        folder = self._folder(project_id, job_id)
        while names := self._blobs.list(folder, limit=_LISTED):
            self._blobs.delete(*names)

    def _folder(self, project_id: str, job_id: str) -> str:
        return "logs/{}/{}/".format(*checked_ids(project_id, job_id))

    def _spans(self, folder: str, token: Token | None) -> Iterator[Span]:
        """The stream in order, without what racing writers wrote twice."""
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
