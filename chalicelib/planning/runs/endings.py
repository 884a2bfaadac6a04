"""How jobs end: they are asked to exit, get time to do so, and are final once nothing of them is left on a machine."""

from __future__ import annotations

from chalicelib.domain.instances import InstanceStatus
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.job_specs import JobSpec
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.reasons import JobReason, RunReason, reason_for_jobs
from chalicelib.machines.job import GRACE, SHORTEST_PROMISE
from chalicelib.planning.runs.run_pass import RunPass


def grace_of(spec: JobSpec) -> Micros | None:
    """How long a job may take to exit; None: no limit."""
    return None if spec.stop_duration is None else spec.stop_duration * SECOND


def end(this: RunPass, job: Job, reason: JobReason, message: str = "") -> Job:
    """Start terminating a live job."""
    spec = this.spec_of(job)
    grace = GRACE if spec is None else grace_of(spec)
    ending = this.draft.end_job(job, reason, message=message, exit_status=job.exit_status, grace=grace)
    this.jobs[job.id] = ending
    return ending


def end_jobs(this: RunPass) -> None:
    """End the live jobs of a run that ends. An abort doesn't wait for those that are terminating already."""
    aborted = this.run.reason is RunReason.aborted_by_user
    reason = reason_for_jobs(this.run.reason or RunReason.server_error)
    for job in list(this.jobs.values()):
        if job.finished:
            continue
        if job.status != JobStatus.terminating:
            end(this, job, reason)
        elif aborted and (job.kill_at is None or job.kill_at > this.now):
            this.update_job(job.with_(kill_at=this.now))
            this.draft.wake(f"instance/{job.assignment.instance_id}" if job.assignment else f"run/{job.run_id}")


def finish_if_gone(this: RunPass, job: Job) -> None:
    """Make a terminating job final if no agent is left to report that its task is gone. If the job has volumes, a
    silent host isn't enough: the task may still write to a disk that would be detached."""
    if job.status != JobStatus.terminating:
        return
    instance, presence = this.where(job)
    lost = None if job.assignment is not None and job.assignment.volumes else lost_at(this, job)
    this.check_by(lost)
    silent = lost is not None and this.now >= lost
    gone = instance is None or instance.status == InstanceStatus.terminated
    unborn = instance is not None and instance.started_at is None and (presence is None or not presence.last_seen)
    if not (gone or silent or unborn):
        return
    this.jobs[job.id], freed = this.draft.finish_job(job, instance)
    if freed is not None:
        this.instances[freed.id] = freed


def lost_at(this: RunPass, job: Job) -> Micros | None:
    """When a host counts as lost: one more reporting period after its first missed report was noticed. So a control
    plane that was itself down doesn't declare every host lost on its return."""
    _, presence = this.where(job)
    if job.disconnected_at is None or presence is None:
        return None
    promise = max(presence.seen_until - presence.last_seen, SHORTEST_PROMISE)
    return job.disconnected_at + promise
