"""The end of a run with a single job, in one commit with the job's end, unless something follows."""

from __future__ import annotations

from collections.abc import Sequence

from chalicelib.domain.job_specs import JobSpec
from chalicelib.domain.jobs import Job
from chalicelib.domain.reasons import RunReason, job_outcome
from chalicelib.domain.runs import Run
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.placing.run_progress import STAGES
from chalicelib.planning.runs.replicas import end_text
from chalicelib.planning.runs.schedule import schedule_of


def finish(draft: Draft, run: Run, job: Job, run_spec: RunSpec, job_specs: Sequence[JobSpec]) -> Run:
    """End the run with this job, which has just ended, if nothing else decides about the run: it has no other job,
    won't start again, and hasn't been stopped. Returns the run."""
    if run.status not in STAGES or len(job_specs) > 1 or run.scales or schedule_of(run_spec) is not None:
        return run
    done = job.reason is not None and job_outcome(job.reason) == "done"
    if not done and job_specs[0].retry is not None:
        return run
    reason, message = (RunReason.all_jobs_done, "") if done else (RunReason.job_failed, end_text(job))
    ending = draft.move_run(run, "end", reason=reason, message=message, resume_at=None, retries=())
    return draft.finish_run(ending)
