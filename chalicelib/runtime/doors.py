"""The embedded server's door to services: what it knows comes from the store, and what it saw goes there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from chalicelib.domain.instants import Micros
from chalicelib.domain.services import SERVER, Traffic
from chalicelib.domain.serving import Served
from chalicelib.runtime.relays import Relays
from chalicelib.serving.door import Door, Settings
from chalicelib.store.port import Change, Put
from chalicelib.usecases import serving, traffic
from chalicelib.usecases.context import Plane

RUN = "run/"
_DRAINING = b'"draining_at":'  # in the record of a job: unset fields aren't written


class StoredServices:
    """`Services`, `Rights` and `Report` of a door."""

    def __init__(self, plane: Callable[[], Plane]) -> None:
        self._plane = plane

    def named(self, project: str, run: str) -> Served | None:
        return serving.named(self._plane(), project, run)

    def of(self, run_id: str) -> Served | None:
        return serving.served(self._plane(), run_id)

    def with_models(self, project: str) -> Sequence[Served]:
        return serving.with_models(self._plane(), project)

    def member(self, token: str, project: str) -> bool:
        return serving.member(self._plane(), token, project)

    def report(self, told: Sequence[Traffic]) -> None:
        traffic.report(self._plane(), SERVER, told)


def door_of(plane: Callable[[], Plane], now: Callable[[], Micros], relays: Relays, settings: Settings) -> Door:
    stored = StoredServices(plane)
    return Door(stored, stored, stored.report, now, settings=settings, way=relays.way, gone=relays.forget)


def tell(door: Door, changes: Sequence[Change]) -> None:
    """A commit: what the door knew of these runs is out of date. One with a job that drains is looked at, so that a
    replica without requests is let go at once."""
    runs = {change.key.pk.removeprefix(RUN) for change in changes if change.key.pk.startswith(RUN)}
    if runs:
        door.changed(runs, look={change.key.pk.removeprefix(RUN) for change in changes if _drains(change)})


def _drains(change: Change) -> bool:
    return isinstance(change, Put) and change.key.pk.startswith(RUN) and _DRAINING in change.record.body
