"""Copies everything that a control plane stores from one place to another: records, blobs and logs.

Each function compares both sides and writes only what differs, so it can be repeated: while the source still serves,
to have little left to do, and once more when nobody writes there any more, after which both are the same. What the
source has lost meanwhile is deleted at the target, too.

Some things stay where they are. Logs have records and blobs of their own in AWS, where they are read from, so their
bytes are copied instead. Code that was deployed belongs to its bucket, and the positions of webhooks to the feed of
their database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256

import orjson

from chalicelib.domain import keys
from chalicelib.domain.instants import MINUTE, Micros
from chalicelib.domain.jobs import Job
from chalicelib.domain.keys import FENCE, Key
from chalicelib.store import nouns
from chalicelib.store.blobs import Blobs
from chalicelib.store.log_pages import LogQuery
from chalicelib.store.logs import LogStore
from chalicelib.store.port import MAX_CHANGES, MAX_COMMIT, Change, Check, Delete, Put, Record, Store

STAYING_BLOBS = ("logs/", "deploy/")
CLOCKS_AGREE: Micros = 5 * MINUTE  # how far the clocks of two stores of blobs may be apart
_PAGE = 500

Progress = Callable[[int], None]  # gets the number of records read so far


@dataclass(frozen=True)
class Digest:
    """The number of records, and the sum of their hashes, which is the same in any order."""

    records: int = 0
    sum: int = 0

    def with_(self, record: Record) -> Digest:
        return Digest(self.records + 1, (self.sum + _hash(record)) % 2**256)


class FencedStore:
    """`Store` that can be written only while its fence has this version: as long as the migration is in charge."""

    def __init__(self, below: Store, version: int) -> None:
        self._below, self._check = below, Check(FENCE, version)
        self.get, self.get_many, self.query, self.scan = below.get, below.get_many, below.query, below.scan
        self.due, self.next_due, self.close = below.due, below.next_due, below.close

    def commit(self, changes: Sequence[Change]) -> None:
        self._below.commit([self._check, *changes])


def pages(store: Store) -> Iterator[list[Record]]:
    """The whole table."""
    after: Key | None = None
    while page := store.scan(after, limit=_PAGE):
        yield page
        after = page[-1].key


def stays(key: Key) -> bool:
    """Does the record belong to its store, rather than to the control plane?"""
    return key == FENCE or key.pk == keys.SUBSCRIPTIONS or key.pk.startswith(keys.LOGS)


def copy_records(source: Store, target: Store, now: int, progress: Progress = lambda _: None) -> int:
    """Make the target's records the same as the source's. Returns how many were different. `now`: epoch seconds, at
    which expired records don't count any more."""
    changed = seen = 0
    for page in pages(source):
        moving = [record for record in page if not stays(record.key) and not _expired(record, now)]
        there = target.get_many([record.key for record in moving])
        changed += commit_all(target, (Put(new, None) for new, old in zip(moving, there, strict=True) if new != old))
        seen += len(page)
        progress(seen)
    for page in pages(target):
        found = [record.key for record in page if not stays(record.key)]
        here = source.get_many(found)
        changed += commit_all(target, (Delete(key) for key, one in zip(found, here, strict=True) if one is None))
    return changed


def digest(store: Store, horizon: int) -> Digest:
    """That of the records which last beyond the horizon, in epoch seconds: others may be gone at any time."""
    found = Digest()
    for page in pages(store):
        for record in page:
            if not stays(record.key) and not _expired(record, horizon):
                found = found.with_(record)
    return found


def copy_blobs(source: Blobs, target: Blobs) -> int:
    """Copy the blobs that the target lacks, or that are newer than its own. Returns how many. The target's others are
    left: nothing refers to them, so they are erased in time."""
    changed, known = 0, dict(_dated(target))
    for name, at in _dated(source):
        there = known.get(name)
        if there is not None and at + CLOCKS_AGREE < there:
            continue
        data = source.get(name)
        if data is not None and (there is None or target.get(name) != data):
            target.put(name, data)
            changed += 1
    return changed


def missing_blobs(source: Blobs, target: Blobs) -> list[str]:
    there = {name for name, _ in _dated(target)}
    return [name for name, _ in _dated(source) if name not in there]


def copy_logs(records: Store, source: LogStore, target: LogStore) -> list[str]:
    """Copy the logs of all jobs in the store. Returns the jobs whose log is damaged at the source, so that its copy
    ends early."""
    damaged = []
    for page in pages(records):
        for job in (nouns.read(Job, each) for each in page if keys.is_job(each.key)):
            end, there = (logs.end(job.project_id, job.id) for logs in (source, target))
            if there > end:
                target.delete(job.project_id, job.id)  # it was erased meanwhile
                there = 0
            if there < end and _copy_log(job, source, target, there) < end:
                damaged.append(job.id)
    return damaged


def _copy_log(job: Job, source: LogStore, target: LogStore, there: int) -> int:
    """Returns the end of the copy. Each page is placed by its offset, so what is there already is left alone."""
    place, token = 0, None
    while True:
        page = source.read(job.project_id, job.id, LogQuery(token=token))
        size = sum(len(data) for _, data in page.records)
        if place + size > there:
            there = target.append(job.project_id, job.id, place, page.records)
        place, token = place + size, page.next_token
        if token is None:
            return there


def _expired(record: Record, now: int) -> bool:
    return record.expires_at is not None and record.expires_at <= now


def _hash(record: Record) -> int:
    due = None if record.due is None else [*record.due]
    parts = [*record.key, record.version, record.body.decode(), record.gsi1, record.gsi2, due, record.expires_at]
    return int.from_bytes(sha256(orjson.dumps(parts)).digest(), "big")


def commit_all(target: Store, changes: Iterable[Change]) -> int:
    """Commit these in batches; one change is left for whoever adds a check."""
    count = size = 0
    batch: list[Change] = []
    for change in changes:
        more = len(change.record.body) if isinstance(change, Put) else 0
        if len(batch) == MAX_CHANGES - 1 or size + more > MAX_COMMIT:
            target.commit(batch)
            batch, size = [], 0
        batch.append(change)
        count, size = count + 1, size + more
    if batch:
        target.commit(batch)
    return count


def _dated(blobs: Blobs) -> Iterator[tuple[str, Micros]]:
    after = ""
    while page := blobs.dated("", after):
        yield from (each for each in page if not each[0].startswith(STAYING_BLOBS))
        after = page[-1][0]
