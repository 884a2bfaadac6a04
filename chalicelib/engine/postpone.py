"""Postponing a unit by changing only the due time of its records.

This works on records and not on nouns, because it must work for units that can't even be parsed. The next real change
of a noun writes its own due time again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson

from chalicelib.domain.events import Event, EventType, Target
from chalicelib.domain.ids import derive
from chalicelib.domain.instants import MINUTE, Micros
from chalicelib.engine.kinds import Unit
from chalicelib.errors import Conflict
from chalicelib.store import nouns
from chalicelib.store.port import MAX_CHANGES, Change, Put, Record, Store

DEFAULT_DELAY = MINUTE  # for a plan with nothing to do that doesn't set the next check


def put_off(store: Store, row: Unit, unit: str, now: Micros, until: Micros | None) -> None:
    """Postpone `unit`, for which there was nothing to do, to `until`."""
    _write(store, _moved(store, row, unit, now, until if until is not None and until > now else now + DEFAULT_DELAY))


def put_off_failed(
    store: Store, row: Unit, unit: str, now: Micros, until: Micros, *, error: Exception, times: int
) -> None:
    """Postpone `unit`, which failed for the `times`-th time in a row, to `until`, and record an event for its owner.

    An event is recorded at the first failure, and then whenever their number has doubled.
    """
    records = _due_records(store, row, unit, now)
    moved = _moved(store, row, unit, now, until, records)
    if times & (times - 1) == 0:
        event = _event(unit, records or _records(store, row, unit, 1), now, type(error).__name__, str(error), times)
        if event is not None:
            moved.append(nouns.put(event))
    _write(store, moved)


def record_failure(store: Store, row: Unit, unit: str, now: Micros, *, reason: str, detail: str) -> bool:
    """Record only an event, for a failure outside the unit's own processing. False if the unit has no owner any
    more."""
    event = _event(unit, _records(store, row, unit, 1), now, reason, detail, 1)
    if event is not None:
        _write(store, [nouns.put(event)])
    return event is not None


def _records(store: Store, row: Unit, unit: str, limit: int) -> list[Record]:
    if row.index:
        page = store.query("gsi1", unit, limit=limit)
        current = store.get_many([record.key for record in page.records])
        return [record for record in current if record is not None]
    return [r for r in store.query("main", unit, limit=1000).records if not r.key.sk.startswith("body/")]


def _due_records(store: Store, row: Unit, unit: str, now: Micros) -> list[Record]:
    return [r for r in _records(store, row, unit, 1000) if r.due is not None and r.due.at <= now and r.due.unit == unit]


def _moved(
    store: Store, row: Unit, unit: str, now: Micros, until: Micros, records: Sequence[Record] | None = None
) -> list[Change]:
    found = _due_records(store, row, unit, now) if records is None else records
    return [
        Put(replace(record, version=record.version + 1, due=record.due._replace(at=until)), expect=record.version)
        for record in found[: MAX_CHANGES - 1]
        if record.due is not None
    ]


def _write(store: Store, changes: Sequence[Change]) -> None:
    if not changes:
        return
    try:
        store.commit(changes)
    except Conflict:
        return  # the unit has changed meanwhile: it stays due


def _event(unit: str, records: Sequence[Record], now: Micros, reason: str, detail: str, times: int) -> Event | None:
    kind, _, unit_id = unit.partition("/")
    body: dict[str, Any] = next((orjson.loads(r.body) for r in records if b"project_id" in r.body), {})
    project_id = unit_id if kind == "queue" else body.get("project_id")
    if project_id is None:
        return None
    name = body.get("run_name", body.get("name", unit_id))  # the first of a run's records may be a job
    target = Target(type="project" if kind == "queue" else kind, id=unit_id, name="queue" if kind == "queue" else name)
    return Event(
        id=derive(unit, "failed", now, times),
        project_id=project_id,
        at=now,
        type=EventType.stuck,
        reason=reason,
        detail=detail[:500],
        number=times,
        targets=(target,),
        run_id=unit_id if kind == "run" else None,
        fleet_id=unit_id if kind == "fleet" else body.get("fleet_id"),
    )
