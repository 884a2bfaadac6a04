"""Progress of a run in the commit of its job.

A run's status is that of its most advanced job (`machines/run.py`). So a job that gets ahead of its run moves the run
in the same commit, whatever its other jobs do, and nobody sees a running job in a waiting run. This saves the run's own
pass a commit and an event each time, which in AWS are a quarter of a run's cost. The run's pass is woken anyway, for
the decisions that depend on more than one job.
"""

from __future__ import annotations

from chalicelib.domain.jobs import Job
from chalicelib.domain.runs import Run
from chalicelib.machines.run import CHECK_RUN_EVERY, RUN, observe
from chalicelib.planning.kernel.transitions import Draft

STAGES = ("submitted", "provisioning", "running")


def follow(draft: Draft, run: Run, job: Job) -> Run:
    """Move the run to the status that follows from this job, unless it has got as far already."""
    if run.status not in STAGES:
        return run
    event = observe([job.status])
    if STAGES.index(RUN.table[run.status][event]) <= STAGES.index(run.status):
        return run
    placed = job.assignment
    failing = placed is not None and not job.had_machine
    fleet = {} if placed is None else {"fleet_id": placed.fleet_id, "fleet_name": placed.fleet_name}
    return draft.move_run(
        run,
        event,
        **({} if run.fleet_id else fleet),
        message="" if run.status == "submitted" else run.message,
        retries=tuple(retry for retry in run.retries if failing or retry.replica != job.replica_num),
        due_at=run.due_at if run.due_at is not None and run.due_at > draft.now else draft.now + CHECK_RUN_EVERY,
    )
