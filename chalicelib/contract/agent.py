"""The contract between an agent and the control plane: each message up, and each reply down.

Both sides are checked against these types and neither loads them: the agent is standard library only and shipped as one
file. The plane validates what comes up with models of its own (`usecases.agent_message`), because agents run beside
users' programs; a test compares the models with the types. A key may be added here. One that goes, or changes its
meaning, is needed by agents and planes of earlier releases. `docs/internals/agent-protocol.md` has the rules.

Times are microseconds since 1970, by the clock of whoever sends them, unless a key says otherwise.
"""

from __future__ import annotations

from typing import Literal, Union

from typing_extensions import NotRequired, TypedDict

from chalicelib.contract.jobs import PullProgress

TaskState = Literal["preparing", "pulling", "running", "exited"]
"""In this order: a task never goes back."""

# --- up: what an agent reports ----------------------------------------------------------------------------------------


class HostGpu(TypedDict):
    name: str
    memory_mib: int
    vendor: str
    driver: NotRequired[str]
    id: NotRequired[str]
    """By which the agent chooses it; the plane doesn't read it."""
    bus: NotRequired[str]
    """Its PCI address, likewise."""


class HostFacts(TypedDict):
    """What the machine has. A value that couldn't be found is absent, never assumed."""

    cpus: int
    memory_mib: int
    disk_mib: int
    arch: str
    """`x86` or `arm`."""
    hostname: NotRequired[str]
    addresses: NotRequired[list[str]]
    networks: NotRequired[list[str]]
    """As `address/prefix`."""
    gpus: NotRequired[list[HostGpu]]
    runtimes: NotRequired[list[str]]
    isolation: NotRequired[dict[str, str]]
    """By runtime: `container`, `user`, `none`, or `machine`, which is for one task."""
    user: NotRequired[str]


class Trouble(TypedDict):
    """Something that is wrong with the machine."""

    status: Literal["warning", "failure"]
    message: str
    age: int
    """Seconds."""


class TaskLogin(TypedDict, total=False):
    """The task's own SSH server, on the host's loopback. With a `problem` it has none."""

    port: int
    username: str
    host_key: str
    problem: str


class ReplicaReport(TypedDict, total=False):
    """The part of a report that is about a service's replica. Absent: not known yet."""

    listens: bool
    """Something accepts connections on its port."""
    probes: list[int]
    """Successes in a row of each probe."""
    host_port: int
    """The port that it got on the host whose network it shares."""
    address: str
    """Where that host reaches its port."""
    queue: int
    """Requests that wait inside its engine."""
    workers: str
    """Of a router: the revision of its list of workers that the agent uses."""
    cleared: str
    """Of a router: the latest revision whose workers were its only ones."""


class TaskReport(ReplicaReport):
    """A task as its agent knows it."""

    id: str
    state: TaskState
    at: NotRequired[int]
    exit_status: NotRequired[int | None]
    reason: NotRequired[str | None]
    """Why it ended: one of the reasons of jobs that agents may report."""
    message: NotRequired[str | None]
    pull: NotRequired[PullProgress | None]
    username: NotRequired[str | None]
    working_dir: NotRequired[str | None]
    ssh: NotRequired[TaskLogin | None]
    log_end: NotRequired[int]
    """Bytes of its log so far; once it has exited, of the whole log."""
    access: NotRequired[str | None]
    """The revision of the keys that may log in. Absent: this agent can't change them."""
    mounted: NotRequired[list[str]]
    """Ids of volumes that are mounted for it."""
    held: NotRequired[list[str]]
    """Exited: ids of volumes that couldn't be unmounted yet."""
    held_by: NotRequired[str | None]
    """The processes that use them."""
    connections: NotRequired[int | None]
    """Logins to it now."""
    idle_since: NotRequired[int | None]
    """When the last login ended."""


class LogBytes(TypedDict):
    """Bytes of a task's log from `offset` on."""

    task: str
    offset: int
    records: list[tuple[int, str]]
    """When it was written, and the bytes as base64."""


class Chunk(TypedDict):
    """A part of a log that is about to be uploaded, or has been (`stored`)."""

    task: str
    offset: int
    end: int
    low: int
    """When its first byte was written."""
    high: int
    """When its last byte was written."""
    size: int
    """Bytes of the object."""
    sha256: str
    stored: bool


class GpuLoad(TypedDict, total=False):
    """Absent: the GPU doesn't report it."""

    memory_usage_bytes: int
    util_percent: int


