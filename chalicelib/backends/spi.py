"""The protocol of a backend: eight members, no waiting, one set of errors.

The contract, which one test suite checks for every backend:

* `create` yields a handle after every external resource that it creates, before it creates the next one, so no resource
  is lost. When it is called again with the same request, it adopts what exists and yields the same handles. No single
  step takes longer than half of `facts.create_timeout`. If it tries one zone after another, and a token is valid in one
  zone only, it yields a handle of the kind `TRYING` before each zone but the first. That is no resource; it says where
  one may exist. The next call gets that zone, and tries it first.
* `terminate` accepts any handle ever yielded, in any state, any number of times. It returns once termination has been
  requested, and raises Gone when nothing is left. Only Gone proves that.
* `describe` raises Gone too; for a machine that the provider couldn't create after all, with what `create` would have
  raised (`refused`). Of a container that failed to start, or has exited, that is ContainerFailed; it is to be
  terminated all the same. InsufficientCapacity of one that has run for its job means that it was taken back.
  A resource may be missing from it for `facts.visibility_lag` after `create`.
* If the offer's `bundle` is more than 1, `create` is called for the first of so many machines, and makes them all
  (`CreateRequest.bundle`); `terminate` ends all. `describe` gets the same handles for each, with its number as their
  data's `worker`. For `list_owned`, all is the first one's.
* `list_owned` is complete, or it raises. What it doesn't list, after `facts.visibility_lag`, is described once more.
* No call sleeps or polls; the engine calls again.
* Every failure is raised as one of the BackendErrors; a provider's own exception never leaves its package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import Micros
from chalicelib.domain.offers import Offer
from chalicelib.domain.volumes import ProviderDisk
from chalicelib.errors import BackendError

if TYPE_CHECKING:
    from chalicelib.domain.offer_requests import OfferRequest


@dataclass(frozen=True, repr=False)
class RegistryLogin:
    """The login with which a provider pulls a private image."""

    username: str
    password: str
    secret_username: bool = False  # no text may show the user name, which comes from a secret, too


@dataclass(frozen=True)
class ContainerMount:
    """A volume that the provider mounts."""

    volume: Handle
    path: str
    read_only: bool = False


@dataclass(frozen=True)
class GangMember:
    """One of several containers for the nodes of one task. They are created by a call each, in any order, and none
    runs, or takes what others need, before all of them are created: the last call starts them all, if they fit at
    once, and else raises InsufficientCapacity. They reach each other at their internal addresses."""

    token: str  # the same for all of them, and for no others
    rank: int  # from 0
    nodes: int  # how many they are


@dataclass(frozen=True)
class Container:
    """A container that is bought in place of a machine (`offer.is_container`), for one job. Its first process is the
    agent, which gets the job's commands, environment, secrets and files from the control plane as on any machine.

    It never asks for anything that the offer's `grants` don't name."""

    image: str
    command: tuple[str, ...]  # in place of the image's entry point and arguments
    env: Mapping[str, str] = field(repr=False)  # added to the image's: the agent's settings, with its token
    login: RegistryLogin | None = None
    user: str = ""  # as in `docker run --user`; empty: the image's own
    privileged: bool = False
    shm_mib: int = 0  # shared memory; 0: the provider's default
    mounts: tuple[ContainerMount, ...] = ()
    gang: GangMember | None = None
    run: str = ""  # the id of the run that it is for, whose containers a provider may spread; empty: a gateway's


@dataclass(frozen=True)
class CreateRequest:
    """Everything that a backend needs to create one machine. Two equal requests create one machine."""

    token: str  # idempotency token: install/project/instance/epoch, hashed
    name: str  # shown in the provider's console
    tags: tuple[tuple[str, str], ...]  # owner tags: install, project, instance, epoch
    offer: Offer
    instance_id: str
    user_data: str  # starts the agent with its single-use token; byte-identical if repeated; empty for a `container`
    disk_mib: int
    zones: tuple[str, ...] | None = None
    reservation: str | None = None
    trying: str = ""  # the zone that an earlier call tried last; empty: its first, or there was none
    open_ports: tuple[int, ...] = ()  # a gateway's, open to the world at an address that the gateway itself can reach
    placement_group: Handle | None = None  # that the machine joins; `create` raises Gone if it doesn't exist (yet)
    bundle: tuple[str, ...] = ()  # the start scripts of all machines of a bundle, by number; `user_data` is the first
    container: Container | None = None  # what it runs, where containers are sold in place of machines


@dataclass(frozen=True)
class Machine:
    """A created machine, as the provider describes it."""

    state: Literal["pending", "running"]
    hostname: str = ""
    internal_ip: str = ""
    interrupted: bool = False  # the provider has announced that it will take the machine back
    reclaim_at: Micros | None = None  # then; None: soon
    message: str = ""  # why it will, as the provider says


@dataclass(frozen=True)
class Owned:
    """A resource at the provider with our owner tag. Orphans are found this way."""

    handle: Handle
    install: str
    project_id: str
    instance_id: str
    epoch: int


class Backend(Protocol):
    facts: BackendFacts

    def check(self) -> None:
        """Checks the credentials. Raises InvalidCredentials or MissingPermission."""

    def offers(self) -> Sequence[Offer]:
        """Everything that can be bought, with prices. Only the catalog's refresh calls this, never a plan. It isn't
        called at all if the backend has `LiveOffers`."""

    def create(self, request: CreateRequest) -> Iterator[Handle]: ...

    def describe(self, handles: Sequence[Handle]) -> Machine: ...

    def terminate(self, handle: Handle) -> None: ...

    def list_owned(self, instance_id: str | None = None, region: str = "") -> Iterator[Owned]:
        """Everything with our owner tag, or only what belongs to `instance_id` (filtered by the provider if it can). An
        instance's resources are all in the region of its offer. If that is given, no other region is called."""

    def close(self) -> None: ...


