"""Connects the doors to services with the store: the embedded server's own door, which reads services and writes
traffic, and gateways, which wait for changes in a long poll."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from chalicelib.domain.instants import Micros
from chalicelib.domain.keys import STATUS
from chalicelib.domain.services import SERVER, Traffic
from chalicelib.domain.serving import CallerVerdict, Served
from chalicelib.runtime.replica_relays import ReplicaRelays
from chalicelib.serving.door import Door, DoorSettings
from chalicelib.store import nouns
from chalicelib.store.listing import every
from chalicelib.store.port import Change, Delete, Put
from chalicelib.usecases.agents.gateway_sync import GATEWAYS
from chalicelib.usecases.context import Plane
from chalicelib.usecases.services import doors, traffic

RUN = "run/"
OF_GATEWAYS = ("gateway/", "certificate/")
_GATEWAY = b'"gateway_id":'  # in the record of a run
_DRAINING = b'"draining_at":'  # in the record of a job: unset fields aren't written


class StoredServices:
    """`Services`, `MemberRights` and `Report` of a door."""

    def __init__(self, plane: Callable[[], Plane]) -> None:
        self._plane = plane

    def named(self, project: str, run: str) -> Served | None:
        return doors.named(self._plane(), project, run)

    def elsewhere(self, project: str, run: str) -> str:
        return doors.elsewhere(self._plane(), project, run)

    def of(self, run_id: str) -> Served | None:
        return doors.served(self._plane(), run_id)

    def with_models(self, project: str) -> Sequence[Served]:
        return doors.with_models(self._plane(), project)

    def member(self, token: str, project: str, run: str) -> CallerVerdict:
        return doors.member(self._plane(), token, project, run)

    def report(self, counts: Sequence[Traffic]) -> None:
        traffic.report(self._plane(), SERVER, counts)


def door_of(
    plane: Callable[[], Plane], now: Callable[[], Micros], relays: ReplicaRelays, settings: DoorSettings
) -> Door:
    stored = StoredServices(plane)
    return Door(
        stored,
        stored,
        stored.report,
        now,
        settings=settings,
        socket_path=relays.socket_path,
        connected=relays.connected,
        gone=relays.forget,
    )


class GatewayNews:
    """Ends the gateways' long polls after commits that concern them: those of services with a gateway, and of gateways
    themselves. May be called from any thread."""

    def __init__(self, ring: Callable[[Iterable[str]], None]) -> None:
        self._ring = ring
        self._runs: set[str] = set()  # that have a gateway, or had one

    def begin(self, plane: Plane) -> None:
        """Read the services that were submitted before this process started."""
        for record in list(every(plane.store, "projects", "name/")):
            live = plane.read.live_runs(nouns.pointed(record))
            self._runs.update(run.id for run in live if run.gateway_id is not None)

    def committed(self, changes: Sequence[Change]) -> None:
        self._runs.update(run for change in changes if (run := _through_gateway(change)))
        if any(self._matters(change.key.pk) for change in changes):
            self._ring((GATEWAYS,))
        for change in changes:
            if isinstance(change, Delete) and change.key.sk == STATUS:
                self._runs.discard(change.key.pk.removeprefix(RUN))

    def _matters(self, place: str) -> bool:
        return place.startswith(OF_GATEWAYS) or (place.startswith(RUN) and place.removeprefix(RUN) in self._runs)


def _through_gateway(change: Change) -> str:
    """The id of the run that this change writes, if it has a gateway."""
    if not isinstance(change, Put) or not change.key.pk.startswith(RUN) or change.key.sk != STATUS:
        return ""
    return change.key.pk.removeprefix(RUN) if _GATEWAY in change.record.body else ""


def refresh_door(door: Door, changes: Sequence[Change]) -> None:
    """Tell the door about a commit: its cache of these runs is out of date. A run with a draining job is read again, so
    that a replica without requests is stopped at once."""
    runs = {change.key.pk.removeprefix(RUN) for change in changes if change.key.pk.startswith(RUN)}
    if runs:
        door.changed(runs, refresh={change.key.pk.removeprefix(RUN) for change in changes if _drains(change)})


def _drains(change: Change) -> bool:
    return isinstance(change, Put) and change.key.pk.startswith(RUN) and _DRAINING in change.record.body