class MetricPoint(TypedDict):
    task: str
    at: int
    cpu_usage_micro: int
    memory_usage_bytes: int
    memory_working_set_bytes: int
    gpus: list[GpuLoad]


class GatewayOrder(TypedDict):
    """The gateway's replica that a machine carries, with its ports."""

    id: str
    num: int
    http: int
    https: int | None


class GatewayReport(GatewayOrder):
    """The state of the gateway's replica on this machine."""

    state: Literal["starting", "installing", "running", "failed"]
    message: str


class SyncMessage(TypedDict):
    """The body of `POST /agent/sync`."""

    v: int
    instance: str
    boot: str
    """A random id of this process of the agent."""
    seq: int
    """Increases by one with each message of a boot."""
    at: int
    agent: str
    """Its version."""
    facts: NotRequired[HostFacts]
    health: NotRequired[list[Trouble]]
    tasks: list[TaskReport]
    logs: list[LogBytes]
    chunks: NotRequired[list[Chunk]]
    metrics: list[MetricPoint]
    gateway: NotRequired[GatewayReport]
    taken_back_in: NotRequired[float]
    """Seconds until the cloud takes the machine back."""
    wait: float
    """For how many seconds the agent is willing to wait for news; 0: answer at once."""


# --- down: what the plane wants ---------------------------------------------------------------------------------------


class TaskArchive(TypedDict):
    """An archive that is fetched with the agent's credential from `url`, which is relative to the server's."""

    id: str
    url: str


class TaskFile(TaskArchive):
    path: str


class TaskRepo(TypedDict):
    """The code that is brought before the files. With a `name` it is cloned, and `code` is a patch to it."""

    path: str
    if_exists: Literal["error", "skip"]
    code: NotRequired[TaskArchive | None]
    name: NotRequired[str]
    url: NotRequired[str]
    branch: NotRequired[str | None]
    hash: NotRequired[str | None]
    single_branch: NotRequired[bool]
    user_name: NotRequired[str | None]
    user_email: NotRequired[str | None]
    oauth_token: NotRequired[str | None]
    private_key: NotRequired[str | None]


class DiskDevice(TypedDict, total=False):
    """What the machine's kernel calls a disk. All that is given must match."""

    serial: str
    by_id: str
    link: str
    backing_file: str
    folder: str
    """Bind-mounted instead of a disk."""
    read_only: bool
    """It is attached so that nothing on the machine can write it."""


class TaskDisk(TypedDict):
    kind: Literal["disk"]
    volume: str
    name: str
    path: str
    device: DiskDevice
    format: bool
    """May it be formatted if it is blank?"""
    install: str
    read_only: bool


class TaskFolderMount(TypedDict):
    kind: Literal["folder"]
    source: str
    path: str


TaskVolume = Union[TaskDisk, TaskFolderMount]


class TaskNode(TypedDict):
    name: str
    address: str
    port: int


class NodeSsh(TypedDict):
    """How the nodes of a job reach each other by SSH; `nodes` by rank."""

    rank: int
    private_key: str
    public_key: str
    host_private_key: str
    host_public_key: str
    nodes: list[TaskNode]


class TaskSidecar(TypedDict):
    """A container that is started before the job's, privileged, in the machine's network and with all its GPUs."""

    image: str
    entrypoint: NotRequired[str]
    args: NotRequired[list[str]]
    env: NotRequired[dict[str, str]]
    mounts: NotRequired[dict[str, str]]
    installs: NotRequired[bool]
    """It ends before the job starts."""
    ready: NotRequired[str]
    """What it prints before the job may start."""


class TaskInterconnect(TypedDict):
    """Paths of the machine for its fast network; those that exist are given to the job's container."""

    folders: list[str]
    devices: list[str]
    writable: NotRequired[list[str]]
    libraries: NotRequired[str]
    sidecars: NotRequired[list[TaskSidecar]]


class TaskUser(TypedDict):
    uid: int | None
    username: str | None
    gid: int | None
    groupname: str | None


class RegistryLogin(TypedDict):
    username: str
    password: str


class TaskProbe(TypedDict):
    type: str
    url: str
    method: str
    headers: list[dict[str, str]]
    body: str | None
    timeout: int
    interval: int
    ready_after: int
    until_ready: NotRequired[bool]