# --- optional capabilities -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CreateResult:
    """What one call for several machines did for one of them: a resource of it, or the reason why it wasn't created."""

    token: str  # of its request
    handle: Handle | None = None
    error: BackendError | None = None


@runtime_checkable
class CreatesSeveral(Protocol):
    """For a backend whose `facts.batch` is how many machines one call creates.

    Each machine, or container, has its own request, and gets the same token, name and tags as from a single `create`.
    So `create` adopts what this call created, and a call whose response was lost is repeated machine by machine. All
    machines may exist before the first is yielded. A machine's error is yielded after whatever was created of it; a
    machine without an error is complete when the last result is yielded. An exception applies to every machine without
    its own error.
    """

    def create_several(self, requests: Sequence[CreateRequest]) -> Iterator[CreateResult]: ...


@runtime_checkable
class DescribesSeveral(Protocol):
    """For a backend whose `facts.describes` is how many machines it describes in one call, at most.

    For each, in their order, it returns what `describe` would return, or the error that it would raise. An exception
    applies to all of them.
    """

    def describe_several(self, machines: Sequence[Sequence[Handle]]) -> Sequence[Machine | BackendError]: ...


@dataclass(frozen=True)
class MachineChange:
    """Something has happened to an instance's machine."""

    instance_id: str
    gone: bool = False  # it isn't listed any more


@runtime_checkable
class Watches(Protocol):
    """For a backend whose provider reports changes over a connection that stays open.

    Only a process that stays keeps a watch. Whatever the watch has seen, `describe` may answer from that, except that a
    machine is gone: its provider is asked for that. Without a watch, or while it fails, `describe` asks as ever.
    """

    def watch(self, changed: Callable[[Sequence[MachineChange]], None], install: str) -> Callable[[], None]:
        """Follow the installation's machines, those that are there and those that will be, until the returned function
        is called, or `close`. `changed` is called by threads of the backend, as soon as a description would be another.
        It is a hint: some changes come twice, and some never."""


@dataclass(frozen=True)
class GroupRequest:
    """Everything that a backend needs to create one placement group. Two equal requests create one."""

    token: str  # idempotency token
    name: str  # unique in the installation: it serves as the token if the provider accepts none
    tags: tuple[tuple[str, str], ...]  # owner tags: install, project, fleet, group
    offer: Offer  # the first machine's, for its region, and for its type if groups depend on that
    zones: tuple[str, ...] | None = None  # a group that is bound to a zone takes one of these


@dataclass(frozen=True)
class OwnedGroup:
    """A placement group at the provider with our owner tag."""

    handle: Handle
    install: str
    project_id: str
    fleet_id: str
    group_id: str


@runtime_checkable
class PlacementGroups(Protocol):
    """For a backend with placement groups, which keep the machines of a cluster close together.

    A machine joins when it is created and leaves when it is gone. If a group is bound to a zone, the handle's data has
    the `zone`, and its machines are created there. A type that can't be in a group raises Unfit, and a full group
    QuotaExceeded. Listings are complete, as with machines.
    """

    def create_group(self, request: GroupRequest) -> Handle:
        """Creates the group. A repeated call with the same request returns the existing one."""

    def delete_group(self, handle: Handle) -> None:
        """Requests the deletion. It is repeated until it raises Gone. Raises InUse while a machine is in the group."""

    def list_owned_groups(self) -> Iterator[OwnedGroup]: ...


