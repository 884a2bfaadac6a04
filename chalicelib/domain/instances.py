"""An instance: a machine of a fleet, whether bought, reached over SSH, or the local one.

There are two records because there are two writers, neither of which may make the other's write fail: the reconciler
writes `Instance` (status, claims, handles), the agent `Presence` (when it last reported, and when it will next).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator

from chalicelib.domain import keys
from chalicelib.domain.bounds import Cores, Mebibytes
from chalicelib.domain.gateways import GatewaySeat
from chalicelib.domain.ids import derive
from chalicelib.domain.instants import HOUR, Micros
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
    ports: tuple[int, ...] = ()  # that the job listens on


def instance_id(fleet_id: str, num: int) -> str:
    """The id of a fleet's instance number `num`, so that it can be read by key before an index shows it."""
    return derive(fleet_id, "instance", num)


class Handle(Value):
    """An external resource that `create` made, as the backend described it. `terminate` accepts any of them. The
    `data` of a machine has its `zone`, if the backend has zones."""

    kind: str  # vm, disk, address, …: as the backend calls it
    id: str
    data: dict[str, str] = {}


TRYING = "trying"  # the kind of a handle without a resource yet: one may be created in the zone of its data


class Jump(Value):
    """A machine that logins go through."""

    hostname: str
    port: int
    user: str


class OnPrem(Value):
    """How to reach a host of an SSH fleet. The keys are in the fleet's spec number `spec_num`. A host that joined by
    itself accepts no login; its own agent clears it."""

    hostname: str
    port: int
    user: str = ""
    jump: Jump | None = None
    internal_ip: str = ""  # as the spec says; empty: as found
    blocks: int | Literal["auto"] | None = None  # None: the fleet's
    spec_num: int = 0
    joined: bool = False  # it joined by itself, so the spec doesn't name it

    @property
    def key(self) -> str:
        """Identifies the host across changes of the spec."""
        return f"{self.hostname}:{self.port}"


CONTAINED = frozenset({"docker", "inside"})  # runtimes of agents whose jobs run in containers; `inside`: in their own
HealthStatus = Literal["healthy", "warning", "failure"]


class Instance(Noun):
    kind: ClassVar[str] = "instance"
    in_fleet: ClassVar[str] = "fleet_id"

    id: str
    project_id: str
    fleet_id: str
    fleet_name: str
    num: int
    name: str
    epoch: int = 0  # the number of the purchase: part of every token, name and tag
    status: InstanceStatus = InstanceStatus.pending
    reason: InstanceReason | None = None
    message: str = ""
    offer: Offer  # what was bought or found: backend, region, type, resources, price; total_blocks
    total_blocks: int = 1
    claims: tuple[Claim, ...] = ()
    tags: dict[str, str] = {}  # for its resources in the cloud: the fleet's, and those of the run it is created for
    env: dict[str, str] = {}  # the fleet's `env`, for every job here
    for_run: bool = False  # a run asked for it, not its fleet
    idle_seconds: int | None = None  # None: never reaped for idleness
    handles: tuple[Handle, ...] = ()
    registry_login: str = ""  # sealed: with which its container was first requested, until that is accepted
    carriers: dict[str, str] | None = None  # likewise: the SHA-256 of the carrier for each architecture; may be empty
    image_command: tuple[str, ...] = ()  # of its container, for a job without `commands`: what the image itself runs
    gang: str = ""  # of a container for one of several nodes: the attempt of the gang that it was bought for
    bundle: int | None = None  # the number of the first instance of its purchase, if that is of several (`bundles`)
    trying: str = ""  # the zone that its purchase tried last, if it isn't the first
    placement_group: str = ""  # id of the fleet's group that it is created in
    host: OnPrem | None = None  # of an SSH fleet: set up when it is added, and cleared when it is removed
    gateway: GatewaySeat | None = None  # the replica of a gateway that it carries
    disks: tuple[str, ...] = ()  # ids of volumes that are, or may be, attached
    taken_back_at: Micros | None = None  # terminating: when it is, or was, reclaimed; its jobs may stop until then
    detach_by: Micros | None = None  # terminating: how long it waits for its disks to be detached
    left: bool = False  # of a host that joined by itself: its agent has reported that the host is cleared
    forgotten: bool = False  # a user chose not to wait until the host is cleared
    hostname: str = ""
    internal_ip: str = ""
    networks: tuple[str, ...] = ()  # in a cluster: those that its agent reported
    runtimes: tuple[str, ...] = ()  # as its agent reported; empty until then
    isolation: str = ""  # of jobs, as its agent reported; empty until then, or from an older agent
    created_at: Micros
    last_processed_at: Micros
    started_at: Micros | None = None  # the first report of its agent
    idle_since: Micros | None = None
    finished_at: Micros | None = None
    act_until: Micros | None = None  # until then a committed effect may be in flight, and only its committer acts
    deadline: Micros | None = None  # pending/provisioning: when we give up
    unreachable_since: Micros | None = None  # when the agent was first found overdue; None: it reports
    health: HealthStatus = "healthy"
    health_message: str = ""  # what is wrong
    stop_attempts: int = 0
    due_at: Micros | None = None

    @property
    def unreachable(self) -> bool:
        return self.unreachable_since is not None

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
    def local(self) -> bool:
        """The server's own machine."""
        return not self.bought and self.host is None

    @property
    def of_gateway(self) -> bool:
        """Bought for a gateway, which is its owner instead of a fleet: no job ever comes here."""
        return self.gateway is not None and self.gateway.gateway_id == self.fleet_id

    @property
    def zone(self) -> str:
        """The zone in which the backend created it; empty if unknown, or if there are no zones."""
        return next((handle.data["zone"] for handle in self.handles if handle.data.get("zone")), "")

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
        takes = joined and self.free_blocks > 0 and not self.of_gateway
        free = (keys.free_of(self.project_id), self.id) if takes else None
        return keys.Place(keys.instance(self.id), listed, free, keys.due(f"instance/{self.id}", self.due_at))


