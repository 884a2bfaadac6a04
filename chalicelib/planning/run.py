"""A run's decisions: what its jobs amount to, when they have taken too long, when to try again, and when it is over.

The pass goes down one list: ends that time or a lost machine force on jobs; what the user or the run's own end asks of
them; jobs that are ended for good; and last what all this means for the run. Everything decided in one look is
committed as one step, so a final job and the place it gives back, or a run and its last job, are never seen apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from chalicelib.domain.ids import derive
from chalicelib.domain.instances import Instance, InstanceStatus, Presence
from chalicelib.domain.instants import MINUTE, SECOND, Micros
from chalicelib.domain.job_specs import JobSpec
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.reasons import (
    InstanceReason,
    JobReason,
    RetryEvent,
    RunReason,
    job_outcome,
    reason_for_jobs,
    retry_event,
    short_text,
)
from chalicelib.domain.runs import Run, RunStatus
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.machines.run import RUN, observe
from chalicelib.machines.table import allows
from chalicelib.planning.plan import Plan
from chalicelib.planning.queue import TO_START
from chalicelib.planning.snapshots import RunSnapshot
from chalicelib.planning.transitions import GRACE, Draft

LOOK: Micros = MINUTE  # a live run is looked at again this soon even if nothing happens
PULL_TIMEOUT: Micros = 20 * MINUTE
OVERTIME: Micros = MINUTE  # the agent ends a job at max_duration; this much later the plane does
SHORTEST_PROMISE: Micros = 60 * SECOND  # a host is never called lost sooner than this after it was missed
BACKOFF: tuple[Micros, ...] = (15 * SECOND, 30 * SECOND, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE)


def decide_run(snapshot: RunSnapshot) -> Plan:
    """The next step of one run."""
    if snapshot.run.finished:
        return Plan()
    look = _Look(snapshot)
    for job in look.latest():
        look.weigh(job)
    if look.run.status == RunStatus.terminating:
        look.end_jobs()
    for job in look.latest():
        look.bury(job)
    look.judge()
    due = look.schedule()
    return Plan((look.draft.step(),) if not look.draft.empty else (), next_wake=due)


def grace_of(spec: JobSpec, run_spec: RunSpec | None = None) -> Micros | None:
    """How long a job may take to leave when asked: `stop_duration` where the user set one, else a short while; None for
    `off`: as long as it likes."""
    if run_spec is not None:
        profile = run_spec.profile.stop_duration if run_spec.profile else None
        chosen = run_spec.configuration.stop_duration if run_spec.configuration.stop_duration is not None else profile
        if chosen is None:
            return GRACE
        return None if chosen == "off" else chosen * SECOND
    return GRACE if spec.stop_duration is None else spec.stop_duration * SECOND


def backoff(attempt: int) -> Micros:
    """How long to wait before the next submission, after `attempt` retries in a row (1 for the first)."""
    return BACKOFF[min(max(attempt, 1), len(BACKOFF)) - 1]


class _Look:
    """One pass over a run: the nouns as they stand so far, and the draft of the step."""

    def __init__(self, snapshot: RunSnapshot) -> None:
        self.snapshot, self.now, self.run = snapshot, snapshot.now, snapshot.run
        self.draft = Draft(snapshot.now)
        self.jobs = {job.id: job for job in snapshot.jobs}
        self.instances = dict(snapshot.instances)
        self.specs = {(spec.replica_num, spec.job_num): spec for spec in snapshot.job_specs}
        self.deadlines: list[Micros] = []

    def latest(self) -> list[Job]:
        """The newest submission of every place in the run."""
        found: dict[tuple[int, int], Job] = {}
        for job in self.jobs.values():
            if job.slot not in found or found[job.slot].submission_num < job.submission_num:
                found[job.slot] = job
        return [found[slot] for slot in sorted(found)]

    def _where(self, job: Job) -> tuple[Instance | None, Presence | None]:
        if job.assignment is None:
            return None, None
        instance_id = job.assignment.instance_id
        return self.instances.get(instance_id), self.snapshot.presences.get(instance_id)

    def _keep(self, job: Job) -> None:
        self.jobs[job.id] = job
        self.draft.save(job)

    def _end(self, job: Job, reason: JobReason, message: str = "") -> None:
        grace = grace_of(self.specs[job.slot], self.snapshot.run_spec) if job.slot in self.specs else GRACE
        self.jobs[job.id] = self.draft.end_job(job, reason, message=message, exit_status=job.exit_status, grace=grace)

    # --- time and lost machines --------------------------------------------------------------------------------------

    def weigh(self, job: Job) -> None:
        """Has this job's time run out, or its machine gone?"""
        if job.finished or job.status == JobStatus.submitted:
            return
        job = self._watch(job)
        if job.status == JobStatus.terminating:
            return
        verdict = self._machine_gone(job) or self._silent_too_long(job) or self._overdue(job)
        if verdict:
            self._end(self.jobs[job.id], *verdict)

    def _watch(self, job: Job) -> Job:
        """Notes the first moment a host's promise was broken, and forgets it when the host is back."""
        _, presence = self._where(job)
        if presence is None or not presence.seen_until:
            return job
        silent = presence.seen_until < self.now
        if not silent:
            self.deadlines.append(presence.seen_until + 1)
        if silent == (job.disconnected_at is not None):
            return job
        watched = job.with_(disconnected_at=self.now if silent else None)
        self._keep(watched)
        return watched

    def _machine_gone(self, job: Job) -> tuple[JobReason, str] | None:
        instance, _ = self._where(job)
        if instance is not None and instance.status not in (InstanceStatus.terminating, InstanceStatus.terminated):
            return None
        if instance is None:
            return JobReason.instance_unreachable, "its instance doesn't exist any more"
        why = instance.message or (instance.reason.value.replace("_", " ") if instance.reason else "")
        if instance.reason is InstanceReason.terminated_by_user:
            return JobReason.terminated_by_server, f"{instance.name} was ended by a user"
        if instance.started_at is None:
            return JobReason.waiting_instance_limit_exceeded, f"{instance.name} never came up: {why}"
        if instance.offer.instance.resources.spot:
            return JobReason.interrupted_by_no_capacity, f"{instance.name} was taken back: {why}"
        return JobReason.instance_unreachable, f"{instance.name} is gone: {why}"

    def _silent_too_long(self, job: Job) -> tuple[JobReason, str] | None:
        lost_at = self._lost_at(job)
        if lost_at is None or self.now < lost_at:
            return None
        spot = job.assignment is not None and job.assignment.offer.instance.resources.spot
        reason = JobReason.interrupted_by_no_capacity if spot else JobReason.instance_unreachable
        return reason, f"{job.assignment.instance_name if job.assignment else 'its host'} hasn't reported for too long"

    def _lost_at(self, job: Job) -> Micros | None:
        """A host is lost when, after the first missed promise, it misses another as long. Counted from when the miss
        was seen, so that a plane that was itself away doesn't call every host lost on its return."""
        _, presence = self._where(job)
        if job.disconnected_at is None or presence is None:
            return None
        promise = max(presence.seen_until - presence.last_seen, SHORTEST_PROMISE)
        self.deadlines.append(job.disconnected_at + promise)
        return job.disconnected_at + promise

    def _overdue(self, job: Job) -> tuple[JobReason, str] | None:
        instance, _ = self._where(job)
        spec = self.specs.get(job.slot)
        placed = job.provisioned_at or job.submitted_at
        if job.status == JobStatus.provisioning:
            deadline = placed + TO_START
            if instance is not None and instance.started_at is None:
                deadline = max(deadline, (instance.deadline or deadline) + MINUTE)  # the instance's own end comes first
            elif instance is not None and instance.started_at is not None:
                deadline = max(deadline, instance.started_at + TO_START)
            verdict = JobReason.waiting_runner_limit_exceeded, "the task didn't start in time"
        elif job.status == JobStatus.pulling:
            deadline = (job.pulling_at or placed) + PULL_TIMEOUT
            verdict = (
                JobReason.waiting_runner_limit_exceeded,
                f"pulling the image took over {PULL_TIMEOUT // MINUTE} minutes",
            )
        elif spec is None or spec.max_duration is None:
            return None
        else:
            deadline = (job.running_at or placed) + spec.max_duration * SECOND + OVERTIME
            verdict = JobReason.max_duration_exceeded, f"ran longer than {spec.max_duration} s"
        if self.now >= deadline:
            return verdict
        self.deadlines.append(deadline)
        return None

    # --- ends --------------------------------------------------------------------------------------------------------

    def end_jobs(self) -> None:
        """A run that ends takes its live jobs with it; an abort doesn't wait for those already on their way out."""
        aborted = self.run.reason is RunReason.aborted_by_user
        reason = reason_for_jobs(self.run.reason or RunReason.server_error)
        for job in list(self.jobs.values()):
            if job.finished:
                continue
            if job.status != JobStatus.terminating:
                self._end(job, reason)
            elif aborted and (job.kill_at is None or job.kill_at > self.now):
                self._keep(job.with_(kill_at=self.now))
                self.draft.wake(f"instance/{job.assignment.instance_id}" if job.assignment else f"run/{job.run_id}")

    def bury(self, job: Job) -> None:
        """A job that is ending becomes final here when no agent is there to say that its task is gone."""
        if job.status != JobStatus.terminating:
            return
        instance, presence = self._where(job)
        lost_at = self._lost_at(job)
        silent = lost_at is not None and self.now >= lost_at
        gone = instance is None or instance.status == InstanceStatus.terminated
        unborn = instance is not None and instance.started_at is None and (presence is None or not presence.last_seen)
        if not (gone or silent or unborn):
            if job.kill_at is not None and job.kill_at > self.now:
                self.deadlines.append(job.kill_at)
            return
        self.jobs[job.id], freed = self.draft.finish_job(job, instance)
        if freed is not None:
            self.instances[freed.id] = freed

    # --- the run -----------------------------------------------------------------------------------------------------

    def judge(self) -> None:
        if self.run.status == RunStatus.pending:
            self._resubmit()
        elif self.run.status != RunStatus.terminating:
            self._fold()
        if self.run.status == RunStatus.terminating and all(job.finished for job in self.jobs.values()):
            self.run = self.draft.finish_run(self.run)

    def _fold(self) -> None:
        latest = self.latest()
        ended = [job for job in latest if job.finished or job.status == JobStatus.terminating]
        bad = [job for job in ended if _outcome(job) != "done"]
        if latest and len(ended) == len(latest) and not bad:
            self._end_run(RunReason.all_jobs_done, "")
            return
        if bad:
            self._after_failure(latest, bad)
        else:
            self._observe(latest)

    def _observe(self, latest: Iterable[Job]) -> None:
        live = [job for job in latest if not job.finished and job.status != JobStatus.terminating]
        if not live:
            return
        changes: dict[str, Any] = {}
        placed = next((job.assignment for job in live if job.assignment), None)
        if placed and self.run.fleet_id != placed.fleet_id:
            changes.update(fleet_id=placed.fleet_id, fleet_name=placed.fleet_name)
        waits = next((job.message for job in live if job.status == JobStatus.submitted), "")
        if waits != self.run.message:
            changes["message"] = waits
        event = observe(job.status for job in live)
        if event != "observe_submitted" and self.run.resubmission_attempt:
            changes["resubmission_attempt"] = 0
        if changes or RUN.table[self.run.status][event] != self.run.status:
            self.run = self.draft.move_run(self.run, event, **changes)
            self.draft.save(self.run)

    def _after_failure(self, latest: list[Job], bad: list[Job]) -> None:
        """Some latest job ended badly: end the run, or try again once nothing of it is alive."""
        verdicts = {job.id: self._retry(job) for job in bad}
        refused = next((job for job in bad if verdicts[job.id] is RunReason.job_failed), None)
        late = next((job for job in bad if verdicts[job.id] is RunReason.retry_limit_exceeded), None)
        if refused:
            self._end_run(RunReason.job_failed, _why(refused))
        elif late:
            self._end_run(RunReason.retry_limit_exceeded, f"gave up retrying: {_why(late)}")
        elif all(job.finished for job in latest):
            attempt = self.run.resubmission_attempt + 1
            resume_at = max(job.last_processed_at for job in latest) + backoff(attempt)
            self.deadlines.append(resume_at)
            self.run = self.draft.move_run(
                self.run,
                "resubmit_later",
                resubmission_attempt=attempt,
                resume_at=resume_at,
                message=f"will be tried again: {_why(bad[0])}",
                fleet_id=None,
                fleet_name=None,
            )

    def _retry(self, job: Job) -> RunReason | None:
        """None: this end is covered by `retry`. Otherwise the reason it ends the run."""
        retry = self.specs[job.slot].retry if job.slot in self.specs else None
        event = retry_event(job.reason) if job.reason else None
        if retry is None or event is None or event.value not in retry.on_events:
            return RunReason.job_failed
        elapsed = self.now - self._clock_start(job, event)
        return RunReason.retry_limit_exceeded if elapsed > retry.duration * SECOND else None

    def _clock_start(self, job: Job, event: RetryEvent) -> Micros:
        """Since when it has been failing: the last time it had a machine, else since the run began."""
        placed = [j for j in self.jobs.values() if j.slot == job.slot and j.assignment is not None]
        if placed:
            return max((j.finished_at or j.last_processed_at) for j in placed)
        return self.run.submitted_at

    def _end_run(self, reason: RunReason, message: str) -> None:
        if not allows(RUN, self.run.status, "end"):
            return
        self.run = self.draft.move_run(self.run, "end", reason=reason, message=message, resume_at=None)
        self.end_jobs()
        for job in self.latest():
            self.bury(job)

    def _resubmit(self) -> None:
        """The wait is over: a new submission of every job that isn't done."""
        if self.run.resume_at is None:
            return
        if self.now < self.run.resume_at:
            self.deadlines.append(self.run.resume_at)
            return
        self.run = self.draft.move_run(self.run, "resubmit", note="the wait is over", resume_at=None)
        for job in self.latest():
            if _outcome(job) != "done":
                self._submit_again(job)
        self.draft.wake(f"queue/{self.run.project_id}")

    def _submit_again(self, old: Job) -> None:
        num = old.submission_num + 1
        job = Job(
            id=job_id(self.run, old.replica_num, old.job_num, num),
            run_id=self.run.id,
            run_name=self.run.name,
            project_id=self.run.project_id,
            replica_num=old.replica_num,
            job_num=old.job_num,
            submission_num=num,
            deployment_num=self.run.deployment_num,
            priority=self.run.priority,
            submitted_at=self.now,
            last_processed_at=self.now,
            due_at=self.now,
        )
        self._keep(job)
        self.draft.tell(f"submitted again, attempt {num + 1}", job)

    # --- the next look -----------------------------------------------------------------------------------------------

    def schedule(self) -> Micros | None:
        """Clears what is due of the jobs (the run's own deadline covers them) and moves the run's deadline on."""
        for job in self.jobs.values():
            queued = job.status == JobStatus.submitted and job.assignment is None
            if job.due_at is not None and job.due_at <= self.now and not queued:
                self._keep(job.with_(due_at=None))
        if self.run.finished:
            return None
        wanted = max(min([*self.deadlines, self.now + self._patience()]), self.now + 1)
        current = self.run.due_at
        changed = self.run is not self.snapshot.run
        if changed or current is None or current <= self.now or current > wanted:
            self.run = self.run.with_(due_at=wanted)
            self.draft.save(self.run)
        return wanted

    def _patience(self) -> Micros:
        return max(LOOK, BACKOFF[-1]) if self.run.status == RunStatus.pending else LOOK


def job_id(run: Run, replica_num: int, job_num: int, submission_num: int) -> str:
    """A job's id follows from its place in the run, so a repeated plan names the same job."""
    return derive(run.id, "job", replica_num, job_num, submission_num)


def _outcome(job: Job) -> str:
    return job_outcome(job.reason) if job.reason else "failed"


def _why(job: Job) -> str:
    """Why a job ended, in words."""
    if job.reason is None:
        return f"{job.name} ended"
    return job.message or f"{job.name} {short_text(job.reason, job.exit_status) or job.reason.value.replace('_', ' ')}"
