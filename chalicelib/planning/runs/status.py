"""The run's status, as it follows from its replicas: it ends, waits, or has the status of its most advanced job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chalicelib.domain.instants import Micros
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.reasons import RunReason
from chalicelib.domain.runs import RunStatus
from chalicelib.machines.run import RUN, observe
from chalicelib.machines.table import allows
from chalicelib.planning.runs.endings import end_jobs, finish_if_gone
from chalicelib.planning.runs.gang_executions import at_stage
from chalicelib.planning.runs.replicas import Replica, end_text
from chalicelib.planning.runs.run_pass import RunPass


def pause(this: RunPass, parts: Sequence[Replica]) -> None:
    """Pause a run that has only waiting replicas left."""
    resume_at, first = min((part.waiting, part.num) for part in parts if part.waiting is not None)
    failed = next(part for part in parts if part.num == first).failures[0]
    suspend(this, resume_at, f"will be retried: {end_text(failed)}")


def suspend(this: RunPass, resume_at: Micros | None, message: str) -> None:
    """Have a run wait of which nothing runs. It gives up its fleet: another may be better next time."""
    waits: dict[str, Any] = {"resume_at": resume_at, "message": message, "fleet_id": None, "fleet_name": None}
    if this.run.status != RunStatus.pending:
        this.run = this.draft.move_run(this.run, "resubmit_later", **waits)
    elif (after := this.run.with_(**waits)) != this.run:
        this.run = after
        this.draft.save(after)


def observe_jobs(this: RunPass, parts: Sequence[Replica], first: str = "") -> None:
    """Set the run's status to that of its most advanced job; nodes that are done count. `first`: a message that takes
    precedence over all others."""
    waiting = [part for part in parts if part.waiting is not None]
    live = [job for part in parts for job in part.live]
    if not live:
        return
    changes: dict[str, Any] = {}
    placed = next((job.assignment for job in live if job.assignment), None)
    if placed and this.run.fleet_id != placed.fleet_id:
        changes.update(fleet_id=placed.fleet_id, fleet_name=placed.fleet_name)
    message = (
        first
        or next((job.message or at_stage(this) for job in live if job.status == JobStatus.submitted), "")
        or next((f"replica {part.num} will be retried: {end_text(part.failures[0])}" for part in waiting), "")
    )
    if message != this.run.message:
        changes["message"] = message
    placed_again = {part.num for part in parts if part.retry and any(_placed(job) for job in part.live)}
    if placed_again:
        changes["retries"] = tuple(retry for retry in this.run.retries if retry.replica not in placed_again)
    event = observe(job.status for part in parts if part.live for job in part.jobs)
    if changes or RUN.table[this.run.status][event] != this.run.status:
        this.run = this.draft.move_run(this.run, event, **changes)
        this.draft.save(this.run)


def _placed(job: Job) -> bool:
    return job.status != JobStatus.submitted and (job.had_machine or job.assignment is None)


def end_run(this: RunPass, reason: RunReason, message: str) -> None:
    if not allows(RUN, this.run.status, "end"):
        return
    this.run = this.draft.move_run(this.run, "end", reason=reason, message=message, resume_at=None, retries=())
    end_jobs(this)
    for job in this.latest():
        finish_if_gone(this, job)