class TaskCommands(TypedDict):
    commands: list[str]
    """The argv to execute."""
    shell: str | None
    steps: NotRequired[list[str]]
    """Names of the commands, for the message about the one that failed."""


class TaskOptions(TypedDict, total=False):
    """What only some tasks have: a service's replica the first four, a job on several nodes the last three."""

    service_port: int
    probes: list[TaskProbe]
    queue: bool
    """Report how many requests wait inside its engine."""
    router: bool
    network: Literal["host"]
    """A container is in its host's network; also for some replicas."""
    node_ssh: NodeSsh
    interconnect: TaskInterconnect


class PlannedTask(TaskCommands, TaskOptions):
    """What a machine is to run, as it is planned: with references to secrets, and without the keys of its users."""

    id: str
    name: str
    project: str
    project_id: str
    env: dict[str, str]
    image: str
    runtime: str | None
    """`docker`, `process` or `inside`; null: the agent chooses."""
    isolated: bool
    """It is refused where it would run as the agent's own user."""
    user: TaskUser | None
    user_permitted: bool
    working_dir: str | None
    privileged: bool
    docker: bool
    """The container has a Docker engine of its own."""
    ports: list[int]
    registry_auth: RegistryLogin | None
    cpu: float
    """0: no limit; likewise of memory."""
    memory_bytes: int
    shm_bytes: int
    gpus: int
    """How many; -1: all."""
    gpu_devices: list[str]
    max_duration: int | None
    stop_duration: int | None
    files: list[TaskFile]
    repo: TaskRepo | None
    hostfile: str
    host_user: str | None
    """The user of the host through whom the keys also lead to the task."""
    volumes: list[TaskVolume]
    home_dir: str | None


class Task(PlannedTask):
    """What a machine is to run, with its secrets."""

    access: str
    """The revision of `authorized_keys`."""
    authorized_keys: list[str]


class TaskOrder(TypedDict):
    """A task that is wanted here, or is to end. A task without an order is left alone."""

    id: str
    want: Literal["run", "stop", "abort", "remove"]
    spec: NotRequired[Task]
    """Sent until the agent lists the task."""
    grace: NotRequired[float]
    """Of `stop`: seconds until it is killed."""
    access: NotRequired[str]
    """With `authorized_keys`, if the agent has another list."""
    authorized_keys: NotRequired[list[str]]
    workers: NotRequired[str]
    """Of a router, with `worker_urls`, if the agent has another list."""
    worker_urls: NotRequired[list[str]]


class LogCursor(TypedDict):
    """The bytes of a log that the plane holds. The agent goes on from there."""

    task: str
    offset: int


class Upload(TypedDict):
    """Where to PUT the part of a log that the message announced."""

    task: str
    url: str
    headers: dict[str, str]


class StreamOrder(TypedDict):
    """A stream to dial."""

    id: str
    ticket: str
    task: str
    target: str
    """`port:N`, `logs` or `ssh`."""
    since: NotRequired[int]
    """Of `logs`: from this moment on."""
    lazily: NotRequired[bool]
    """The port is connected to for the first byte."""
    gateway: NotRequired[str]
    """The address to dial instead of the server's."""
    pin: NotRequired[str]
    """The SHA-256 of that gateway's certificate."""


class SyncReply(TypedDict):
    """The answer to a `SyncMessage`."""

    seq: int
    tasks: list[TaskOrder]
    logs: list[LogCursor]
    next_sync_in: float
    """Seconds until the next call if nothing happens."""
    news: bool
    """Does it ask for anything? A long poll waits until it does; agents needn't read it."""
    log_every: NotRequired[float]
    """Seconds for which output may wait for more."""
    log_put: NotRequired[int]
    """Bytes of waiting output from which it is uploaded."""
    uploads: NotRequired[list[Upload]]
    credential: NotRequired[str]
    """To use from now on, in the reply to a bootstrap token."""
    boot: NotRequired[Literal["past"]]
    """Another process of this agent has called since."""
    streams: NotRequired[list[StreamOrder]]
    gateway: NotRequired[GatewayOrder]
    error: NotRequired[Literal["gone"]]
    """End all tasks and stop."""
    lease: NotRequired[str]
    """Of a pair of servers: its lease, …"""
    epoch: NotRequired[int]
    """… and how often that has changed hands. An agent that knows a higher one of this lease ignores the reply."""


class Left(TypedDict):
    """The body of `POST /agent/left`."""

    instance: str
