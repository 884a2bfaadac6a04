"""Why things end. Values are the wire's; the tables below give the status, retry and display of each reason.

Source of the vocabulary: the client's enumerations JobTerminationReason, RunTerminationReason and
InstanceTerminationReason.
"""

from __future__ import annotations

from enum import StrEnum


class RetryEvent(StrEnum):
    no_capacity = "no-capacity"
    interruption = "interruption"
    error = "error"


class JobReason(StrEnum):
    failed_to_start_due_to_no_capacity = "failed_to_start_due_to_no_capacity"
    interrupted_by_no_capacity = "interrupted_by_no_capacity"
    instance_unreachable = "instance_unreachable"
    instance_access_revoked = "instance_access_revoked"
    waiting_instance_limit_exceeded = "waiting_instance_limit_exceeded"
    waiting_runner_limit_exceeded = "waiting_runner_limit_exceeded"
    terminated_by_user = "terminated_by_user"
    volume_error = "volume_error"
    gateway_error = "gateway_error"
    scaled_down = "scaled_down"
    done_by_runner = "done_by_runner"
    aborted_by_user = "aborted_by_user"
    terminated_by_server = "terminated_by_server"
    inactivity_duration_exceeded = "inactivity_duration_exceeded"
    terminated_due_to_utilization_policy = "terminated_due_to_utilization_policy"
    container_exited_with_error = "container_exited_with_error"
    ports_binding_failed = "ports_binding_failed"
    creating_container_error = "creating_container_error"
    executor_error = "executor_error"
    max_duration_exceeded = "max_duration_exceeded"
    log_quota_exceeded = "log_quota_exceeded"


class RunReason(StrEnum):
    all_jobs_done = "all_jobs_done"
    job_failed = "job_failed"
    retry_limit_exceeded = "retry_limit_exceeded"
    stopped_by_user = "stopped_by_user"
    aborted_by_user = "aborted_by_user"
    server_error = "server_error"
    gateway_error = "gateway_error"


class InstanceReason(StrEnum):
    terminated_by_user = "terminated_by_user"
    idle_timeout = "idle_timeout"
    provisioning_timeout = "provisioning_timeout"
    error = "error"
    job_finished = "job_finished"
    unreachable = "unreachable"
    no_offers = "no_offers"
    master_failed = "master_failed"
    max_instances_limit = "max_instances_limit"
    fleet_spec_mismatch = "fleet_spec_mismatch"
    no_balance = "no_balance"


_STOPPED = {
    JobReason.terminated_by_user,
    JobReason.terminated_by_server,
    JobReason.scaled_down,
    JobReason.inactivity_duration_exceeded,
    JobReason.terminated_due_to_utilization_policy,
    JobReason.max_duration_exceeded,
}


def job_outcome(reason: JobReason) -> str:
    """The final job status for a reason: done, aborted, terminated or failed."""
    if reason is JobReason.done_by_runner:
        return "done"
    if reason is JobReason.aborted_by_user:
        return "aborted"
    return "terminated" if reason in _STOPPED else "failed"


def retry_event(reason: JobReason) -> RetryEvent | None:
    """Which `retry.on_events` entry covers this end; None if it is never retried."""
    if job_outcome(reason) != "failed":
        return None
    if reason is JobReason.failed_to_start_due_to_no_capacity:
        return RetryEvent.no_capacity
    if reason is JobReason.interrupted_by_no_capacity:
        return RetryEvent.interruption
    return RetryEvent.error


def run_outcome(reason: RunReason) -> str:
    """The final run status for a reason: done, terminated or failed."""
    if reason is RunReason.all_jobs_done:
        return "done"
    return "terminated" if reason in (RunReason.stopped_by_user, RunReason.aborted_by_user) else "failed"


def reason_for_jobs(reason: RunReason) -> JobReason:
    """The reason that a run's live jobs get when the run ends."""
    return {
        RunReason.all_jobs_done: JobReason.done_by_runner,
        RunReason.stopped_by_user: JobReason.terminated_by_user,
        RunReason.aborted_by_user: JobReason.aborted_by_user,
    }.get(reason, JobReason.terminated_by_server)


def short_text(reason: JobReason, exit_status: int | None) -> str:
    """The STATUS cell of a finished job; empty if the status alone says it."""
    if reason is JobReason.container_exited_with_error:
        return f"exited ({exit_status})"
    if reason is JobReason.done_by_runner:
        return "exited (0)"
    words = {
        JobReason.failed_to_start_due_to_no_capacity: "no capacity",
        JobReason.interrupted_by_no_capacity: "interrupted",
        JobReason.terminated_by_user: "stopped",
        JobReason.aborted_by_user: "aborted",
        JobReason.terminated_due_to_utilization_policy: "utilization policy",
        JobReason.inactivity_duration_exceeded: "inactivity duration exceeded",
        JobReason.max_duration_exceeded: "max duration exceeded",
        JobReason.scaled_down: "scaled down",
        JobReason.terminated_by_server: "",
    }
    return words.get(reason, "error")
