"""Events in the store: the events of one commit share records, and each record has a lifetime.

DynamoDB bills writes by item and by index entry, and most commits record two or three small events about the same run
and fleet. So this store groups a commit's events into records, where one record can have the index entries of all: in
one project, with at most one run and one fleet. Its key is that of its earliest event. A single event is stored as its
JSON object, like a noun; several are stored as a list. `events_in` reads both.

How long events are retained is the operator's choice, so this layer adds their expiry to every write, and no writer of
events needs to care. DynamoDB and SQLite drop expired events; `engine/erase_unused.py` deletes those that were written
before there was a lifetime, or under a longer one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from operator import attrgetter

from pydantic import TypeAdapter

from chalicelib.domain import keys
from chalicelib.domain.events import Event
from chalicelib.domain.instants import DAY, MINUTE, SECOND, Micros
from chalicelib.domain.retention import Retention
from chalicelib.store import nouns
from chalicelib.store.port import Change, Put, Record, Store

LATE: Micros = 2 * MINUTE  # between the time of an event and its commit, at most
SPAN: Micros = 1_000  # the events of a record are at most this far apart, so that readers can put records in order
LARGEST = 50_000  # bytes of a record of several events


class HistoryStore:
    """`Store`: everything except `commit` is passed to the store below unchanged."""

    def __init__(self, below: Store, retention: Retention) -> None:
        self.below = below
        self._retention = retention.events * DAY
        self.get, self.get_many, self.query, self.scan = below.get, below.get_many, below.query, below.scan
        self.due, self.next_due, self.close = below.due, below.next_due, below.close

    def commit(self, changes: Sequence[Change]) -> None:
        other_changes = [change for change in changes if not _is_new_event(change)]
        events = [change.record for change in changes if isinstance(change, Put) and _is_new_event(change)]
        self.below.commit([*other_changes, *(Put(self._ending(record), expect=0) for record in grouped(events))])

    def _ending(self, record: Record) -> Record:
        return replace(record, expires_at=(keys.event_at(record.key) + self._retention) // SECOND)


def _is_new_event(change: Change) -> bool:
    """Whether this writes a new event. Events are never altered."""
    return isinstance(change, Put) and change.key.pk.startswith(keys.EVENTS) and change.expect == 0


def grouped(events: Iterable[Record]) -> list[Record]:
    """The records of single events, grouped into as few records as possible."""
    found: list[list[Record]] = []
    for record in sorted(events, key=attrgetter("key")):
        group_found = next((group for group in found if _fits(group, record)), None)
        if group_found is None:
            found.append([record])
        else:
            group_found.append(record)
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
