"""Replicas and retry. A run consists of replicas: single nodes, or gangs of nodes that start and end together.

Each replica has its own submissions and back-off. When a job of a replica fails and `retry` covers the failure, the
replica's other jobs end at once; when all of them have left their machines, the replica waits for its back-off and is
resubmitted as a whole. Other replicas are unaffected. A failure that `retry` doesn't cover ends the run.
"""

from __future__ import annotations

from dataclasses import dataclass

from chalicelib.domain.events import EventType
from chalicelib.domain.ids import derive
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.reasons import JobReason, RunReason, job_outcome, retry_event, short_text
from chalicelib.domain.runs import ReplicaRetry, Run, RunStatus
from chalicelib.machines.run import BACKOFF
from chalicelib.planning.runs.endings import end, finish_if_gone
from chalicelib.planning.runs.run_pass import RunPass


def backoff(attempt: int) -> Micros:
    """How long to wait before the next submission, after `attempt` retries in a row (1 for the first)."""
    return BACKOFF[min(max(attempt, 1), len(BACKOFF)) - 1]


@dataclass(frozen=True)
class Replica:
    num: int
    jobs: tuple[Job, ...]  # the newest submission of each node
    submissions: tuple[Job, ...]  # every submission of every node
    retry: ReplicaRetry | None

    @property
    def waiting(self) -> Micros | None:
        """When it will be resubmitted; None: it doesn't wait for that."""
        return None if self.retry is None else self.retry.resume_at

    @property
    def live(self) -> list[Job]:
        return [job for job in self.jobs if not ended(job)]

    @property
    def done(self) -> bool:
        return all(ended(job) and _outcome(job) == "done" for job in self.jobs)

    @property
    def failures(self) -> list[Job]:
        """The jobs that failed themselves, without those that ended because another one failed."""
        return [job for job in self.jobs if ended(job) and _outcome(job) != "done" and not job.ended_with_replica]


def replicas(this: RunPass) -> list[Replica]:
    jobs: dict[int, list[Job]] = {}
    for job in this.jobs.values():
        jobs.setdefault(job.replica_num, []).append(job)
    latest: dict[int, list[Job]] = {}
    for job in this.latest():
        latest.setdefault(job.replica_num, []).append(job)
    retries = {retry.replica: retry for retry in this.run.retries}
    return [Replica(num, tuple(latest[num]), tuple(jobs[num]), retries.get(num)) for num in latest]


# --- a failure -------------------------------------------------------------------------------------------------------


def refusal(this: RunPass, replica: Replica, job: Job) -> RunReason | None:
    """Why this failure ends the run; None: `retry` covers it."""
    spec = this.spec_of(job)
    retry = None if spec is None else spec.retry
    event = retry_event(job.reason) if job.reason else None
    if retry is None or event is None or event.value not in retry.on_events:
        return RunReason.job_failed
    elapsed = this.now - _failing_since(this, replica)
    return RunReason.retry_limit_exceeded if elapsed > retry.duration * SECOND else None


def _failing_since(this: RunPass, replica: Replica) -> Micros:
    """Since when a replica has been failing: since it last had a machine, or since the run was submitted or started by
    its schedule. For a service, since the replica was first requested."""
    since = this.run.triggered_at or this.run.submitted_at
    if this.run.scales:
        since = max(since, _first_requested(replica))
    placed = [job for job in replica.submissions if job.had_machine and job.submitted_at >= since]
    return max((job.finished_at or job.last_processed_at for job in placed), default=since)


def _first_requested(replica: Replica) -> Micros:
    """When this replica was first requested. An earlier replica, which was removed, may have had its number: only the
    retries since then count."""
    attempts = 0 if replica.retry is None else replica.retry.attempt
    first = max(job.submission_num for job in replica.submissions) - attempts
    return min(job.submitted_at for job in replica.submissions if job.submission_num >= first)


