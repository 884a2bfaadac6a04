"""Time-outs, lost machines and disuse: what ends a job though neither its task exited nor its user stopped it."""

from __future__ import annotations

from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import MINUTE, SECOND, Micros
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.reasons import InstanceReason, JobReason
from chalicelib.machines.job import OVERTIME, PULL_TIMEOUT, TO_BE_TOLD, TO_START
from chalicelib.machines.volume import TO_ATTACH
from chalicelib.planning.jobs.neighbours import needed
from chalicelib.planning.runs.endings import end, lost_at
from chalicelib.planning.runs.run_pass import RunLook
from chalicelib.planning.runs.utilization import unused
from chalicelib.planning.volumes.attachments import attached_for

Verdict = tuple[JobReason, str]


def weigh(look: RunLook, job: Job) -> None:
    """Start terminating a job if it has run out of time or lost its machine."""
    if job.finished or job.status == JobStatus.submitted:
        return
    job = _watch(look, job)
    if job.status == JobStatus.terminating:
        return
    verdict = (
        _machine_gone(look, job)
        or _no_longer_shared(look, job)
        or _volume_lost(look, job)
        or _silent_too_long(look, job)
        or _overtime(look, job)
        or unused(look, job)
    )
    if verdict:
        reason, message = verdict
        end(look, look.jobs[job.id], reason, message)


def _watch(look: RunLook, job: Job) -> Job:
    """Record when a host was first found overdue, and clear that when it is back."""
    _, presence = look.where(job)
    if presence is None or not presence.seen_until:
        return job
    silent = presence.seen_until < look.now
    if not silent:
        look.deadlines.append(presence.look_at)
    if silent == (job.disconnected_at is not None):
        return job
    watched = job.with_(disconnected_at=look.now if silent else None)
    look.keep(watched)
    return watched


def _machine_gone(look: RunLook, job: Job) -> Verdict | None:
    instance, _ = look.where(job)
    if instance is not None and instance.status not in (InstanceStatus.terminating, InstanceStatus.terminated):
        return None
    if instance is None:
        return JobReason.instance_unreachable, "its instance no longer exists"
    why = instance.message or (instance.reason.value.replace("_", " ") if instance.reason else "")
    if instance.reason is InstanceReason.terminated_by_user:
        return JobReason.terminated_by_server, f"{instance.name} was ended by a user"
    if instance.started_at is None:
        return JobReason.waiting_instance_limit_exceeded, f"{instance.name} never came up: {why}"
    if instance.offer.instance.resources.spot or instance.taken_back_at is not None:
        return JobReason.interrupted_by_no_capacity, f"{instance.name} was reclaimed: {why}"
    return JobReason.instance_unreachable, f"{instance.name} is gone: {why}"


def _no_longer_shared(look: RunLook, job: Job) -> Verdict | None:
    """A machine of another project that doesn't let this one use it any more."""
    instance, _ = look.where(job)
    if instance is None or instance.project_id == job.project_id or instance.fleet_id in look.snapshot.imported:
        return None
    return JobReason.instance_access_revoked, f"{instance.name} is no longer shared with this project"


def _volume_lost(look: RunLook, job: Job) -> Verdict | None:
    """A volume that couldn't be attached."""
    if job.assignment is None:
        return None
    for each in job.assignment.volumes:
        volume = look.snapshot.volumes.get(each.id)
        attachment = None if volume is None else attached_for(volume, job.id, job.assignment.instance_id)
        if attachment is not None and attachment.error:
            return JobReason.volume_error, attachment.error
    return None


def _silent_too_long(look: RunLook, job: Job) -> Verdict | None:
    lost = lost_at(look, job)
    if lost is None or look.now < lost:
        return None
    spot = job.assignment is not None and job.assignment.offer.instance.resources.spot
    reason = JobReason.interrupted_by_no_capacity if spot else JobReason.instance_unreachable
    return reason, f"{job.assignment.instance_name if job.assignment else 'its host'} has been silent for too long"


def _overtime(look: RunLook, job: Job) -> Verdict | None:
    placed = job.provisioned_at or job.submitted_at
    if job.status == JobStatus.provisioning:
        instance, _ = look.where(job)
        deadline = _start_by(placed, instance)
        if job.assignment is not None and job.assignment.volumes:
            deadline += TO_ATTACH
        spec, text = look.spec_of(job), "the task didn't start in time"
        if spec is not None and needed(spec):
            deadline += TO_BE_TOLD
            text += ", or replicas whose addresses it needs had none"
        verdict = JobReason.waiting_runner_limit_exceeded, text
    elif job.status == JobStatus.pulling:
        deadline = (job.pulling_at or placed) + PULL_TIMEOUT
        spec = look.spec_of(job)
        cloned = spec is not None and (spec.repo_data or {}).get("repo_type") == "remote"
        what = "cloning the repository or pulling the image" if cloned else "pulling the image"
        text = f"{what} took over {PULL_TIMEOUT // MINUTE} minutes"
        verdict = JobReason.waiting_runner_limit_exceeded, text
    else:
        spec = look.spec_of(job)
        if spec is None or spec.max_duration is None:
            return None
        deadline = (job.running_at or placed) + spec.max_duration * SECOND + OVERTIME
        verdict = JobReason.max_duration_exceeded, f"ran longer than {spec.max_duration} s"
    if look.now >= deadline:
        return verdict
    look.deadlines.append(deadline)
    return None


def _start_by(placed: Micros, instance: Instance | None) -> Micros:
    deadline = placed + TO_START
    if instance is None:
        return deadline
    if instance.started_at is None:
        return max(deadline, (instance.deadline or deadline) + MINUTE)  # the instance's own end comes first
    return max(deadline, instance.started_at + TO_START)
