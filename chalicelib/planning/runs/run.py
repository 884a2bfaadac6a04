"""A run's decisions: the status that follows from its jobs, and its end.

A pass handles, in this order: jobs that a time-out or a lost machine ends; jobs that the user or the run's own end
stops; jobs that become final; and what follows for each replica and for the run. Everything decided in one pass is one
step, so nobody sees a final job that still holds its place, or a finished run with a live job.
"""

from __future__ import annotations

from dataclasses import replace

from chalicelib.domain.instants import Micros
from chalicelib.domain.reasons import RunReason
from chalicelib.domain.runs import RunStatus
from chalicelib.machines.run import BACKOFF, CHECK_RUN_EVERY, SETTLED
from chalicelib.planning.kernel.plan import Plan
from chalicelib.planning.kernel.step_parts import in_parts
from chalicelib.planning.runs.endings import end_jobs, finish_if_gone
from chalicelib.planning.runs.gang_executions import answer_executions
from chalicelib.planning.runs.gangs import await_nodes, holds, settle
from chalicelib.planning.runs.replicas import Replica, complete, end_text, refusal, replicas, resubmit, retire
from chalicelib.planning.runs.run_pass import RunPass
from chalicelib.planning.runs.schedule import reschedule, start
from chalicelib.planning.runs.service_run import tend
from chalicelib.planning.runs.snapshot import RunSnapshot
from chalicelib.planning.runs.status import end_run, observe_jobs, pause
from chalicelib.planning.runs.timeouts import check_job


def decide_run(snapshot: RunSnapshot) -> Plan:
    """The next step of one run. Steps of its gangs come first and alone; everything else is decided after their
    commit."""
    if snapshot.run.finished:
        return Plan()
    this = RunPass(snapshot)
    if steps := settle(this):
        return Plan(tuple(steps), next_wake=snapshot.now)
    answer_executions(this)
    complete(this)
    _queue(this)
    await_nodes(this)
    for job in this.latest():
        check_job(this, job)
    if this.run.status == RunStatus.terminating:
        end_jobs(this)
    for job in this.latest():
        finish_if_gone(this, job)
    _judge(this)
    due = _schedule(this)
    return Plan(tuple(in_parts(this.draft.step(), snapshot.run)) if not this.draft.empty else (), next_wake=due)


def _queue(this: RunPass) -> None:
    """Queue jobs that no pass has seen since their run was submitted, because the wake-up was lost."""
    if this.run.due_at is None or this.now < this.run.due_at:
        return
    for job in this.latest():
        if job.queued and job.due_at is None:
            this.update_job(job.with_(due_at=this.now))
            this.draft.wake(f"queue/{this.run.project_id}")


def _judge(this: RunPass) -> None:
    service = bool(this.run.scales)
    if this.run.status == RunStatus.pending and (not service or this.run.next_start is not None):
        _resume(this)
    elif this.run.status != RunStatus.terminating:
        tend(this) if service else _fold(this)
    if this.run.status == RunStatus.terminating and all(job.finished for job in this.jobs.values()):
        if holds(this):
            this.check_by(this.now)
            this.draft.wake(this.snapshot.unit)
            return
        if not reschedule(this):
            this.run = this.draft.finish_run(this.run.with_(retries=()))


def _resume(this: RunPass) -> None:
    """Resume a paused run at its scheduled start, or when its first waiting replica is due, while others may keep
    waiting."""
    if this.run.resume_at is None or this.now < this.run.resume_at:
        return
    if this.run.next_start is not None:
        start(this)
        return
    this.run = this.draft.move_run(this.run, "resubmit", note="retrying", resume_at=None)
    _submit_due(this)


def _fold(this: RunPass) -> None:
    """Derive what follows for the run from its replicas: its end, a retry of some of them, or a status."""
    parts = replicas(this)
    failing = [part for part in parts if part.failures and part.waiting is None]
    verdicts = [(refusal(this, part, job), job) for part in failing for job in part.failures]
    for reason, prefix in ((RunReason.job_failed, ""), (RunReason.retry_limit_exceeded, "retries ended: ")):
        worst = next((job for verdict, job in verdicts if verdict is reason), None)
        if worst is not None:
            end_run(this, reason, prefix + end_text(worst))
            return
    if not parts:
        return
    if all(_done(this, part) for part in parts):
        end_run(this, RunReason.all_jobs_done, "")
        return
    _submit_due(this)
    for part in failing:
        retire(this, part)
    parts = replicas(this)
    if all(part.done or part.waiting is not None for part in parts):
        pause(this, parts)
    else:
        observe_jobs(this, parts)


def _done(this: RunPass, part: Replica) -> bool:
    """With `stop_criteria: master-done` the first node decides for all."""
    if this.snapshot.run_spec.configuration.stop_criteria == "master-done":
        return replace(part, jobs=part.jobs[:1]).done and not part.failures
    return part.done


def _submit_due(this: RunPass) -> None:
    for part in replicas(this):
        if part.waiting is not None and part.waiting <= this.now:
            resubmit(this, part)


def _schedule(this: RunPass) -> Micros | None:
    """Clear the due times of jobs, which the run's covers, and set the run's. An earlier one stays, even if the run
    changes: an additional pass costs less than moving it each time."""
    for job in list(this.jobs.values()):
        if job.due_at is not None and job.due_at <= this.now and not job.queued:
            this.update_job(job.with_(due_at=None))
    if this.run.finished:
        return None
    patience = max(CHECK_RUN_EVERY, BACKOFF[-1]) if this.run.status == RunStatus.pending else CHECK_RUN_EVERY
    asleep = this.run.status == RunStatus.pending and this.run.resume_at is None
    if asleep or (this.run.status == RunStatus.running and all(job.settled for job in this.jobs.values())):
        patience = SETTLED
    if this.run.status != RunStatus.terminating:
        for resume_at in (this.run.resume_at, *(retry.resume_at for retry in this.run.retries)):
            this.check_by(resume_at)
    if this.run.next_start is not None:  # nothing can happen before; a stop of the run sets another time
        patience = this.run.next_start - this.now
    wanted = max(min([*this.deadlines, this.now + patience]), this.now + 1)
    current = this.run.due_at
    if current is None or current <= this.now or current > wanted:
        this.run = this.run.with_(due_at=wanted)
        this.draft.save(this.run)
    return wanted
