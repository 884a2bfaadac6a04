"""The start of a task's nodes as a workflow, whose record is the gang.

Its stages are decided from what is stored (`gang_placement`, `gang_purchases`, `runs.gangs`), so the progress of a
start is read from the gang and not stored again. An attempt lasts from the first place that a gang claims until the
gang is released or undone; where there are state machines, each attempt has an execution. A state runs the passes that
its stage needs and, if that isn't enough, stores its token in the gang; the pass that finds the stage over sends the
callback. The deadlines are the gang's own; a state's time-out is only a safeguard.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from chalicelib.domain.gangs import Gang, GangStatus
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import MINUTE
from chalicelib.machines.gang import LONGEST_WAIT, TO_SEAL
from chalicelib.machines.workflow import CALL_DUE_WITHIN
from chalicelib.planning.kernel.executions import StartExecution
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.kernel.workflows import Definition, WorkflowStep

_TRIES = 20  # failing passes, for more than an hour: failures of the control plane shouldn't fail the start


def _stage(name: str, description: str, patience: int, *, undo: bool = False) -> WorkflowStep:
    return WorkflowStep(name, description, timeout=MINUTE, attempts=_TRIES, patience=patience, undo=undo)


START_CLUSTER = Definition(
    "start_cluster",
    (
        _stage("reserve", "reserve the first node's place", TO_SEAL, undo=True),
        _stage("master", "know where the first node's machine is", LONGEST_WAIT),
        _stage("rest", "reserve places beside it for the other nodes", LONGEST_WAIT),
        _stage("barrier", "wait until each node has an address", LONGEST_WAIT),
        _stage("publish", "tell every node the addresses of all", MINUTE),
        _stage("release", "let the jobs go in `startup_order`", LONGEST_WAIT),
    ),
)


def reached(gang: Gang, instances: Mapping[str, Instance]) -> int:
    """The number of stages that are over."""
    if gang.status is GangStatus.released:
        return 6
    if gang.status is GangStatus.starting:
        return 5
    if gang.status is GangStatus.sealed:
        return 4 if gang.addresses else 3
    first = instances.get(gang.places[0]) if gang.places and gang.status is GangStatus.gathering else None
    if first is None:
        return 0
    return 1 if first.status is InstanceStatus.pending else 2


def stage(gang: Gang, instances: Mapping[str, Instance]) -> WorkflowStep | None:
    """The current stage of a start; None if it hasn't begun, or is over."""
    at = reached(gang, instances)
    going = gang.holds and gang.status is not GangStatus.undone
    return START_CLUSTER.steps[at] if going and at < len(START_CLUSTER.steps) else None


def begin_start(draft: Draft, gang: Gang) -> None:
    """Start an execution for an attempt of a gang, which claims its first place."""
    until = draft.now + CALL_DUE_WITHIN
    draft.act(StartExecution(gang.unit, "", until, gang.project_id, START_CLUSTER.name, str(GangStart.of(gang))))


@dataclass(frozen=True)
class GangStart:
    """One attempt of one gang; as text, the name of its execution."""

    run_id: str
    replica_num: int
    submission_num: int
    attempt: int

    @classmethod
    def of(cls, gang: Gang) -> Self:
        return cls(gang.run_id, gang.replica_num, gang.submission_num, gang.attempt)

    @classmethod
    def named(cls, name: str) -> Self:
        run_id, *numbers = name.rsplit("-", 3)
        return cls(run_id, *map(int, numbers))

    def __str__(self) -> str:
        return f"{self.run_id}-{self.replica_num}-{self.submission_num}-{self.attempt}"
