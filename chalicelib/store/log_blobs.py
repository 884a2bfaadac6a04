"""Logs in a blob store, one object per chunk, for S3.

A record for each chunk says where it begins and ends. Its key is the offset of its first byte, and it is written only
if there is none, so of racing writers one succeeds and the others start over. The log's end and its pages are found by
key, without listing a prefix. Objects are named by their content: writing one twice gives the same object, and one
whose record was never written is erased with the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256

from chalicelib.domain import keys
from chalicelib.domain.bounds import LAST_INSTANT
from chalicelib.domain.instants import Micros
from chalicelib.domain.log_chunks import LogChunk
from chalicelib.errors import Conflict
from chalicelib.store import nouns
from chalicelib.store.blobs import Blobs
from chalicelib.store.log_pages import (
    EVERYTHING,
    LogPage,
    LogQuery,
    Piece,
    Span,
    Token,
    beyond_end,
    checked_ids,
    packed,
    page_of,
    token_of,
    unpacked,
)
from chalicelib.store.port import MAX_CHANGES, Delete, Record, Store

_LISTED = 1000
_READ = 20  # chunks that are usually enough for a page


class BlobLogs:
    def __init__(self, store: Store, blobs: Blobs) -> None:
        self._store, self._blobs = store, blobs

    def append(self, project_id: str, job_id: str, offset: int, records: Sequence[Piece]) -> int:
        end = self.end(project_id, job_id)
        pieces = beyond_end(end, offset, records)
        if not pieces:
            return end
        payload = packed(pieces)
        last = end + sum(len(data) for _, data in pieces)
        times = [max(0, at) for at, _ in pieces]
        blob = self.name(project_id, job_id, end, sha256(payload).hexdigest())
        self._blobs.put(blob, payload)
        where = {"project_id": project_id, "job_id": job_id, "blob": blob}
        return self.enter(LogChunk.unvalidated(**where, first=end, last=last, low=min(times), high=max(times)))

    def name(self, project_id: str, job_id: str, first: int, digest: str) -> str:
        """The name of the object with this content."""
        return f"{_folder(project_id, job_id)}{first:016d}.{digest[:32]}"

    def enter(self, chunk: LogChunk) -> int:
        """Add a chunk whose object is stored to the log, unless another writer was faster. Returns the log's end."""
        try:
            self._store.commit([nouns.put(chunk)])
        except Conflict:
            return self.end(chunk.project_id, chunk.job_id)
        return chunk.last

    def end(self, project_id: str, job_id: str) -> int:
        last = self._store.query("main", _partition(project_id, job_id), limit=1, reverse=True).records
        return nouns.read(LogChunk, last[0]).last if last else 0

    def read(self, project_id: str, job_id: str, query: LogQuery = EVERYTHING) -> LogPage:
        at, partition = token_of(query.token), _partition(project_id, job_id)
        if not query.descending:
            spans = (self._span(record) for record in self._from(partition, at))
            reached = at.offset if at else 0
            rest = (span._replace(first=max(span.first, reached)) for span in spans if span.last > reached)
            return page_of(rest, query, at or Token(0, 0))
        spans = (self._span(record) for record in self._records(partition, high=_sort(at.offset) if at else ""))
        if at is not None:
            spans = (span._replace(last=min(span.last, at.offset)) for span in spans)
        return page_of(spans, query, at or Token(0, 0))

    def delete(self, project_id: str, job_id: str) -> None:
        """Delete the objects first, including those without a record: while records are left, deletion is retried."""
        folder = _folder(project_id, job_id)
        while names := self._blobs.list(folder, limit=_LISTED):
            self._blobs.delete(*names)
        while found := self._store.query("main", _partition(project_id, job_id), limit=MAX_CHANGES).records:
            self._store.commit([Delete(record.key) for record in found])

    def _from(self, partition: str, token: Token | None) -> Iterator[Record]:
        """The records from the token's chunk on. Its place is where that begins, unless the token was given elsewhere,
        before the log was copied here: then its offset says which chunk it is."""
        place, offset = token or Token(0, 0)
        records = self._records(partition, low=_sort(place))
        first = next(records, None)
        if place and (first is None or first.key.sk != _sort(place)):
            before = self._store.query("main", partition, high=_sort(offset + 1), limit=1, reverse=True).records
            first, records = None, self._records(partition, low=before[0].key.sk if before else "")
        yield from [] if first is None else [first]
        yield from records

    def _records(self, partition: str, *, low: str = "", high: str | None = None) -> Iterator[Record]:
        """The records from `low` on; with `high`, those before it, backwards."""
        cursor: str | None = None
        while True:
            page = self._store.query(
                "main", partition, low=low, high=high or "", limit=_READ, cursor=cursor, reverse=high is not None
            )
            yield from page.records
            cursor = page.cursor
            if cursor is None:
                return

    def _span(self, record: Record) -> Span:
        chunk = nouns.read(LogChunk, record)

        def load() -> Iterable[tuple[int, Micros, bytes]]:
            payload = self._blobs.get(chunk.blob)
            if payload is None:
                return  # deleted meanwhile
            for offset, at, data in unpacked(payload, chunk.first):
                yield offset, min(max(0, at + chunk.clock_off), LAST_INSTANT), data

        return Span(chunk.first, chunk.first, chunk.last, chunk.low, chunk.high, load)


def _partition(project_id: str, job_id: str) -> str:
    return keys.log_of(*checked_ids(project_id, job_id))


def _folder(project_id: str, job_id: str) -> str:
    return "logs/{}/{}/".format(*checked_ids(project_id, job_id))


def _sort(first: int) -> str:
    return keys.log_chunk("", "", first).sk
