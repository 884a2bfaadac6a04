"""Publishes the state changes in the table's stream to a bus, as documents and in order.

A stream repeats a batch from its first unprocessed record. So the work ends at the first record that the bus rejected,
and documents accepted after it are sent again: consumers recognise repetitions by their ids. A record that can't be
read is logged and skipped; otherwise all later changes would wait behind it for ever.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from chalicelib.domain import keys
from chalicelib.domain.events import Event
from chalicelib.domain.instants import Micros
from chalicelib.domain.state_changes import StateChange, of
from chalicelib.domain.tenants import Project
from chalicelib.engine.ports import Bus
from chalicelib.store import nouns
from chalicelib.store.history import events_in
from chalicelib.store.port import Record, Store
from chalicelib.store.stream_records import streamed

log = logging.getLogger(__name__)


class Documents:
    """Events as documents, with the names of their projects, which never change."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._names: dict[str, str] = {}

    def of(self, event: Event) -> StateChange:
        id_ = event.project_id
        if id_ and id_ not in self._names:
            project = nouns.find(self._store, Project, keys.project(id_))
            self._names[id_] = "" if project is None else project.name
        return of(event, self._names.get(id_))


def publish(documents: Documents, bus: Bus, records: Iterable[Mapping[str, Any]], since: Micros = 0) -> list[str]:
    """Publish the events in these records that happened since then. Returns the sequence number of the first record
    that wasn't fully accepted, if there is one."""
    found: list[tuple[str, StateChange]] = []
    for record in records:
        change = record["dynamodb"]
        number = str(change["SequenceNumber"])
        found += [(number, documents.of(event)) for event in _streamed(change) if event.at >= since]
    left = bus([document for _, document in found])
    return [number for number, document in found if document.id in left][:1]


def _streamed(change: Mapping[str, Any]) -> list[Event]:
    try:
        record = streamed(change["NewImage"])
    except (KeyError, ValueError, zlib.error):
        log.exception("the record at %s can't be read", change.get("Keys"))
        return []
    return legible(record)


def legible(record: Record) -> list[Event]:
    """The events of a record; none if it can't be read."""
    try:
        return events_in(record)
    except ValueError:
        log.exception("the events at %s can't be read", record.key)
        return []
