"""Events in the store: those of one commit share a record, and each record has its lifetime.

A write of DynamoDB is billed by the item and by its entries in the indexes, and most commits tell two or three small
things about the same run and fleet. So this store puts the events of a commit together, as far as one record can stand
where all of them belong: in one project, within at most one run and one fleet. Its key is that of its earliest event.
One event alone is its JSON object, as a noun is; several are a list of them. `events_in` reads both.

How long events are kept is the operator's choice, so events don't know it. It is added here, to every write, and no
writer of events needs to care. DynamoDB and SQLite then drop what has expired; `engine/erasing.py` deletes the events
that were written before there was a lifetime, or under a longer one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from operator import attrgetter

from pydantic import TypeAdapter

from chalicelib.domain import keys
from chalicelib.domain.events import Event
from chalicelib.domain.instants import DAY, SECOND, Micros
from chalicelib.domain.retention import Retention
from chalicelib.store import nouns
from chalicelib.store.port import Change, Put, Record, Store

SPAN: Micros = 1_000  # the events of a record are at most this far apart, so that readers can put records in order
LARGEST = 50_000  # bytes of a record of several events


class HistoryStore:
    """`Store`: everything except `commit` is passed to the store below unchanged."""

    def __init__(self, below: Store, retention: Retention) -> None:
        self.below = below
        self._kept = retention.events * DAY
        self.get, self.get_many, self.query, self.scan = below.get, below.get_many, below.query, below.scan
        self.due, self.next_due, self.close = below.due, below.next_due, below.close

    def commit(self, changes: Sequence[Change]) -> None:
        others = [change for change in changes if not _tells(change)]
        told = [change.record for change in changes if isinstance(change, Put) and _tells(change)]
        self.below.commit([*others, *(Put(self._ending(record), expect=0) for record in joined(told))])

    def _ending(self, record: Record) -> Record:
        return replace(record, expires_at=(keys.event_at(record.key) + self._kept) // SECOND)


def _tells(change: Change) -> bool:
    """Is it a new event? None is ever altered."""
    return isinstance(change, Put) and change.key.pk.startswith(keys.EVENTS) and change.expect == 0


def joined(told: Iterable[Record]) -> list[Record]:
    """The records of single events in as few as can be."""
    found: list[list[Record]] = []
    for record in sorted(told, key=attrgetter("key")):
        home = next((group for group in found if _fits(group, record)), None)
        if home is None:
            found.append([record])
        else:
            home.append(record)
    return [group[0] if len(group) == 1 else _one(group) for group in found]


def _fits(group: Sequence[Record], record: Record) -> bool:
    first = group[0]
    return (
        first.key.pk == record.key.pk
        and keys.event_at(record.key) - keys.event_at(first.key) <= SPAN
        and sum(len(each.body) for each in (*group, record)) <= LARGEST
        and len(_partitions(each.gsi1 for each in (*group, record))) <= 1
        and len(_partitions(each.gsi2 for each in (*group, record))) <= 1
    )


def _one(group: Sequence[Record]) -> Record:
    key = group[0].key
    body = b"[" + b",".join(each.body for each in group) + b"]"
    run, fleet = (_partitions(getattr(each, index) for each in group) for index in ("gsi1", "gsi2"))
    return Record(key, 1, body, (run.pop(), key.sk) if run else None, (fleet.pop(), key.sk) if fleet else None)


def _partitions(entries: Iterable[tuple[str, str] | None]) -> set[str]:
    return {entry[0] for entry in entries if entry is not None}


@cache
def _several() -> TypeAdapter[list[Event]]:
    return TypeAdapter(list[Event])


def events_in(record: Record) -> list[Event]:
    """The events of a record, in the order in which they happened."""
    return _several().validate_json(record.body) if record.body.startswith(b"[") else [nouns.read(Event, record)]
