"""What a backend is: eight members, no waiting, errors from one vocabulary.

The contract, which one suite checks for every backend:

* `create` yields a handle after every external resource it creates, before it creates the next: what is yielded is
  never lost. Called again with the same request it adopts what exists and yields the same handles. No single step
  takes longer than half of `facts.create_timeout`. Where a machine is tried in one zone after another, and a token is
  good for a zone, it yields a handle of the kind `TRYING` before each zone but the first: no resource, but where one
  may be. The next call gets that zone, and tries it first.
* `terminate` accepts any handle ever yielded, in any state, any number of times. It returns once termination has been
  requested, and raises Gone when nothing is left. Only Gone is proof.
* `describe` raises Gone too; for a machine that the provider couldn't create after all, with what `create` would have
  raised (`refused`). Of a container that failed to start, or has exited, that is ContainerFailed; it is to be
  terminated all the same. A resource may be missing from it for `facts.visibility_lag` after `create`.
* `list_owned` is complete, or it raises: what it doesn't show counts as gone, after `facts.visibility_lag`.
* No call sleeps or polls; the engine calls again.
* Every failure is raised as one of the BackendErrors; a provider's own exception never leaves its package.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

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
    """With which a provider pulls a private image."""

    username: str
    password: str


@dataclass(frozen=True)
class ContainerMount:
    """A volume that the provider mounts."""

    volume: Handle
    path: str
    read_only: bool = False


@dataclass(frozen=True)
class Container:
    """A container that is bought in place of a machine (`offer.is_container`), for one job. Its first process is the
    agent, which gets the job's commands, environment, secrets and files from the control plane as on any machine.

    What the offer's `grants` don't name is never asked for."""

    image: str
    command: tuple[str, ...]  # in place of the image's entry point and arguments
    env: Mapping[str, str] = field(repr=False)  # the agent's settings, its token among them: added to the
    # image's
    login: RegistryLogin | None = None
    user: str = ""  # who it runs as, as in `docker run --user`; empty: the image's own
    privileged: bool = False
    shm_mib: int = 0  # of shared memory; 0: the provider's usual size
    mounts: tuple[ContainerMount, ...] = ()


@dataclass(frozen=True)
class CreateRequest:
    """All that a backend needs to create one machine; two equal requests create one machine."""

    token: str  # idempotency token: install/project/instance/epoch, hashed
    name: str  # shown in the provider's console
    tags: tuple[tuple[str, str], ...]  # owner tags: install, project, instance, epoch
    offer: Offer
    instance_id: str
    user_data: str  # starts the agent with its single-use bootstrap token; byte-identical if repeated; empty: see
    # `container`
    disk_mib: int
    zones: tuple[str, ...] | None = None
    reservation: str | None = None
    trying: str = ""  # the zone that an earlier call tried last; empty: its first, or there was none
    open_ports: tuple[int, ...] = ()  # a gateway's, which the whole world reaches at an address that it reaches, too
    placement_group: Handle | None = None  # that the machine joins; `create` raises Gone if it doesn't exist (yet)
    container: Container | None = None  # what runs in it, where containers are sold in place of machines


@dataclass(frozen=True)
class Machine:
    """A created machine as the provider describes it."""

    state: Literal["pending", "running"]
    hostname: str = ""
    internal_ip: str = ""
    interrupted: bool = False  # the provider has announced that it will take the machine back
    reclaim_at: Micros | None = None  # then; None: soon


@dataclass(frozen=True)
class Owned:
    """A resource at the provider with our owner tag; this is how orphans are found."""

    handle: Handle
    install: str
    project_id: str
    instance_id: str
    epoch: int


class Backend(Protocol):
    facts: BackendFacts

    def check(self) -> None:
        """Do the credentials work? Raises InvalidCredentials or MissingPermission."""

    def offers(self) -> Sequence[Offer]:
        """Everything that could be bought, with prices. Called only by the catalog's refresh, never by a plan; not at
        all where a backend has `LiveOffers`."""

    def create(self, request: CreateRequest) -> Iterator[Handle]: ...

    def describe(self, handles: Sequence[Handle]) -> Machine: ...

    def terminate(self, handle: Handle) -> None: ...

    def list_owned(self, instance_id: str | None = None, region: str = "") -> Iterator[Owned]:
        """Everything with our owner tag, or only what belongs to `instance_id` (filtered by the provider if it can).
        All that is an instance's is in the region of its offer: if that is given, no other is asked."""

    def close(self) -> None: ...


# --- capabilities that only some have --------------------------------------------------------------------------------


@dataclass(frozen=True)
class CreateResult:
    """What one call for several machines did for one of them: a resource of it, or the reason why it isn't created."""

    token: str  # of its request
    handle: Handle | None = None
    error: BackendError | None = None


