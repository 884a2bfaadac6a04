"""Time-outs, lost machines and disuse: the ends of jobs whose task didn't exit and whose user didn't stop them."""

from __future__ import annotations

from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import MINUTE, SECOND, Micros
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.reasons import InstanceReason, JobReason
from chalicelib.machines.job import OVERTIME, PULL_TIMEOUT, TO_GET_ADDRESSES, TO_START
from chalicelib.machines.volume import TO_ATTACH
from chalicelib.planning.jobs.neighbours import needed
from chalicelib.planning.runs.endings import end, lost_at
from chalicelib.planning.runs.run_pass import RunPass
from chalicelib.planning.runs.utilization import inactive, underused
from chalicelib.planning.runs.verdicts import CONTINUES, JobVerdict
from chalicelib.planning.volumes.attachments import attached_for


def check_job(this: RunPass, job: Job) -> None:
    """Start terminating a job if it has run out of time or lost its machine."""
    if job.finished or job.status == JobStatus.submitted:
        return
    job = _record_silence(this, job)
    if job.status == JobStatus.terminating:
        return
    for check in CHECKS:
        verdict = check(this, job)
        this.check_by(verdict.check_at)
        if any(getattr(job, name) != value for name, value in verdict.record.items()):
            job = job.with_(**verdict.record)
            this.update_job(job)
        if verdict.reason is not None:
            end(this, job, verdict.reason, verdict.message)
            return


def _record_silence(this: RunPass, job: Job) -> Job:
    """Record when a host was first found overdue, and clear that when it is back."""
    _, presence = this.where(job)
    if presence is None or not presence.seen_until:
        return job
    silent = presence.seen_until < this.now
    if not silent:
        this.check_by(presence.check_at)
    if silent == (job.disconnected_at is not None):
        return job
    watched = job.with_(disconnected_at=this.now if silent else None)
    this.update_job(watched)
    return watched


def _machine_gone(this: RunPass, job: Job) -> JobVerdict:
    instance, _ = this.where(job)
    if instance is not None and instance.status not in (InstanceStatus.terminating, InstanceStatus.terminated):
        return CONTINUES
    if instance is None:
        return JobVerdict(JobReason.instance_unreachable, "its instance no longer exists")
    why = instance.message or (instance.reason.value.replace("_", " ") if instance.reason else "")
    if instance.reason is InstanceReason.terminated_by_user:
        return JobVerdict(JobReason.terminated_by_server, f"{instance.name} was ended by a user")
    container, taken_back = instance.offer.is_container, instance.taken_back_at is not None
    if instance.started_at is None and not (container and taken_back):
        return JobVerdict(JobReason.waiting_instance_limit_exceeded, f"{instance.name} never came up: {why}")
    spot = instance.offer.instance.resources.spot and not container  # a spot container may have ended by itself
    if spot or taken_back:
        return JobVerdict(JobReason.interrupted_by_no_capacity, f"{instance.name} was reclaimed: {why}")
    return JobVerdict(JobReason.instance_unreachable, f"{instance.name} is gone: {why}")


def _no_longer_shared(this: RunPass, job: Job) -> JobVerdict:
    """Has another project stopped sharing the job's machine with this one?"""
    instance, _ = this.where(job)
    if instance is None or instance.project_id == job.project_id or instance.fleet_id in this.snapshot.imported:
        return CONTINUES
    return JobVerdict(JobReason.instance_access_revoked, f"{instance.name} is no longer shared with this project")


def _volume_lost(this: RunPass, job: Job) -> JobVerdict:
    """Could a volume of the job not be attached?"""
    if job.assignment is None:
        return CONTINUES
    for each in job.assignment.volumes:
        volume = this.snapshot.volumes.get(each.id)
        attachment = None if volume is None else attached_for(volume, job.id, job.assignment.instance_id)
        if attachment is not None and attachment.error:
            return JobVerdict(JobReason.volume_error, attachment.error)
    return CONTINUES


def _host_lost(this: RunPass, job: Job) -> JobVerdict:
    lost = lost_at(this, job)
    if lost is None or this.now < lost:
        return JobVerdict(check_at=lost)
    spot = job.assignment is not None and job.assignment.offer.instance.resources.spot
    reason = JobReason.interrupted_by_no_capacity if spot else JobReason.instance_unreachable
    host = job.assignment.instance_name if job.assignment else "its host"
    return JobVerdict(reason, f"{host} has been silent for too long", check_at=lost)


def _overtime(this: RunPass, job: Job) -> JobVerdict:
    placed = job.provisioned_at or job.submitted_at
    if job.status == JobStatus.provisioning:
        instance, _ = this.where(job)
        deadline = _start_by(placed, instance)
        if job.assignment is not None and job.assignment.volumes:
            deadline += TO_ATTACH
        spec, text = this.spec_of(job), "the task didn't start in time"
        if spec is not None and needed(spec):
            deadline += TO_GET_ADDRESSES
            text += ", or replicas whose addresses it needs had none"
        reason = JobReason.waiting_runner_limit_exceeded
    elif job.status == JobStatus.pulling:
        deadline = (job.pulling_at or placed) + PULL_TIMEOUT
        spec = this.spec_of(job)
        cloned = spec is not None and (spec.repo_data or {}).get("repo_type") == "remote"
        what = "cloning the repository or pulling the image" if cloned else "pulling the image"
        text = f"{what} took over {PULL_TIMEOUT // MINUTE} minutes"
        reason = JobReason.waiting_runner_limit_exceeded
    else:
        spec = this.spec_of(job)
        if spec is None or spec.max_duration is None:
            return CONTINUES
        deadline = (job.running_at or placed) + spec.max_duration * SECOND + OVERTIME
        reason, text = JobReason.max_duration_exceeded, f"ran longer than {spec.max_duration} s"
    return JobVerdict(reason, text) if this.now >= deadline else JobVerdict(check_at=deadline)


CHECKS = (_machine_gone, _no_longer_shared, _volume_lost, _host_lost, _overtime, inactive, underused)


def _start_by(placed: Micros, instance: Instance | None) -> Micros:
    deadline = placed + TO_START
    if instance is None:
        return deadline
    if instance.started_at is None:
        return max(deadline, (instance.deadline or deadline) + MINUTE)  # the instance's own end comes first
    return max(deadline, instance.started_at + TO_START)
