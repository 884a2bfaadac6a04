"""How an agent's report changes a job, given its task's report and how much of its log is stored.

A late or repeated report is harmless, because states only move forward.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chalicelib.domain.events import EventType
from chalicelib.domain.gateways import Gateway
from chalicelib.domain.instances import Instance
from chalicelib.domain.instants import HOUR, SECOND, Micros, spoken
from chalicelib.domain.job_specs import JobSpec
from chalicelib.domain.jobs import Assignment, Job, JobStatus
from chalicelib.domain.reasons import InstanceReason, JobReason
from chalicelib.domain.reports import GatewayReport, TaskReport
from chalicelib.machines.instance import INSTANCE
from chalicelib.machines.job import JOB, TO_UNMOUNT
from chalicelib.machines.table import allows
from chalicelib.planning.gateways.gateways import apply_report as apply_gateway_report
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.machines.interruptions import NOTICE, interrupt
from chalicelib.planning.runs.readiness import apply_report

if TYPE_CHECKING:
    from chalicelib.contract import agent as contract

MAX_TEXT = 1_000  # characters kept of a message
_LOST = "The host lost this task: its agent no longer lists it."


class ReportFold:
    """Applies the reports of one message to a draft. `instance` loses the claim of every job that ends."""

    def __init__(self, draft: Draft, instance: Instance, sent_at: Micros = 0) -> None:
        """`sent_at`: when the message was sent, by the machine's clock; 0 if unknown."""
        self.draft, self.instance, self.sent_at = draft, instance, sent_at

    def report(self, job: Job, report: TaskReport | None, stored: int, replica: JobSpec | None = None) -> Job:
        """The job after its task's report. `report`: None if the agent doesn't list the task. `stored`: bytes of its
        log that are stored. `replica`: its spec, if it is a service's."""
        if job.finished:
            return job
        if report is None:
            # A task that was listed stays so until the agent is ordered to remove it. One that wasn't may be in flight
            # in another response, so its absence proves nothing.
            if job.status in (JobStatus.pulling, JobStatus.running):
                return self.end(job, JobReason.executor_error, _LOST, stored)
            return job
        job = self._record_contact(job, report)
        if report.state == "pulling":
            return self._pulling(job, report)
        if report.ssh is not None and report.ssh != job.login:
            job = job.with_(login=report.ssh)
            self.draft.save(job)
        if report.state == "running" or (report.state == "exited" and report.exit_status is not None):
            job = self._running(job, report)
        if report.state == "running":
            job = self._sessions(job, report)
        if replica is not None and report.state == "running" and job.status is JobStatus.running:
            job = self._replica(job, report, replica)
        return self._exited(job, report, stored) if report.state == "exited" else job

    def end(self, job: Job, reason: JobReason, message: str, stored: int) -> Job:
        """End a job that has nothing left on the host."""
        if job.status is not JobStatus.terminating:
            job = self.draft.end_job(job, reason, message=message[:MAX_TEXT])
        return self._finish(job, stored)

    def interrupted(self, seconds: float) -> None:
        """The machine reports a spot interruption notice, which leaves it this many seconds, or its container was asked
        to end, which doesn't say how long it has."""
        offer, until = self.instance.offer, self.draft.now + round(seconds * SECOND)
        if offer.is_container:
            until = max(until, self.draft.now + NOTICE)
        elif not offer.instance.resources.spot:
            return
        if self.instance.bought and allows(INSTANCE, self.instance.status, "end"):
            self.instance = interrupt(self.draft, self.instance, until)

    def gateway(self, gateway: Gateway | None, report: GatewayReport | None) -> None:
        """Apply the report on the gateway's replica here. A replica that is leaving is gone once its agent doesn't
        report it any more; a report on any other replica is late."""
        seat = self.instance.gateway
        if seat is not None and seat.leaving and report is None:
            self.instance = self.instance.with_(gateway=None)
            self.draft.save(self.instance)
            self.draft.wake(f"gateway/{seat.gateway_id}")
        elif gateway is not None and report is not None and report.is_of(seat):
            apply_gateway_report(self.draft, gateway, self.instance, report.state, report.message)

    def _record_contact(self, job: Job, report: TaskReport) -> Job:
        """Clear the mark of a disconnected host, and adopt the message about a running task, which users see."""
        message = (report.message or "")[:MAX_TEXT] if report.state == "running" else job.message
        message = job.message if job.status is JobStatus.terminating else message
        if job.disconnected_at is not None or message != job.message:
            job = job.with_(disconnected_at=None, message=message)
            self.draft.save(job)
        return job

    def _pulling(self, job: Job, report: TaskReport) -> Job:
        if allows(JOB, job.status, "pull"):
            self.draft.wake(f"run/{job.run_id}")
            return self.draft.move_job(job, "pull", self.instance, assignment=self._place(job), pull=report.pull)
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
            assignment=self._place(job),
            username=report.username,
            working_dir=report.working_dir,
            pull=report.pull or job.pull,
        )

    def _place(self, job: Job) -> Assignment | None:
        """The assignment with the machine's current addresses and zone. A machine that was bought for the job had none
        when the job was placed."""
        if job.assignment is None:
            return None
        machine = self.instance
        return job.assignment.with_(hostname=machine.hostname, internal_ip=machine.internal_ip, zone=machine.zone)

    def _sessions(self, job: Job, report: TaskReport) -> Job:
        """Adopt the number of sessions, and since when there has been none. The agent's clock is compared only with
        itself."""
        session = (report.connections, report.idle_since)
        if report.connections is None or session == (job.connections, job.idle_mark):
            return job
        since = None
        if not report.connections and report.idle_since is not None:
            since = self.draft.now - max(0, (self.sent_at or self.draft.now) - report.idle_since)
        job = job.with_(connections=report.connections, idle_mark=report.idle_since, inactive_since=since)
        self.draft.save(job)
        self.draft.wake(f"run/{job.run_id}")
        return job

    def _replica(self, job: Job, report: TaskReport, spec: JobSpec) -> Job:
        after = apply_report(job, spec, report, self.draft.now)
        if after is not job:
            self.draft.save(after)
            self.draft.wake(f"run/{job.run_id}")
        if after.ready_at is not None and job.ready_at is None:
            self.draft.record(EventType.ready, after)
        return after

    def _exited(self, job: Job, report: TaskReport, stored: int) -> Job:
        if job.status is not JobStatus.terminating:
            if not allows(JOB, job.status, "end"):
                return job
            message = (report.message or "")[:MAX_TEXT]
            job = self.draft.end_job(job, report.end_reason, message=message, exit_status=report.exit_status)
        elif report.exit_status is not None and job.exit_status != report.exit_status:  # a new disk knows of none
            job = job.with_(exit_status=report.exit_status)
            self.draft.save(job)
        held = (report.held_by or "its volumes can't be unmounted yet")[:MAX_TEXT] if report.held else ""
        if job.held != held:
            job = job.with_(held=held)
            self.draft.save(job)
        log_complete = stored >= report.log_end or job.reason is JobReason.log_quota_exceeded
        if report.held:
            job = self._force_unmount(job)
        return self._finish(job, stored) if log_complete and not report.held else job

    def _force_unmount(self, job: Job) -> Job:
        """End the machine if it can't unmount a volume for too long. Otherwise the job would never end, and the machine
        would cost money for ever."""
        last = job.kill_at or job.stop_sent_at
        late = last is not None and self.draft.now >= last + TO_UNMOUNT
        if late and job.kill_at is None:  # nothing waits for the job any more, not even a machine that is ending
            job = job.with_(kill_at=self.draft.now)
            self.draft.save(job)
        alone = all(claim.job_id == job.id for claim in self.instance.claims)
        if late and alone and self.instance.bought and allows(INSTANCE, self.instance.status, "end"):
            why = f"it couldn't unmount the volumes of {job.name} within {spoken(TO_UNMOUNT)}"
            self.instance = self.draft.end_instance(self.instance, InstanceReason.error, why)
        return job

    def _finish(self, job: Job, stored: int) -> Job:
        done, freed = self.draft.finish_job(job.with_(log_end=stored), self.instance)
        self.instance = freed or self.instance
        return done


def over_quota(job: Job, stored: int, per_hour: int, now: Micros) -> bool:
    """Has the job exceeded its log quota of `per_hour` bytes for every hour it has run? A started hour counts in
    full."""
    hours = 1 + max(0, now - (job.running_at or now)) // HOUR
    return stored > per_hour * hours


def stop_order(job: Job, now: Micros) -> contract.TaskOrder:
    """The order that ends a terminating job's task: to stop until `kill_at`, then to abort."""
    if job.kill_at is None:
        aborted = job.reason is JobReason.aborted_by_user
        return {"id": job.id, "want": "abort" if aborted else "stop"}
    if now >= job.kill_at:
        return {"id": job.id, "want": "abort"}
    return {"id": job.id, "want": "stop", "grace": round((job.kill_at - now) / SECOND, 3)}
