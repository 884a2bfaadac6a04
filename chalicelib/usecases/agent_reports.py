"""What an agent's report makes of a job. Pure: the job, what its task says, and how much of its log is here.

A state only moves forward, so a late or repeated report is harmless: an edge that the job has passed already is no
edge of its machine any more, and is not taken.
"""

from __future__ import annotations

from chalicelib.domain.instances import Instance
from chalicelib.domain.instants import HOUR, SECOND, Micros
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.reasons import JobReason
from chalicelib.machines.job import JOB
from chalicelib.machines.table import allows
from chalicelib.planning.transitions import Draft
from chalicelib.usecases.agent_message import TaskReport

MAX_TEXT = 1_000  # characters of a message that is kept
_LOST = "The host lost this task: its agent knows nothing of it."


class Fold:
    """One message's reports, folded into a draft. `instance` loses the claim of every job that ends."""

    def __init__(self, draft: Draft, instance: Instance) -> None:
        self.draft, self.instance = draft, instance

    def report(self, job: Job, report: TaskReport | None, stored: int) -> Job:
        """The job after its task's report; None: the agent doesn't know it. `stored`: bytes of its log held here."""
        if job.finished:
            return job
        if report is None:
            # A task that was seen here never leaves the list before it is told to. One that was not seen yet may be on
            # its way in another answer, so nothing follows from its absence.
            if job.status in (JobStatus.pulling, JobStatus.running):
                return self.end(job, JobReason.executor_error, _LOST, stored)
            return job
        job = self._heard(job, report)
        if report.state == "pulling":
            return self._pulling(job, report)
        if report.state == "running" or (report.state == "exited" and report.exit_status is not None):
            job = self._running(job, report)
        return self._exited(job, report, stored) if report.state == "exited" else job

    def end(self, job: Job, reason: JobReason, message: str, stored: int) -> Job:
        """End a job of which nothing is left on the host."""
        if job.status is not JobStatus.terminating:
            job = self.draft.end_job(job, reason, message=message[:MAX_TEXT])
        return self._finish(job, stored)

    def _heard(self, job: Job, report: TaskReport) -> Job:
        """The host is back, if it was away; and what it says of a task that goes on is for the user to read."""
        said = (report.message or "")[:MAX_TEXT] if report.state == "running" else job.message
        message = job.message if job.status is JobStatus.terminating else said
        if job.disconnected_at is not None or message != job.message:
            job = job.with_(disconnected_at=None, message=message)
            self.draft.save(job)
        return job

    def _pulling(self, job: Job, report: TaskReport) -> Job:
        if allows(JOB, job.status, "pull"):
            self.draft.wake(f"run/{job.run_id}")
            return self.draft.move_job(job, "pull", self.instance, pull=report.pull)
        if job.status is JobStatus.pulling and report.pull is not None and report.pull != job.pull:
            job = job.with_(pull=report.pull)
            self.draft.save(job)
        return job

    def _running(self, job: Job, report: TaskReport) -> Job:
        if not allows(JOB, job.status, "run"):
            return job
        self.draft.wake(f"run/{job.run_id}")
        return self.draft.move_job(
            job,
            "run",
            self.instance,
            username=report.username,
            working_dir=report.working_dir,
            pull=report.pull or job.pull,
        )

    def _exited(self, job: Job, report: TaskReport, stored: int) -> Job:
        if job.status is not JobStatus.terminating:
            if not allows(JOB, job.status, "end"):
                return job
            message = (report.message or "")[:MAX_TEXT]
            job = self.draft.end_job(job, report.end_reason, message=message, exit_status=report.exit_status)
        elif job.exit_status != report.exit_status:
            job = job.with_(exit_status=report.exit_status)
            self.draft.save(job)
        whole = stored >= report.log_end or job.reason is JobReason.log_quota_exceeded
        return self._finish(job, stored) if whole else job

    def _finish(self, job: Job, stored: int) -> Job:
        done, freed = self.draft.finish_job(job.with_(log_end=stored), self.instance)
        self.instance = freed or self.instance
        return done


def over_quota(job: Job, stored: int, per_hour: int, now: Micros) -> bool:
    """More log than is allowed: so many bytes for every hour that it has run, a begun one counted whole."""
    hours = 1 + max(0, now - (job.running_at or now)) // HOUR
    return stored > per_hour * hours


def stop_word(job: Job, now: Micros) -> dict[str, object]:
    """How a terminating job's task is asked to end: politely until `kill_at`, then at once."""
    if job.kill_at is None:
        return {"want": "stop"} if job.reason is not JobReason.aborted_by_user else {"want": "abort"}
    if now >= job.kill_at:
        return {"want": "abort"}
    return {"want": "stop", "grace": round((job.kill_at - now) / SECOND, 3)}