@runtime_checkable
class CreatesSeveral(Protocol):
    """For a backend whose `facts.batch` is how many machines one call creates.

    Each machine has its own request, and its token, name and tags are what a single `create` would give it: so `create`
    adopts what this one made, and a call whose answer was lost is repeated machine by machine. All may exist before the
    first is yielded. An error follows whatever was created of its machine; one without an error is complete when the
    last is yielded. What is raised is about every machine that has no error of its own.
    """

    def create_several(self, requests: Sequence[CreateRequest]) -> Iterator[CreateResult]: ...


@runtime_checkable
class DescribesSeveral(Protocol):
    """For a backend whose `facts.describes` is how many machines it describes in one call, at most.

    It answers for each, in their order, with what `describe` would return, or the error that it would raise. What is
    raised is about all of them.
    """

    def describe_several(self, machines: Sequence[Sequence[Handle]]) -> Sequence[Machine | BackendError]: ...


@dataclass(frozen=True)
class GroupRequest:
    """All that a backend needs to create one placement group; two equal requests create one."""

    token: str  # idempotency token
    name: str  # unique in the installation: where the provider takes no token, the name stands for it
    tags: tuple[tuple[str, str], ...]  # owner tags: install, project, fleet, group
    offer: Offer  # of the first machine that will join: its region, and its type where groups depend on that
    zones: tuple[str, ...] | None = None  # of which a group that is bound to a zone takes one


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
    """For a backend that has placement groups: a group keeps the machines of a cluster close together.

    A machine joins when it is created and leaves when it is gone. The handle's data has the `zone` of a group that is
    bound to one; its machines are created there. A type that can't be in a group raises Unfit, a group that is full
    QuotaExceeded. What is listed is complete, as with machines.
    """

    def create_group(self, request: GroupRequest) -> Handle:
        """Called again with the same request it returns the group that exists."""

    def delete_group(self, handle: Handle) -> None:
        """Requested; repeated until it raises Gone. Raises InUse while a machine is in the group."""

    def list_owned_groups(self) -> Iterator[OwnedGroup]: ...


@dataclass(frozen=True)
class VolumeRequest:
    """All that a backend needs to create one volume; two equal requests create one."""

    token: str  # idempotency token: install/project/volume/epoch, hashed
    name: str
    tags: tuple[tuple[str, str], ...]  # owner tags: install, project, volume, epoch
    region: str
    zone: str  # empty: any
    size_gib: int


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
    """For a backend that has disks which outlive the machines they are attached to.

    Each call requests and returns; `describe_volume` shows what has come of it, and alone is proof. All may be
    repeated: a volume that exists under the token is adopted, one that is attached there already stays attached, and
    one that isn't attached counts as detached. What is described shows an attachment from when it is requested
    (`attaching_to`) until the volume has left the machine. A call about a volume that doesn't exist raises Gone, and
    one that another machine is in the way of, InUse. What is listed is complete, as with machines.
    """

    def create_volume(self, request: VolumeRequest) -> Handle: ...

    def register_volume(self, volume_id: str, region: str, zone: str) -> ProviderDisk:
        """An existing volume, by the provider's id. Nothing is changed there."""

    def describe_volume(self, handle: Handle) -> ProviderDisk: ...

    def attach_volume(self, handle: Handle, machine: Sequence[Handle], *, read_only: bool = False) -> None:
        """`read_only`: nothing on the machine can write it, where `facts.read_only_attach` is set. Elsewhere its agent
        alone sees to that."""

    def detach_volume(self, handle: Handle, machine: Sequence[Handle]) -> None: ...

    def delete_volume(self, handle: Handle) -> None:
        """Raises Gone when nothing is left, InUse while it is attached."""

    def list_owned_volumes(self, volume_id: str | None = None, region: str = "") -> Iterator[OwnedVolume]: ...


@runtime_checkable
class LiveOffers(Protocol):
    """For a market: its offers can't be listed, or are others a moment later. It is asked for a plan, and once more
    when a machine is about to be bought; `facts.offers_last` is how long its answer may be used for that.

    An offer that is one machine has it as `terms.listing`; creating it raises InsufficientCapacity once it is taken.
    """

    def offers_for(self, request: OfferRequest) -> Sequence[Offer]:
        """The best offers that meet the request, a hundred at most; some that don't do no harm."""


def facts_of(backend: Backend | type[Backend]) -> BackendFacts:
    """What the backend, or its class, says of itself, and what follows from the methods that it has."""

    def has(capability: type) -> bool:
        return issubclass(backend, capability) if isinstance(backend, type) else isinstance(backend, capability)

    return backend.facts.with_(volumes=has(Volumes), placement_groups=has(PlacementGroups), live_offers=has(LiveOffers))
