"""Specs: what users submit, and what is derived from it for each job."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import NotRequired, TypedDict

from chalicelib.contract.values import Configuration, Id


class FileArchive(TypedDict):
    """An uploaded archive, and its path in the job."""

    id: Id
    path: str


class RunSpec(TypedDict):
    """A run as it was submitted. Its keys are those that the client sent; secrets are hidden."""

    run_name: str
    configuration: Configuration
    profile: NotRequired[Configuration | None]
    repo_id: NotRequired[str | None]
    repo_data: NotRequired[dict[str, Any] | None]
    repo_code_hash: NotRequired[str | None]
    repo_dir: NotRequired[str | None]
    file_archives: NotRequired[list[FileArchive]]
    working_dir: NotRequired[str | None]
    configuration_path: NotRequired[str | None]
    ssh_key_pub: NotRequired[str | None]


class FleetSpec(TypedDict):
    """A fleet as it was submitted. Its keys are those that the client sent; secrets are hidden."""

    configuration: Configuration
    profile: Configuration
    configuration_path: NotRequired[str | None]
    autocreated: NotRequired[bool]


class GatewaySpec(TypedDict):
    """A gateway as it was submitted."""

    configuration: Configuration
    configuration_path: NotRequired[str | None]


class CountRange(TypedDict):
    """Both ends belong to it; null: no limit."""

    min: int | None
    max: int | None


class SizeRange(TypedDict):
    """In GB. Both ends belong to it; null: no limit."""

    min: float | None
    max: float | None


class CpuRequirement(TypedDict):
    arch: Literal["x86", "arm"] | None
    count: CountRange


class GpuRequirement(TypedDict):
    vendor: Literal["nvidia", "amd", "google", "intel", "tenstorrent"] | None
    name: list[str] | None
    """Any of these will do."""
    count: CountRange
    """Per machine."""
    memory: SizeRange | None
    total_memory: SizeRange | None
    compute_capability: list[int] | None


class DiskRequirement(TypedDict):
    size: SizeRange


class RequiredResources(TypedDict):
    """What a machine must have."""

    cpu: CpuRequirement
    memory: SizeRange
    shm_size: float | None
    gpu: GpuRequirement | None
    disk: DiskRequirement | None


class Requirements(TypedDict):
    resources: RequiredResources
    max_price: float | None
    spot: bool | None
    """Null: either."""
    reservation: str | None
    multinode: bool | None
    backend_options: list[Configuration] | None


class App(TypedDict):
    """A port that a job listens on."""

    port: int
    map_to_port: int | None
    app_name: str
    url_path: str | None
    url_query_params: dict[str, str] | None


class UnixUser(TypedDict):
    uid: int | None
    gid: int | None
    username: str | None
    groupname: str | None


class UtilizationPolicy(TypedDict):
    min_gpu_utilization: int
    time_window: int
    """Seconds."""


class RegistryAuth(TypedDict):
    """Its values are hidden, but for references to variables and secrets."""

    username: str
    password: str


class RetryPolicy(TypedDict):
    on_events: list[str]
    duration: int
    """Seconds."""


class VolumeMount(TypedDict):
    name: str | list[str]
    path: str


class FolderMount(TypedDict):
    """A folder of the host."""

    instance_path: str
    path: str
    optional: bool


class SshKey(TypedDict):
    public: str
    private: str | None
    """Never in clear."""


class HttpHeader(TypedDict):
    name: str
    value: str


class Probe(TypedDict):
    """Times are seconds."""

    type: Literal["http"]
    url: str
    method: str
    headers: list[HttpHeader]
    body: str | None
    timeout: int
    interval: int
    ready_after: int
    until_ready: bool


class JobSpec(TypedDict):
    """What a job runs. Keys that can be absent are for the agent: a job that an older version planned has none of
    those that came later."""

    replica_num: int
    job_num: int
    job_name: str
    jobs_per_replica: int
    replica_group: str
    app_specs: list[App]
    user: UnixUser | None
    commands: list[str]
    env: dict[str, str]
    home_dir: str | None
    image_name: str
    privileged: bool
    single_branch: bool | None
    max_duration: int | None
    """Seconds."""
    stop_duration: int | None
    """Seconds from the request to exit to the kill; null: no limit."""
    utilization_policy: UtilizationPolicy | None
    registry_auth: RegistryAuth | None
    requirements: Requirements
    retry: RetryPolicy | None
    volumes: list[VolumeMount | FolderMount]
    ssh_key: SshKey | None
    working_dir: str | None
    repo_data: dict[str, Any] | None
    repo_code_hash: str | None
    repo_dir: str
    repo_exists_action: str | None
    file_archives: list[FileArchive]
    service_port: int | None
    probes: list[Probe]
    node_group_index: int
    node_group_name: str
    node_group_job_index: int
    shell: NotRequired[str | None]
    """Runs the commands one by one; null: they are an argv."""
    before: NotRequired[list[str]]
    after: NotRequired[list[str]]
    docker: NotRequired[bool]
    repo_id: NotRequired[str]
    unwatched: NotRequired[bool]
    queued: NotRequired[bool]
    routing: NotRequired[Literal["router", "worker"] | None]
    discovery: NotRequired[int | None]
    networked: NotRequired[bool]
    runtime: NotRequired[str | None]
    isolated: NotRequired[bool]
    dstack: NotRequired[bool]
    user_permitted: NotRequired[bool]
