"""What follows for a run from its replicas: it ends, waits, or has the status of its most advanced job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chalicelib.domain.instants import Micros
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.reasons import RunReason
from chalicelib.domain.runs import RunStatus
from chalicelib.machines.run import RUN, observe
from chalicelib.machines.table import allows
from chalicelib.planning.runs.endings import bury, end_jobs
from chalicelib.planning.runs.gang_start import at_stage
from chalicelib.planning.runs.replicas import Replica, why
from chalicelib.planning.runs.run_pass import RunLook


def pause(look: RunLook, parts: Sequence[Replica]) -> None:
    """Only waiting replicas are left."""
    resume_at, first = min((part.waiting, part.num) for part in parts if part.waiting is not None)
    failed = next(part for part in parts if part.num == first).failures[0]
    rest(look, resume_at, f"will be retried: {why(failed)}")


def rest(look: RunLook, resume_at: Micros | None, message: str) -> None:
    """Nothing of it runs, so the run gives up its fleet: another may be better next time."""
    waits: dict[str, Any] = {"resume_at": resume_at, "message": message, "fleet_id": None, "fleet_name": None}
    if look.run.status != RunStatus.pending:
        look.run = look.draft.move_run(look.run, "resubmit_later", **waits)
    elif (after := look.run.with_(**waits)) != look.run:
        look.run = after
        look.draft.save(after)


def observe_jobs(look: RunLook, parts: Sequence[Replica], first: str = "") -> None:
    """The run's status is that of its most advanced job, nodes that are done already included. `first`: what there is
    to say before anything else."""
    waiting = [part for part in parts if part.waiting is not None]
    live = [job for part in parts for job in part.live]
    if not live:
        return
    changes: dict[str, Any] = {}
    placed = next((job.assignment for job in live if job.assignment), None)
    if placed and look.run.fleet_id != placed.fleet_id:
        changes.update(fleet_id=placed.fleet_id, fleet_name=placed.fleet_name)
    message = (
        first
        or next((job.message or at_stage(look) for job in live if job.status == JobStatus.submitted), "")
        or next((f"replica {part.num} will be retried: {why(part.failures[0])}" for part in waiting), "")
    )
    if message != look.run.message:
        changes["message"] = message
    placed_again = {part.num for part in parts if part.retry and any(_placed(job) for job in part.live)}
    if placed_again:
        changes["retries"] = tuple(retry for retry in look.run.retries if retry.replica not in placed_again)
    event = observe(job.status for part in parts if part.live for job in part.jobs)
    if changes or RUN.table[look.run.status][event] != look.run.status:
        look.run = look.draft.move_run(look.run, event, **changes)
        look.draft.save(look.run)


def _placed(job: Job) -> bool:
    return job.status != JobStatus.submitted


def end_run(look: RunLook, reason: RunReason, message: str) -> None:
    if not allows(RUN, look.run.status, "end"):
        return
    look.run = look.draft.move_run(look.run, "end", reason=reason, message=message, resume_at=None, retries=())
    end_jobs(look)
    for job in look.latest():
        bury(look, job)
