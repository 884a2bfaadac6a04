"""How jobs end: they are asked to exit, given time to do so, and final once nothing of them is left on a machine."""

from __future__ import annotations

from chalicelib.domain.instances import InstanceStatus
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.job_specs import JobSpec
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.reasons import JobReason, RunReason, reason_for_jobs
from chalicelib.machines.job import GRACE, SHORTEST_PROMISE
from chalicelib.planning.runs.run_pass import RunLook


def grace_of(spec: JobSpec) -> Micros | None:
    """How long a job may take to exit when asked; None: no limit."""
    return None if spec.stop_duration is None else spec.stop_duration * SECOND


def end(look: RunLook, job: Job, reason: JobReason, message: str = "") -> Job:
    """Start terminating a live job."""
    spec = look.spec_of(job)
    grace = GRACE if spec is None else grace_of(spec)
    ending = look.draft.end_job(job, reason, message=message, exit_status=job.exit_status, grace=grace)
    look.jobs[job.id] = ending
    return ending


def end_jobs(look: RunLook) -> None:
    """A run that ends takes its live jobs with it; an abort doesn't wait for those already on their way out."""
    aborted = look.run.reason is RunReason.aborted_by_user
    reason = reason_for_jobs(look.run.reason or RunReason.server_error)
    for job in list(look.jobs.values()):
        if job.finished:
            continue
        if job.status != JobStatus.terminating:
            end(look, job, reason)
        elif aborted and (job.kill_at is None or job.kill_at > look.now):
            look.keep(job.with_(kill_at=look.now))
            look.draft.wake(f"instance/{job.assignment.instance_id}" if job.assignment else f"run/{job.run_id}")


def bury(look: RunLook, job: Job) -> None:
    """Make a terminating job final if no agent is left to report that its task is gone. That a host is silent isn't
    enough if the job has volumes: its task may go on writing to a disk that would be detached."""
    if job.status != JobStatus.terminating:
        return
    instance, presence = look.where(job)
    lost = None if job.assignment is not None and job.assignment.volumes else lost_at(look, job)
    silent = lost is not None and look.now >= lost
    gone = instance is None or instance.status == InstanceStatus.terminated
    unborn = instance is not None and instance.started_at is None and (presence is None or not presence.last_seen)
    if not (gone or silent or unborn):
        return
    look.jobs[job.id], freed = look.draft.finish_job(job, instance)
    if freed is not None:
        look.instances[freed.id] = freed


def lost_at(look: RunLook, job: Job) -> Micros | None:
    """When a host counts as lost: after its first missed report, one more reporting period passes without one. Counted
    from when we noticed, so that a control plane that was itself down doesn't declare every host lost on its return."""
    _, presence = look.where(job)
    if job.disconnected_at is None or presence is None:
        return None
    promise = max(presence.seen_until - presence.last_seen, SHORTEST_PROMISE)
    look.deadlines.append(job.disconnected_at + promise)
    return job.disconnected_at + promise
