"""The start of a task's nodes as a workflow, whose record is the gang's.

Its stages are decisions over what is stored (`gathering`, `ordering`, `releasing`), so how far a start has come is read
from the gang and never stored a second time. One attempt lasts from the first place that a gang claims until it is
released or undone; where there are state machines, each has an execution. A state takes the looks that its stage needs,
and leaves its token with the gang if that isn't enough; the look that finds the stage over sends the callback. The
deadlines are the gang's own: a state's time-out is only for the case that nobody keeps them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from chalicelib.domain.gangs import Gang, GangStatus, gang_lead
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import MINUTE
from chalicelib.domain.jobs import JobStatus
from chalicelib.domain.reasons import JobReason
from chalicelib.machines.gang import LONGEST_WAIT, TO_SEAL
from chalicelib.machines.workflow import COMES_WITHIN
from chalicelib.planning.ends import bury, end
from chalicelib.planning.executions import NOT_YET, StartExecution, StepAnswer, StepCall, answer_execution, refusal
from chalicelib.planning.look import RunLook
from chalicelib.planning.parts import in_parts
from chalicelib.planning.plan import Plan
from chalicelib.planning.snapshots import RunSnapshot
from chalicelib.planning.transitions import Draft
from chalicelib.planning.workflows import Definition, WorkflowStep

_TRIES = 20  # looks that fail, more than an hour of them: the plane's failures aren't the start's


def _stage(name: str, says: str, patience: int, *, undo: bool = False) -> WorkflowStep:
    return WorkflowStep(name, says, timeout=MINUTE, attempts=_TRIES, patience=patience, undo=undo)


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
    """How many stages are over."""
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
    """What a start is at; None if it hasn't begun, or is over."""
    at = reached(gang, instances)
    going = gang.holds and gang.status is not GangStatus.undone
    return START_CLUSTER.steps[at] if going and at < len(START_CLUSTER.steps) else None


def at_stage(look: RunLook) -> str:
    """Which stage a start is at, for people; empty if no node waits for the others any more."""
    for gang in look.snapshot.gangs:
        at = stage(gang, look.instances) if gang.status is not GangStatus.starting else None
        if at is not None:
            number, of = START_CLUSTER.index(at.name) + 1, len(START_CLUSTER.steps)
            return f"starting its nodes together, stage {number} of {of}: {at.says}"
    return ""


def begun(draft: Draft, gang: Gang) -> None:
    """A gang claims its first place: have an execution of its own follow it."""
    until = draft.now + COMES_WITHIN
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

    def gang(self, snapshot: RunSnapshot) -> Gang | None:
        """Its gang, unless that is over or at another attempt."""
        return next((gang for gang in snapshot.gangs if GangStart.of(gang) == self), None)


def start_answered(snapshot: RunSnapshot, start: GangStart, call: StepCall) -> StepAnswer:
    """What the gang says about that stage."""
    gang = start.gang(snapshot)
    return _ended() if gang is None and not call.undo else _answered(gang, snapshot.instances, call)


def _ended(message: str = "") -> StepAnswer:
    return refusal(None, message or "this attempt to start the nodes has ended")


def _answered(gang: Gang | None, instances: Mapping[str, Instance], call: StepCall) -> StepAnswer:
    over = StepAnswer({}, settled=True)
    if call.undo:
        held = gang is not None and gang.holds
        return StepAnswer(error=NOT_YET, message="its places are being given back") if held else over
    assert gang is not None
    if gang.status is GangStatus.undone:
        return _ended(gang.message)
    if reached(gang, instances) > START_CLUSTER.index(call.step):
        return over
    return StepAnswer() if call.token and gang.token == call.token else StepAnswer(error=NOT_YET)


def await_stage(snapshot: RunSnapshot, start: GangStart, call: StepCall) -> Plan:
    """Keep the token of a state that has to wait."""
    gang = start.gang(snapshot)
    if gang is None or not call.token or start_answered(snapshot, start, call).settled:
        return Plan()
    draft = Draft(snapshot.now)
    draft.save(gang.with_(token=call.token, awaits=call.step))
    return draft.plan()


def tell_executions(look: RunLook) -> None:
    """Send the callbacks of stages that are over, and of attempts."""
    for gang in look.snapshot.gangs:
        if gang.token:
            answer = _answered(gang, look.instances, StepCall(gang.awaits))
            if answer.settled:
                about = gang.unit, "", look.now + COMES_WITHIN, gang.project_id
                look.draft.act(answer_execution(about, gang.token, answer))
                look.draft.save(gang.with_(token="", awaits=""))


def give_up(snapshot: RunSnapshot, start: GangStart, call: StepCall) -> Plan:
    """End the attempt, as any failure of a node does, because its execution has given it up."""
    gang, look = start.gang(snapshot), RunLook(snapshot)
    lead = look.jobs.get(gang_lead(gang)) if gang is not None and gang.holds else None
    if gang is None or lead is None or lead.finished or lead.status is JobStatus.terminating:
        return Plan()
    at = stage(gang, look.instances)
    if at is None:
        return Plan()
    end(look, lead, JobReason.waiting_instance_limit_exceeded, f"its nodes couldn't start together: {at.says}")
    bury(look, look.jobs[lead.id])
    return Plan(tuple(in_parts(look.draft.step(), snapshot.run)))
