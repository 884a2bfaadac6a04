"""A run's decisions: the status that follows from its jobs, and its end.

A pass works down one list: jobs that a time-out or a lost machine ends; jobs that the user or the run's own end stops;
jobs that become final; what all this means for each replica and for the run. Everything decided in one look is one
step, so nobody sees a final job that still holds its place, or a finished run with a live job.
"""

from __future__ import annotations

from dataclasses import replace

from chalicelib.domain.instants import Micros
from chalicelib.domain.reasons import RunReason
from chalicelib.domain.runs import RunStatus
from chalicelib.machines.run import BACKOFF, LOOK, SETTLED
from chalicelib.planning.kernel.plan import Plan
from chalicelib.planning.kernel.step_parts import in_parts
from chalicelib.planning.runs.endings import bury, end_jobs
from chalicelib.planning.runs.gang_start import tell_executions
from chalicelib.planning.runs.releasing import await_nodes, holds, settle
from chalicelib.planning.runs.replicas import Replica, complete, refusal, replicas, retire, submit_again, why
from chalicelib.planning.runs.run_pass import RunLook
from chalicelib.planning.runs.schedule import start, wait_again
from chalicelib.planning.runs.service_run import tend
from chalicelib.planning.runs.snapshot import RunSnapshot
from chalicelib.planning.runs.status import end_run, observe_jobs, pause
from chalicelib.planning.runs.timeouts import weigh


def decide_run(snapshot: RunSnapshot) -> Plan:
    """The next step of one run. Its gangs come first, alone: what follows is decided once that is committed."""
    if snapshot.run.finished:
        return Plan()
    look = RunLook(snapshot)
    if steps := settle(look):
        return Plan(tuple(steps), next_wake=snapshot.now)
    tell_executions(look)
    complete(look)
    _queue(look)
    await_nodes(look)
    for job in look.latest():
        weigh(look, job)
    if look.run.status == RunStatus.terminating:
        end_jobs(look)
    for job in look.latest():
        bury(look, job)
    _judge(look)
    due = _schedule(look)
    return Plan(tuple(in_parts(look.draft.step(), snapshot.run)) if not look.draft.empty else (), next_wake=due)


def _queue(look: RunLook) -> None:
    """Jobs that nobody has looked at since their run was submitted, because the word of it was lost."""
    if look.run.due_at is None or look.now < look.run.due_at:
        return
    for job in look.latest():
        if job.queued and job.due_at is None:
            look.keep(job.with_(due_at=look.now))
            look.draft.wake(f"queue/{look.run.project_id}")


def _judge(look: RunLook) -> None:
    service = bool(look.run.scales)
    if look.run.status == RunStatus.pending and (not service or look.run.next_start is not None):
        _resume(look)
    elif look.run.status != RunStatus.terminating:
        tend(look) if service else _fold(look)
    if look.run.status == RunStatus.terminating and all(job.finished for job in look.jobs.values()):
        if holds(look):
            look.deadlines.append(look.now)
            look.draft.wake(look.snapshot.unit)
            return
        if not wait_again(look):
            look.run = look.draft.finish_run(look.run.with_(retries=()))


def _resume(look: RunLook) -> None:
    """Resume a paused run when its first waiting replica is due, while others may keep waiting, or by its schedule."""
    if look.run.resume_at is None or look.now < look.run.resume_at:
        return
    if look.run.next_start is not None:
        start(look)
        return
    look.run = look.draft.move_run(look.run, "resubmit", note="retrying", resume_at=None)
    _submit_due(look)


def _fold(look: RunLook) -> None:
    """What follows for the run: its end, a retry of some replicas, or a status."""
    parts = replicas(look)
    failing = [part for part in parts if part.failures and part.waiting is None]
    verdicts = [(refusal(look, part, job), job) for part in failing for job in part.failures]
    for reason, words in ((RunReason.job_failed, ""), (RunReason.retry_limit_exceeded, "retries ended: ")):
        worst = next((job for verdict, job in verdicts if verdict is reason), None)
        if worst is not None:
            end_run(look, reason, words + why(worst))
            return
    if not parts:
        return
    if all(_done(look, part) for part in parts):
        end_run(look, RunReason.all_jobs_done, "")
        return
    _submit_due(look)
    for part in failing:
        retire(look, part)
    parts = replicas(look)
    if all(part.done or part.waiting is not None for part in parts):
        pause(look, parts)
    else:
        observe_jobs(look, parts)


def _done(look: RunLook, part: Replica) -> bool:
    """With `stop_criteria: master-done` the first node decides for all."""
    if look.snapshot.run_spec.configuration.stop_criteria == "master-done":
        return replace(part, jobs=part.jobs[:1]).done and not part.failures
    return part.done


def _submit_due(look: RunLook) -> None:
    for part in replicas(look):
        if part.waiting is not None and part.waiting <= look.now:
            submit_again(look, part)


def _schedule(look: RunLook) -> Micros | None:
    """Clear the due times of jobs (the run's own covers them) and move the run's on. One that comes too early stays,
    even if the run changes: to look once more costs less than to move it each time."""
    for job in list(look.jobs.values()):
        if job.due_at is not None and job.due_at <= look.now and not job.queued:
            look.keep(job.with_(due_at=None))
    if look.run.finished:
        return None
    patience = max(LOOK, BACKOFF[-1]) if look.run.status == RunStatus.pending else LOOK
    asleep = look.run.status == RunStatus.pending and look.run.resume_at is None
    if asleep or (look.run.status == RunStatus.running and all(job.settled for job in look.jobs.values())):
        patience = SETTLED
    if look.run.status != RunStatus.terminating:
        waits = (look.run.resume_at, *(retry.resume_at for retry in look.run.retries))
        look.deadlines += [at for at in waits if at is not None]
    if look.run.next_start is not None:  # nothing can happen before: whoever stops the run sets another time
        patience = look.run.next_start - look.now
    wanted = max(min([*look.deadlines, look.now + patience]), look.now + 1)
    current = look.run.due_at
    if current is None or current <= look.now or current > wanted:
        look.run = look.run.with_(due_at=wanted)
        look.draft.save(look.run)
    return wanted
