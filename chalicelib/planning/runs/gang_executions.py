"""Executions that start gangs: the answers to their requests, and the end of an attempt that one gives up."""

from __future__ import annotations

from collections.abc import Mapping

from chalicelib.domain.gangs import Gang, GangStatus, gang_lead
from chalicelib.domain.instances import Instance
from chalicelib.domain.jobs import JobStatus
from chalicelib.domain.reasons import JobReason
from chalicelib.machines.workflow import CALL_DUE_WITHIN
from chalicelib.planning.kernel.executions import NOT_YET, StepAnswer, StepCall, answer_execution, refusal
from chalicelib.planning.kernel.plan import Plan
from chalicelib.planning.kernel.step_parts import in_parts
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.placing.gang_workflow import START_CLUSTER, GangStart, reached, stage
from chalicelib.planning.runs.endings import end, finish_if_gone
from chalicelib.planning.runs.run_pass import RunPass
from chalicelib.planning.runs.snapshot import RunSnapshot


def at_stage(this: RunPass) -> str:
    """The stage that a start has reached, for people; empty if no node waits for the others any more."""
    for gang in this.snapshot.gangs:
        at = stage(gang, this.instances) if gang.status is not GangStatus.starting else None
        if at is not None:
            number, of = START_CLUSTER.index(at.name) + 1, len(START_CLUSTER.steps)
            return f"starting its nodes together, stage {number} of {of}: {at.description}"
    return ""


def gang_of(snapshot: RunSnapshot, start: GangStart) -> Gang | None:
    """The gang of this attempt; None if the gang is gone or at another attempt."""
    return next((gang for gang in snapshot.gangs if GangStart.of(gang) == start), None)


def start_answer(snapshot: RunSnapshot, start: GangStart, call: StepCall) -> StepAnswer:
    """The answer to a state's request, according to the gang's record."""
    gang = gang_of(snapshot, start)
    return _ended() if gang is None and not call.undo else _stage_answer(gang, snapshot.instances, call)


def _ended(message: str = "") -> StepAnswer:
    return refusal(None, message or "this attempt to start the nodes has ended")


def _stage_answer(gang: Gang | None, instances: Mapping[str, Instance], call: StepCall) -> StepAnswer:
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
    """Store the token of a state that has to wait."""
    gang = gang_of(snapshot, start)
    if gang is None or not call.token or start_answer(snapshot, start, call).settled:
        return Plan()
    draft = Draft(snapshot.now)
    draft.save(gang.with_(token=call.token, awaits=call.step))
    return draft.plan()


def answer_executions(this: RunPass) -> None:
    """Send the callbacks of stages and attempts that are over."""
    for gang in this.snapshot.gangs:
        if gang.token:
            answer = _stage_answer(gang, this.instances, StepCall(gang.awaits))
            if answer.settled:
                effect_fields = gang.unit, "", this.now + CALL_DUE_WITHIN, gang.project_id
                this.draft.act(answer_execution(effect_fields, gang.token, answer))
                this.draft.save(gang.with_(token="", awaits=""))


def give_up(snapshot: RunSnapshot, start: GangStart, call: StepCall) -> Plan:
    """End an attempt that its execution has given up, as any failure of a node would."""
    gang, this = gang_of(snapshot, start), RunPass(snapshot)
    lead = this.jobs.get(gang_lead(gang)) if gang is not None and gang.holds else None
    if gang is None or lead is None or lead.finished or lead.status is JobStatus.terminating:
        return Plan()
    at = stage(gang, this.instances)
    if at is None:
        return Plan()
    end(this, lead, JobReason.waiting_instance_limit_exceeded, f"its nodes couldn't start together: {at.description}")
    finish_if_gone(this, this.jobs[lead.id])
    return Plan(tuple(in_parts(this.draft.step(), snapshot.run)))
