"""Jobs: the parts of a run, each with its submissions, and how to reach them."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from chalicelib.contract.offers import InstanceType, Offer
from chalicelib.contract.specs import JobSpec
from chalicelib.contract.values import Date, Id

JobStatus = Literal[
    "submitted",
    "provisioning",
    "pulling",
    "running",
    "terminating",
    "terminated",
    "aborted",
    "failed",
    "done",
]
JobReason = Literal[
    "failed_to_start_due_to_no_capacity",
    "interrupted_by_no_capacity",
    "instance_unreachable",
    "instance_access_revoked",
    "waiting_instance_limit_exceeded",
    "waiting_runner_limit_exceeded",
    "terminated_by_user",
    "volume_error",
    "gateway_error",
    "scaled_down",
    "done_by_runner",
    "aborted_by_user",
    "terminated_by_server",
    "inactivity_duration_exceeded",
    "terminated_due_to_utilization_policy",
    "container_exited_with_error",
    "ports_binding_failed",
    "creating_container_error",
    "executor_error",
    "max_duration_exceeded",
    "log_quota_exceeded",
]


class SshProxy(TypedDict):
    """The host through which one logs in to a machine."""

    hostname: str
    username: str
    port: int


class ProvisioningData(TypedDict):
    """The machine that a job has, and how to log in to it."""

    backend: str
    base_backend: None
    instance_type: InstanceType
    instance_id: str
    hostname: str | None
    internal_ip: str | None
    public_ip_enabled: bool
    instance_network: None
    region: str
    availability_zone: str | None
    reservation: str | None
    price: float
    """Dollars an hour, for the whole machine."""
    username: str
    ssh_port: int | None
    dockerized: bool
    """Does one log in to the host first, and from there to the job?"""
    ssh_proxy: SshProxy | None
    backend_data: None
    gpu_driver: None


class RuntimeData(TypedDict):
    """What a job has of its machine."""

    network_mode: Literal["host"]
    gpu: None
    cpu: None
    memory: None
    ports: dict[str, int]
    """Ports of the job to those of its host."""
    volume_names: list[str]
    offer: Offer
    working_dir: str | None
    username: str | None


class ProbeState(TypedDict):
    success_streak: int


class Login(TypedDict):
    """A job's own SSH server, on its host's loopback. With a `problem` it has none."""

    port: int
    username: str
    host_key: str
    problem: str


class PullProgress(TypedDict):
    """Of the job's image."""

    downloaded_bytes: int
    extracted_bytes: int
    total_bytes: int
    is_total_bytes_final: bool


class Submission(TypedDict):
    """One attempt of a job."""

    id: Id
    submission_num: int
    deployment_num: int
    """Which version of its run's spec it runs."""
    submitted_at: Date
    last_processed_at: Date
    finished_at: Date | None
    inactivity_secs: int | None
    """For how long nobody has been connected to a dev environment."""
    status: JobStatus
    status_message: str
    termination_reason: JobReason | None
    termination_reason_message: str | None
    """Why it ended, or what it waits for."""
    exit_status: int | None
    job_provisioning_data: ProvisioningData | None
    job_runtime_data: RuntimeData | None
    error: str | None
    probes: list[ProbeState]
    login: Login | None
    image_pull_progress: PullProgress | None


class ConnectionInfo(TypedDict):
    """How to connect to a job that one is attached to."""

    ide_name: str | None
    attached_ide_url: str | None
    proxied_ide_url: None
    attached_ssh_command: list[str]
    proxied_ssh_command: None
    sshproxy_hostname: None
    sshproxy_port: None
    sshproxy_upstream_id: None


class Job(TypedDict):
    """A job with its submissions, oldest first."""

    job_spec: JobSpec
    job_submissions: list[Submission]
    job_connection_info: ConnectionInfo | None
