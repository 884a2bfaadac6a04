"""What was written lately, as the events in the store show it: for control planes of several processes.

An event is written in the commit of its change, so whoever reads it can read the change, too. Events are sorted by the
time at which their pass began, and a slow pass commits late. So a follower reads the last seconds again each time, and
its mark names the records that it has had of these. While nothing happens, that is one read of an empty range for each
project.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import islice

from chalicelib.domain import keys
from chalicelib.domain.events import Event
from chalicelib.domain.instants import SECOND, Micros, sortable
from chalicelib.domain.touched import Touched
from chalicelib.engine.ports import Clock
from chalicelib.store.history import events_in
from chalicelib.store.listing import all_of
from chalicelib.store.port import Record, Store

LATE: Micros = 30 * SECOND  # after its events' time, a commit may become visible
MOST = 1_000  # records of events that are read for one answer
_NAME, _NAMED = 8, 40  # characters that name a record in a mark, and how many it names: others are shown again
_SHOWN = ("run", "fleet", "instance", "volume", "gateway")


class EventChanges:
    """`ChangeLog` made of events."""

    exact = False

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock

    def mark(self) -> str:
        return _mark(self._clock.now() - LATE, ())

    def since(self, mark: str, projects: Collection[str]) -> Touched | None:
        text, _, names = mark.partition(".")
        if not (text.isascii() and text.isdecimal()):
            return None
        start = int(text)
        found: list[Record] = []
        for project in sorted(projects):
            listed = all_of(self._store, "main", keys.events_of(project), low=sortable(start))
            found += islice(listed, MOST + 1 - len(found))
        if len(found) > MOST:
            return None
        had = {names[at : at + _NAME] for at in range(0, len(names), _NAME)}
        new = [record for record in found if _name(record) not in had]
        horizon = max(start, self._clock.now() - LATE)
        recent = [record for record in found if keys.event_at(record.key) >= horizon]
        if not new and len(recent) == len(found):
            return Touched(frozenset(), mark)
        units = frozenset(unit for record in new for event in events_in(record) for unit in _units(event))
        return Touched(units, _mark(horizon, recent))


def _mark(start: Micros, had: Sequence[Record]) -> str:
    newest = sorted(had, key=lambda record: record.key.sk)[-_NAMED:]
    return f"{start}.{''.join(map(_name, newest))}" if newest else f"{start}."


def _name(record: Record) -> str:
    """Of a record of events: the end of the id of its first one."""
    return record.key.sk[-_NAME:]


def _units(event: Event) -> set[str]:
    """What an event is about: also the run, fleet or gateway that it happened within."""
    found = {f"{target.type}/{target.id}" for target in event.targets if target.type in _SHOWN}
    if event.run_id:
        found.add(f"run/{event.run_id}")
    if event.fleet_id:
        found.add(f"fleet/{event.fleet_id}")
    return found