@dataclass(frozen=True)
class VolumeRequest:
    """Everything that a backend needs to create one volume. Two equal requests create one."""

    token: str  # idempotency token: install/project/volume/epoch, hashed
    name: str
    tags: tuple[tuple[str, str], ...]  # owner tags: install, project, volume, epoch
    region: str
    zone: str  # empty: any
    size_gib: int
    configuration: Mapping[str, Any] = field(default_factory=dict)  # as written, for what only this backend has


@dataclass(frozen=True)
class OwnedVolume:
    """A volume at the provider with our owner tag."""

    handle: Handle
    install: str
    project_id: str
    volume_id: str
    epoch: int


@runtime_checkable
class Volumes(Protocol):
    """For a backend with disks that outlive the machines that they are attached to.

    Each call makes its request and returns. `describe_volume` shows the result, and nothing else proves it. All calls
    may be repeated: a volume that exists under the token is adopted, one that is already attached to the machine stays
    attached, and one that isn't attached counts as detached. A container has those that it was created with, and no
    others. The description shows an attachment from its request
    (`attaching_to`) until the volume has left the machine. A call for a volume that doesn't exist raises Gone, and one
    that another machine prevents raises InUse. Listings are complete, as with machines.
    """

    def create_volume(self, request: VolumeRequest) -> Handle: ...

    def register_volume(self, volume_id: str, region: str, zone: str) -> ProviderDisk:
        """Finds an existing volume by the provider's id. Nothing is changed at the provider."""

    def describe_volume(self, handle: Handle) -> ProviderDisk: ...

    def attach_volume(self, handle: Handle, machine: Sequence[Handle], *, read_only: bool = False) -> None:
        """`read_only`: nothing on the machine can write to it, if `facts.read_only_attach` is set. Otherwise only the
        agent enforces that."""

    def detach_volume(self, handle: Handle, machine: Sequence[Handle]) -> None: ...

    def delete_volume(self, handle: Handle) -> None:
        """Requests the deletion. Raises Gone when nothing is left, InUse while it is attached."""

    def list_owned_volumes(self, volume_id: str | None = None, region: str = "") -> Iterator[OwnedVolume]: ...


class IncompleteOffers(list[Offer]):
    """Offers, beside which there may be others: `missing` says which, and why they aren't known."""

    def __init__(self, offers: Iterable[Offer], missing: str) -> None:
        super().__init__(offers)
        self.missing = missing


@runtime_checkable
class LiveOffers(Protocol):
    """For a market: its offers can't be listed, or are others a moment later. It is asked for a plan, and once more
    when a machine is about to be bought; `facts.offers_last` is how long its answer may be used for that.

    An offer that is one machine has it as `terms.listing`; creating it raises InsufficientCapacity once it is taken.
    """

    def offers_for(self, request: OfferRequest) -> Sequence[Offer]:
        """The best offers that meet the request, a hundred at most; some that don't do no harm. If it knows why it has
        none, it may raise InsufficientCapacity, which says so. If it couldn't find out about all, it returns
        IncompleteOffers."""


@runtime_checkable
class GatewayContainers(Protocol):
    """For a backend whose containers can have an address that the world reaches, so that gateways run in them. Those
    that sell machines open ports of these (`facts.gateways`).

    The container is like any other that `create` makes, and `open_ports` are reached at its address under the same
    numbers. What is kept or charged for the address has handles of its own. `describe` calls the container pending
    until it has its address, which is the `hostname`; if none comes, it raises Gone with the reason, and Unfit as
    `refused`.
    """

    def create_gateway(self, request: CreateRequest) -> Iterator[Handle]:
        """As `create`, for a request with `open_ports`."""


def facts_of(backend: Backend | type[Backend]) -> BackendFacts:
    """The facts that the backend, or its class, declares, and those that follow from its methods."""

    def has(capability: type) -> bool:
        return issubclass(backend, capability) if isinstance(backend, type) else isinstance(backend, capability)

    return backend.facts.with_(
        volumes=has(Volumes),
        placement_groups=has(PlacementGroups),
        live_offers=has(LiveOffers),
        watches=has(Watches),
        gateways=backend.facts.gateways or has(GatewayContainers),
        gateway_containers=has(GatewayContainers),
    )
