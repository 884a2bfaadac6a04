"""The store and the cloud as one process sees them: it may die or be overtaken at every call, and the call may fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, Protocol

from chalicelib.backends.simulated.cloud import FakeCloud
from chalicelib.backends.simulated.script import Call, Fault, FaultPoint, Script
from chalicelib.backends.spi import (
    CreateRequest,
    CreateResult,
    GroupRequest,
    Machine,
    Owned,
    OwnedGroup,
    OwnedVolume,
    VolumeRequest,
)
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import Micros
from chalicelib.domain.keys import Due, Key
from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.domain.offers import Offer
from chalicelib.domain.volumes import ProviderDisk
from chalicelib.errors import BackendError, StorageFull
from chalicelib.store.memory import MemoryStore
from chalicelib.store.port import Change, Index, Page, Record
from tests.simulation.world import World


class Away(Exception):
    """The store doesn't answer; an error of its client's own."""


class Trouble(Protocol):
    share: float
    failures: int


class ShakyStore:
    """A commit that fails has written nothing, as the port promises: an adapter knows how its commits ended."""

    def __init__(self, store: MemoryStore, world: World, trouble: Trouble) -> None:
        self._store, self._world, self._trouble = store, world, trouble
        self.commits = 0

    def _may_fail(self, *, writing: bool = False) -> None:
        if not self._trouble.share or not self._world.chance(self._trouble.share):
            return
        self._trouble.failures += 1
        if writing and self._world.rng.random() < 0.5:
            self._world.note("store full")
            raise StorageFull("the disk is full (simulated)")
        self._world.note("store away")
        raise Away("the table doesn't answer (simulated)")

    def get(self, key: Key) -> Record | None:
        self._may_fail()
        return self._store.get(key)

    def get_many(self, keys: Sequence[Key]) -> list[Record | None]:
        self._may_fail()
        return self._store.get_many(keys)

    def query(
        self,
        index: Index,
        partition: str,
        *,
        low: str = "",
        high: str = "",
        limit: int = 100,
        cursor: str | None = None,
        reverse: bool = False,
    ) -> Page:
        self._may_fail()
        return self._store.query(index, partition, low=low, high=high, limit=limit, cursor=cursor, reverse=reverse)

    def scan(self, after: Key | None = None, *, limit: int = 500) -> list[Record]:
        self._may_fail()
        return self._store.scan(after, limit=limit)

    def commit(self, changes: Sequence[Change]) -> None:
        self._may_fail(writing=True)
        self._world.moment("before a commit")
        self._store.commit(changes)
        self.commits += 1
        self._world.moment("after a commit")

    def due(self, kinds: Sequence[str], shard: int, now: Micros, limit: int) -> list[Due]:
        self._may_fail()
        return self._store.due(kinds, shard, now, limit)

    def next_due(self) -> Micros | None:
        return 0

    def close(self) -> None:
        """Belongs to the world."""


class ShakyScript(Script):
    """A cloud that fails by its script, then by the seed."""

    world: World

    def fault(self, call: Call, when: FaultPoint, *, region: str = "", type: str = "") -> Exception | None:
        if scripted := super().fault(call, when, region=region, type=type):
            return scripted
        world = self.world
        creates = call in ("create", "create_group")
        if call in ("check", "offers") or not world.chance(0.10 if creates else 0.05):
            return None
        errors = ["Transient", "Throttled"]
        if creates and when != "after":
            errors += ["InsufficientCapacity", "InsufficientCapacity", "QuotaExceeded", "Bug"]
        error = "Transient" if when == "after" else world.rng.choice(errors)
        world.note(f"{call} {error} {when}")
        return Fault(call, error, when, retry_after=world.some(1, 20)).make()

    def take(self, what: Literal["lies", "absent", "forgets", "short"]) -> bool:
        if super().take(what):
            return True
        if self.world.chance(0.1):
            self.world.note(what)
            return True
        return False


def ignore(*_: object) -> None:
    """Ignores the call."""


class ShakyBackend:
    """`creating`, `made` and `ending` see what is about to be bought, was bought, and is about to be released."""

    def __init__(self, cloud: FakeCloud, world: World) -> None:
        self.facts: BackendFacts = cloud.facts
        self._cloud, self._world = cloud, world
        self.creating: Callable[[CreateRequest], None] = ignore
        self.made: Callable[[], None] = ignore
        self.ending: Callable[[Handle], None] = ignore
        self.ending_group: Callable[[Handle], None] = ignore
        self.detaching: Callable[[Handle, Sequence[Handle]], None] = ignore

    def check(self) -> None:
        self._cloud.check()

    def offers(self) -> Sequence[Offer]:
        return self._cloud.offers()

    def create(self, request: CreateRequest) -> Iterator[Handle]:
        self.creating(request)
        self._world.moment("before create")
        for handle in self._cloud.create(request):
            self.made()
            self._world.moment("between handles")
            yield handle
        self._world.moment("after create")

    def create_several(self, requests: Sequence[CreateRequest]) -> Iterator[CreateResult]:
        for request in requests:
            self.creating(request)
        self._world.note("several at once")
        self._world.moment("before create")
        for made in self._cloud.create_several(requests):
            self.made()
            self._world.moment("between handles")
            yield made
        self._world.moment("after create")

    def describe(self, handles: Sequence[Handle]) -> Machine:
        self._world.moment("before describe")
        return self._cloud.describe(handles)

    def describe_several(self, machines: Sequence[Sequence[Handle]]) -> Sequence[Machine | BackendError]:
        self._world.note("several described at once")
        self._world.moment("before describe")
        return self._cloud.describe_several(machines)

    def terminate(self, handle: Handle) -> None:
        self.ending(handle)
        self._world.moment("before terminate")
        self._cloud.terminate(handle)
        self._world.moment("after terminate")

    def list_owned(self, instance_id: str | None = None, region: str = "") -> Iterator[Owned]:
        found = list(self._cloud.list_owned(instance_id, region))
        self._world.moment("after list")
        return iter(found)

    def create_group(self, request: GroupRequest) -> Handle:
        self._world.moment("before create_group")
        group = self._cloud.create_group(request)
        self._world.note("group made")
        self._world.moment("after create_group")
        return group

    def delete_group(self, handle: Handle) -> None:
        self.ending_group(handle)
        self._world.moment("before delete_group")
        self._cloud.delete_group(handle)
        self._world.moment("after delete_group")

    def list_owned_groups(self) -> Iterator[OwnedGroup]:
        found = list(self._cloud.list_owned_groups())
        self._world.moment("after list_groups")
        return iter(found)

    def create_volume(self, request: VolumeRequest) -> Handle:
        self._world.moment("before create_volume")
        volume = self._cloud.create_volume(request)
        self._world.note("volume made")
        self._world.moment("after create_volume")
        return volume

    def register_volume(self, volume_id: str, region: str, zone: str) -> ProviderDisk:
        return self._cloud.register_volume(volume_id, region, zone)

    def describe_volume(self, handle: Handle) -> ProviderDisk:
        self._world.moment("before describe_volume")
        return self._cloud.describe_volume(handle)

    def attach_volume(self, handle: Handle, machine: Sequence[Handle], *, read_only: bool = False) -> None:
        self._world.moment("before attach_volume")
        self._cloud.attach_volume(handle, machine, read_only=read_only)
        self._world.moment("after attach_volume")

    def detach_volume(self, handle: Handle, machine: Sequence[Handle]) -> None:
        self.detaching(handle, machine)
        self._world.moment("before detach_volume")
        self._cloud.detach_volume(handle, machine)
        self._world.moment("after detach_volume")

    def delete_volume(self, handle: Handle) -> None:
        self._world.moment("before delete_volume")
        self._cloud.delete_volume(handle)
        self._world.moment("after delete_volume")

    def list_owned_volumes(self, volume_id: str | None = None, region: str = "") -> Iterator[OwnedVolume]:
        found = list(self._cloud.list_owned_volumes(volume_id, region))
        self._world.moment("after list_volumes")
        return iter(found)

    def close(self) -> None:
        self._cloud.close()


class ShakyMarket(ShakyBackend):
    """A cloud that has no list of offers, and answers requests."""

    def offers_for(self, request: OfferRequest) -> Sequence[Offer]:
        self._world.note("market asked")
        self._world.moment("before an answer")
        return self._cloud.offers()