def retire(this: RunPass, replica: Replica) -> None:
    """End the jobs of a replica that will be retried. Once all have left their machines, the back-off begins."""
    for job in replica.live:
        ending = end(this, job, JobReason.terminated_by_server, "to be resubmitted")
        this.update_job(ending.with_(ended_with_replica=True))
        finish_if_gone(this, this.jobs[job.id])
    jobs = [this.jobs[job.id] for job in replica.jobs]
    if all(job.finished for job in jobs):
        attempt = 1 + (replica.retry.attempt if replica.retry else 0)
        resume_at = max(job.last_processed_at for job in jobs) + backoff(attempt)
        save_retry(this, ReplicaRetry(replica=replica.num, attempt=attempt, resume_at=resume_at))


def save_retry(this: RunPass, retry: ReplicaRetry) -> None:
    """Store the retry of a failed replica in the run."""
    others = (other for other in this.run.retries if other.replica != retry.replica)
    this.run = this.run.with_(retries=(*others, retry))
    this.draft.save(this.run)


# --- a retry ---------------------------------------------------------------------------------------------------------


def resubmit(this: RunPass, replica: Replica) -> None:
    """Submit every job of the replica again. The count of attempts stays until the replica has a place."""
    nums = {job.submission_num for job in replica.jobs}
    num = max(nums) + (len(nums) == 1)  # otherwise a commit in parts was interrupted: the missing jobs follow
    for old in replica.jobs:
        if old.submission_num < num:
            submit(this, old.slot, num, old.replica_group)
    if replica.retry is not None:
        save_retry(this, replica.retry.with_(resume_at=None))


def submit_all(this: RunPass, since: Micros) -> None:
    """Submit every job anew, except those submitted since then: a commit in parts may have been interrupted."""
    latest = {job.slot: job for job in this.latest()}
    for slot, spec in this.starting.items():
        last = latest.get(slot)
        if last is None or last.submitted_at < since:
            submit(this, slot, 0 if last is None else last.submission_num + 1, spec.replica_group)


def complete(this: RunPass) -> None:
    """Submit those nodes of a new run for which the commit of its submission had no room."""
    if this.run.status != RunStatus.submitted or this.run.scales:
        return
    there = {job.slot for job in this.jobs.values()}
    begun = {job.replica_num for job in this.jobs.values() if job.submission_num == 0}
    for slot, spec in this.starting.items():
        if spec.replica_num in begun and slot not in there:
            submit(this, slot, 0, spec.replica_group)


def submit(this: RunPass, slot: tuple[int, int], num: int, group: str, *, anew: bool = False) -> None:
    """Submit a job for the first time, or again. `anew`: its number belonged to another replica before."""
    replica_num, job_num = slot
    job = Job(
        id=job_id(this.run, replica_num, job_num, num),
        run_id=this.run.id,
        run_name=this.run.name,
        project_id=this.run.project_id,
        replica_num=replica_num,
        job_num=job_num,
        submission_num=num,
        replica_group=group,
        deployment_num=this.run.deployment_num,
        priority=this.run.priority,
        submitted_at=this.now,
        last_processed_at=this.now,
        due_at=this.now if job_num == 0 else None,
    )
    this.update_job(job)
    if num and not anew:
        this.draft.record(EventType.resubmitted, job, number=num + 1)
    else:
        this.draft.record(EventType.created, job)
    this.draft.wake(f"queue/{this.run.project_id}")


def job_id(run: Run, replica_num: int, job_num: int, submission_num: int) -> str:
    """A job's id follows from its place in the run, so a repeated plan names the same job."""
    return derive(run.id, "job", replica_num, job_num, submission_num)


# --- ends, in words --------------------------------------------------------------------------------------------------


def ended(job: Job) -> bool:
    """Has the job ended, or is it terminating?"""
    return job.finished or job.status == JobStatus.terminating


def was_removed(job: Job) -> bool:
    """Was the job scaled down, or did it end by itself while it was being drained?"""
    return ended(job) and (job.reason is JobReason.scaled_down or job.draining_at is not None)


def _outcome(job: Job) -> str:
    return job_outcome(job.reason) if job.reason else "failed"


def end_text(job: Job) -> str:
    """Why a job ended, as a sentence."""
    assert job.reason is not None, "none ends without"
    return job.message or f"{job.name} {short_text(job.reason, job.exit_status) or job.reason.value.replace('_', ' ')}"
