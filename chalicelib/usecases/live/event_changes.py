"""What was written lately, as the events in the store show it: for control planes of several processes.

An event is written in the commit of its change, so whoever reads it can read the change, too. Events are sorted by the
time at which their pass began, and a slow pass commits late. So a follower reads the last minutes again each time, and
its mark has a digest of each few seconds of these: what has another one now is shown. While nothing happens, that is
one read of an empty range for each project.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from heapq import merge
from itertools import islice

from chalicelib.domain import keys
from chalicelib.domain.events import Event
from chalicelib.domain.instants import SECOND, Micros, sortable
from chalicelib.domain.touched import Touched
from chalicelib.engine.ports import Clock
from chalicelib.store.history import LATE, events_in
from chalicelib.store.listing import all_of
from chalicelib.store.port import Record, Store

SLICE: Micros = 5 * SECOND  # of the time that a digest is for
MOST = 1_000
_DIGEST = 6  # characters
_MARK = re.compile(rf"([0-9]{{1,16}})\.([0-9]{{1,16}})\.((?:[0-9a-f]{{{2 + _DIGEST}}})*)")
_SHOWN = ("run", "fleet", "instance", "volume", "gateway")


class EventChanges:
    """`ChangeLog` made of events. `most`: as many of their records as are read for one answer, the newest."""

    exact = False

    def __init__(self, store: Store, clock: Clock, most: int = MOST) -> None:
        self._store, self._clock, self._most = store, clock, most

    def mark(self) -> str:
        now = self._clock.now()
        return _mark(_slice(now - LATE), now, {})

    def since(self, mark: str, projects: Collection[str]) -> Touched | None:
        """What has been written. In a mark are the first slice, the time at which it was made, and the digests."""
        if (parts := _MARK.fullmatch(mark)) is None:
            return None
        first, made, now = int(parts[1]), int(parts[2]), self._clock.now()
        had = _digests(first, parts[3])
        found = self._newest(projects, first * SLICE)
        slices = defaultdict[int, list[Record]](list)
        for record in found[: self._most]:
            slices[_slice(keys.event_at(record.key))].append(record)
        if len(found) > self._most:
            oldest = _slice(keys.event_at(found[-1].key))
            if oldest >= _slice(made):
                return None  # more than that is new
            slices.pop(oldest, None)  # of which only a part was read
        are = {each: _digest(records) for each, records in slices.items()}
        new = [record for each, records in slices.items() if are[each] != had.get(each) for record in records]
        first = max(first, _slice(now - LATE))
        kept = {each: digest for each, digest in (had | are).items() if each >= first}
        if not new and kept == had:
            return Touched(frozenset(), mark)
        units = frozenset(unit for record in new for event in events_in(record) for unit in _units(event))
        return Touched(units, _mark(first, now, kept))

    def _newest(self, projects: Collection[str], since: Micros) -> list[Record]:
        """Those since then, newest first, and at most one more than are shown."""
        lists = (
            all_of(self._store, "main", keys.events_of(project), low=sortable(since), reverse=True)
            for project in sorted(projects)
        )
        return list(islice(merge(*lists, key=lambda record: keys.event_at(record.key), reverse=True), self._most + 1))


def _slice(at: Micros) -> int:
    return max(0, at) // SLICE


def _mark(first: int, made: Micros, digests: Mapping[int, str]) -> str:
    return f"{first}.{made}.{''.join(f'{each - first:02x}{digests[each]}' for each in sorted(digests))}"


def _digests(first: int, text: str) -> dict[int, str]:
    parts = (text[at : at + 2 + _DIGEST] for at in range(0, len(text), 2 + _DIGEST))
    return {first + int(part[:2], 16): part[2:] for part in parts}


def _digest(records: Iterable[Record]) -> str:
    names = sorted(f"{record.key.pk} {record.key.sk}" for record in records)
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:_DIGEST]


def _units(event: Event) -> set[str]:
    """What an event is about: also the run, fleet or gateway that it happened within."""
    found = {f"{target.type}/{target.id}" for target in event.targets if target.type in _SHOWN}
    if event.run_id:
        found.add(f"run/{event.run_id}")
    if event.fleet_id:
        found.add(f"fleet/{event.fleet_id}")
    return found
