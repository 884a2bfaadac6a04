"""An instance: a machine of a fleet, whether bought, reached over SSH, or the local one.

There are two items because there are two writers, so neither makes the other's write fail: the reconciler writes
`Instance` (status, claims, handles), the agent writes `Presence` (when it last reported, and when it will next).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator

from chalicelib.domain import keys
from chalicelib.domain.bounds import Cores, Mebibytes
from chalicelib.domain.ids import derive
from chalicelib.domain.instants import Micros
from chalicelib.domain.noun import Noun, Value
from chalicelib.domain.offers import Offer
from chalicelib.domain.reasons import InstanceReason
from chalicelib.printable import printable


class InstanceStatus(StrEnum):
    pending = "pending"
    provisioning = "provisioning"
    idle = "idle"
    busy = "busy"
    terminating = "terminating"
    terminated = "terminated"


class Claim(Value):
    """A place that a job holds: its block numbers, from the claim's commit until the job's end is committed."""

    job_id: str
    run_id: str
    replica_num: int = 0
    job_num: int = 0
    submission_num: int = 0
    blocks: tuple[int, ...]  # block indexes; a block belongs to at most one job


def instance_id(fleet_id: str, num: int) -> str:
    """The id of a fleet's instance number `num`, so that it can be read by key before an index shows it."""
    return derive(fleet_id, "instance", num)


class Handle(Value):
    """An external resource that `create` made, as the backend described it. `terminate` accepts any of them."""

    kind: str  # vm, disk, address, …: the backend's word
    id: str
    data: dict[str, str] = {}


class OnPrem(Value):
    """Where a host of an SSH fleet is reached. How to log in is in the fleet's spec number `spec_num`."""

    hostname: str
    port: int
    internal_ip: str = ""  # as the spec says; empty: as found
    blocks: int | Literal["auto"] | None = None  # None: the fleet's
    spec_num: int = 0

    @property
    def key(self) -> str:
        """What makes it the same host when the spec changes."""
        return f"{self.hostname}:{self.port}"


class Instance(Noun):
    kind: ClassVar[str] = "instance"

    id: str
    project_id: str
    fleet_id: str
    fleet_name: str
    num: int
    name: str
    epoch: int = 0  # which purchase in this place: part of every token, name and tag
    status: InstanceStatus = InstanceStatus.pending
    reason: InstanceReason | None = None
    message: str = ""
    offer: Offer  # what was bought or found: backend, region, type, resources, price; total_blocks
    total_blocks: int = 1
    claims: tuple[Claim, ...] = ()
    tags: dict[str, str] = {}  # for its resources in the cloud: the fleet's, and those of the run it is created for
    env: dict[str, str] = {}  # the fleet's `env`, for every job here
    idle_seconds: int | None = None  # None: never reaped for idleness
    handles: tuple[Handle, ...] = ()
    host: OnPrem | None = None  # of an SSH fleet: set up when it is added, and cleared when it is removed
    forgotten: bool = False  # a user chose not to wait until it is cleared
    hostname: str = ""
    internal_ip: str = ""
    gpu_driver: str | None = None
    runtimes: tuple[str, ...] = ()  # as its agent reported; empty until then
    isolation: str = ""  # of jobs, as its agent reported; empty until then, or from an older agent
    created_at: Micros
    last_processed_at: Micros
    started_at: Micros | None = None  # agent first heard
    idle_since: Micros | None = None
    finished_at: Micros | None = None
    act_until: Micros | None = None  # until then a committed effect may be in flight, and only its committer acts
    deadline: Micros | None = None  # pending/provisioning: when we give up
    unreachable: bool = False
    unreachable_since: Micros | None = None  # when the agent was first found overdue
    health: str = "healthy"
    stop_attempts: int = 0
    due_at: Micros | None = None

    @property
    def busy_blocks(self) -> int:
        return sum([len(claim.blocks) for claim in self.claims])

    @property
    def free_blocks(self) -> int:
        return self.total_blocks - self.busy_blocks

    @property
    def bought(self) -> bool:
        """Created by a backend, so it must be released; an SSH or local host isn't ours to end."""
        return self.offer.backend != "remote"

    @property
    def ended_at(self) -> Micros:
        """For a terminated instance."""
        return self.finished_at or self.last_processed_at

    def place(self) -> keys.Place:
        if self.status is InstanceStatus.terminated:
            ended = keys.by_time(keys.ENDED_INSTANCES, self.ended_at, self.id)
            return keys.Place(keys.instance(self.id), gsi2=ended, due=keys.due(f"instance/{self.id}", self.due_at))
        listed = (keys.instances_of(self.fleet_id), f"{self.num:06d}#{self.epoch:06d}")
        joined = self.status in (InstanceStatus.idle, InstanceStatus.busy)
        free = (keys.free_of(self.project_id), self.id) if joined and self.free_blocks > 0 else None
        return keys.Place(keys.instance(self.id), listed, free, keys.due(f"instance/{self.id}", self.due_at))


Words = Annotated[str, AfterValidator(printable)]  # of agents, shown to people


class GpuSeen(Value):
    name: Words
    memory_mib: Mebibytes
    vendor: Words
    driver: Words = ""


class HostFacts(Value):
    """What the agent found on its machine. A value it couldn't find is absent, never assumed."""

    cpus: Cores
    memory_mib: Mebibytes
    disk_mib: Mebibytes
    arch: Words  # x86, arm
    hostname: Words = ""
    addresses: tuple[Words, ...] = ()
    gpus: tuple[GpuSeen, ...] = ()
    runtimes: tuple[Words, ...] = ()  # docker, process
    isolation: dict[Words, Words] = {}  # by runtime: container, user (each task has its own), none
    user: Words = ""

    @property
    def isolates(self) -> str:
        """What separates the jobs of this machine; they run in containers where that is possible."""
        return "container" if "docker" in self.runtimes else self.isolation.get("process", "none")


class Presence(Noun):
    """The agent's side of an instance."""

    instance_id: str
    project_id: str
    boot: str = ""  # the agent process's id: a new one means that the agent restarted
    seq: int = 0  # the last message from this boot that changed something; an older one is a replay
    past_boots: tuple[str, ...] = ()  # earlier agent processes, newest first; messages from them are replays
    credential_hash: str = ""
    earlier_hashes: tuple[str, ...] = ()  # of credentials issued for the same token in the same minute: valid too
    previous_hash: str = ""  # the bootstrap token, valid for another 60 s from the same boot
    previous_until: Micros = 0
    last_seen: Micros = 0
    seen_until: Micros = 0  # the agent promised to report before this
    facts: HostFacts | None = None
    agent_version: str = ""

    def place(self) -> keys.Place:
        return keys.Place(keys.presence(self.instance_id))
