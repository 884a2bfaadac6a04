"""A deleted project's decisions: whatever still runs in it is stopped, and its fleets, volumes and gateways are
deleted.

Deleting a project in use is refused, so there is rarely anything to do: stop a run that was submitted at the same
moment, or finish a deletion that crashed before it could be undone. Machines that nobody can see must not keep running.
The commit of a submission doesn't check that its project still exists, because every submission would pay for that. The
submission checks afterwards and stops its run, but it may crash before. So passes go on here as long as a call that
has read the project may be under way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from chalicelib.domain.closings import Closing
from chalicelib.domain.fleets import Fleet
from chalicelib.domain.gateways import Gateway
from chalicelib.domain.instants import MINUTE, Micros
from chalicelib.domain.noun import Noun
from chalicelib.domain.reasons import RunReason
from chalicelib.domain.runs import Run
from chalicelib.domain.volumes import Volume
from chalicelib.planning.kernel.plan import Plan, Step
from chalicelib.planning.kernel.requests import delete_fleet, delete_gateway, delete_volume, stop_run
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.kernel.transitions import Draft

CHECK_CLOSING_EVERY: Micros = MINUTE  # while something is left, or may still be added
CALLS_LAST: Micros = 5 * MINUTE  # longer than any call


@dataclass(frozen=True)
class ClosingSnapshot:
    now: Micros
    closing: Closing
    runs: tuple[Run, ...]  # unfinished ones
    fleets: tuple[Fleet, ...]  # undeleted ones, like the following
    volumes: tuple[Volume, ...] = ()
    gateways: tuple[Gateway, ...] = ()

    @property
    def unit(self) -> str:
        return f"closing/{self.closing.id}"

    def nouns(self) -> Iterator[Noun]:
        yield self.closing
        yield from self.runs
        yield from self.fleets
        yield from self.volumes
        yield from self.gateways

    def views(self) -> tuple[FleetView, ...]:
        return ()


def decide_closing(snapshot: ClosingSnapshot) -> Plan:
    """End what is left of the project, until nothing is and nothing can be added."""
    closing, now = snapshot.closing, snapshot.now
    steps: list[Step] = []
    for run in snapshot.runs:
        steps += stop_run(run, RunReason.stopped_by_user, Draft(now), "its project was deleted").steps
    for fleet in snapshot.fleets:
        steps += delete_fleet(fleet, Draft(now), "its project was deleted").steps
    for volume in snapshot.volumes:
        steps += delete_volume(volume, Draft(now), "its project was deleted").steps
    for gateway in snapshot.gateways:
        steps += delete_gateway(gateway, Draft(now), "its project was deleted").steps
    may_come = now < closing.began_at + CALLS_LAST
    left = may_come or snapshot.runs or snapshot.fleets or snapshot.volumes or snapshot.gateways
    due = now + CHECK_CLOSING_EVERY if left else None
    if due is None or closing.due_at is None or closing.due_at <= now:
        steps.append(Step((closing.with_(due_at=due),)))
    return Plan(tuple(steps), next_wake=due)