UNWATCHED: Micros = 6 * HOUR
MAX_TROUBLES = 3  # troubles in one line
PrintableText = Annotated[str, AfterValidator(printable)]  # of agents, shown to people


class HostGpu(Value):
    name: PrintableText
    memory_mib: Mebibytes
    vendor: PrintableText
    driver: PrintableText = ""


class HostFacts(Value):
    """What the agent found on its machine. A value it couldn't find is absent, never assumed."""

    cpus: Cores
    memory_mib: Mebibytes
    disk_mib: Mebibytes
    arch: PrintableText  # x86, arm
    hostname: PrintableText = ""
    addresses: tuple[PrintableText, ...] = ()
    networks: tuple[PrintableText, ...] = ()  # as `address/prefix`; empty from an older agent
    gpus: tuple[HostGpu, ...] = ()
    runtimes: tuple[PrintableText, ...] = ()  # docker, process, inside
    isolation: dict[PrintableText, PrintableText] = {}  # by runtime: container, user (each task has its own), none
    user: PrintableText = ""

    @property
    def isolates(self) -> str:
        """What separates the jobs of this machine; they run in containers where that is possible."""
        contained = not CONTAINED.isdisjoint(self.runtimes)
        return "container" if contained else self.isolation.get("process", "none")


class Trouble(Value):
    """Something that is wrong with a machine."""

    status: Literal["warning", "failure"]
    message: str
    since: Micros


class Health(Value):
    """A machine's health as its agent last reported it."""

    troubles: tuple[Trouble, ...] = ()

    @property
    def status(self) -> HealthStatus:
        found = {trouble.status for trouble in self.troubles}
        return "failure" if "failure" in found else "warning" if found else "healthy"

    @property
    def message(self) -> str:
        """What is wrong, the worst first, in one line."""
        worst = sorted(self.troubles, key=lambda trouble: trouble.status)
        more = f"; and {len(worst) - MAX_TROUBLES} more" if len(worst) > MAX_TROUBLES else ""
        return "; ".join(trouble.message for trouble in worst[:MAX_TROUBLES]) + more

    def same(self, other: Health | None) -> bool:
        """Are the troubles the same, apart from their beginning?"""
        return other is not None and _problems_of(self) == _problems_of(other)


def _problems_of(health: Health) -> set[tuple[str, str]]:
    return {(trouble.status, trouble.message) for trouble in health.troubles}


class Presence(Noun):
    """The agent's side of an instance."""

    instance_id: str
    project_id: str
    boot: str = ""  # the agent process's id: a new one means that the agent restarted
    seq: int = 0  # the last message from this boot that changed something; an older one is a replay
    past_boots: tuple[str, ...] = ()  # earlier agent processes, newest first; messages from them are replays
    credential_hash: str = ""
    earlier_hashes: tuple[str, ...] = ()  # of credentials that repeats of the same exchange issued: valid too
    previous_hash: str = ""  # the bootstrap token, which the same boot may repeat until it uses a credential
    last_seen: Micros = 0
    seen_until: Micros = 0  # the agent promised to report before this
    followed_until: Micros = 0  # until then a client follows a log of a job there
    watched: bool = (
        False  # overdue agents are found by listing them (`engine/silent_agents.py`), not by a pass for each
    )
    over: bool = False  # its instance has ended, so no report is expected any more
    clock_off: Micros = 0  # how far its machine's clock is behind ours; negative if it is ahead
    facts: HostFacts | None = None
    health: Health | None = None  # None: its agent is too old to tell
    agent_version: str = ""

    @property
    def check_at(self) -> Micros:
        """When a pass has to check whether the agent has reported in time. A check that finds nothing wrong costs two
        writes, so where agents are `watched` it is only a fallback."""
        return self.seen_until + (UNWATCHED if self.watched else 1)

    def place(self) -> keys.Place:
        listed = (keys.PRESENCES, self.instance_id) if self.watched and not self.over else None
        return keys.Place(keys.presence(self.instance_id), listed)
