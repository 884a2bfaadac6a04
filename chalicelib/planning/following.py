"""A run that follows its job in one commit.

A run's status is that of its most advanced job (`machines/run.py`). So a job that gets ahead of its run takes it along,
whatever its other jobs do, and nobody sees a job that runs in a run that waits. A run of one job ends with it, unless
something is to come after that. This saves the run's own pass a commit and an event's record each time, which in AWS
are a quarter of what a run costs. That pass is woken as ever: what takes more than one job to know is decided there.
"""

from __future__ import annotations

from collections.abc import Sequence

from chalicelib.domain.job_specs import JobSpec
from chalicelib.domain.jobs import Job
from chalicelib.domain.reasons import RunReason, job_outcome
from chalicelib.domain.runs import Run
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.machines.run import LOOK, RUN, observe
from chalicelib.planning.replicas import why
from chalicelib.planning.schedule import schedule_of
from chalicelib.planning.transitions import Draft

_WAY = ("submitted", "provisioning", "running")


def follow(draft: Draft, run: Run, job: Job) -> Run:
    """The run, as far as this job, which has its place, unless it is as far already."""
    if run.status not in _WAY:
        return run
    event = observe([job.status])
    if _WAY.index(RUN.table[run.status][event]) <= _WAY.index(run.status):
        return run
    placed = job.assignment
    fleet = {} if placed is None else {"fleet_id": placed.fleet_id, "fleet_name": placed.fleet_name}
    return draft.move_run(
        run,
        event,
        **({} if run.fleet_id else fleet),
        message="" if run.status == "submitted" else run.message,
        retries=tuple(retry for retry in run.retries if retry.replica != job.replica_num),
        due_at=run.due_at if run.due_at is not None and run.due_at > draft.now else draft.now + LOOK,
    )


def finish(draft: Draft, run: Run, job: Job, run_spec: RunSpec, job_specs: Sequence[JobSpec]) -> Run:
    """The run, ended with this job, which has just ended, if nothing but that decides about it: it has no other job,
    isn't to start again, and nobody has stopped it."""
    if run.status not in _WAY or len(job_specs) > 1 or run.scales or schedule_of(run_spec) is not None:
        return run
    done = job.reason is not None and job_outcome(job.reason) == "done"
    if not done and job_specs[0].retry is not None:
        return run
    reason, message = (RunReason.all_jobs_done, "") if done else (RunReason.job_failed, why(job))
    ending = draft.move_run(run, "end", reason=reason, message=message, resume_at=None, retries=())
    return draft.finish_run(ending)
