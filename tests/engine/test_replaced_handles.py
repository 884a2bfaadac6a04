"""A resource whose name follows from its request: another one of that name takes the first one's place."""

from __future__ import annotations

from collections.abc import Iterator

from chalicelib.backends.accounts import Account, Accounts
from chalicelib.backends.simulated.cloud import FakeCloud
from chalicelib.backends.spi import CreateRequest, Owned
from chalicelib.domain import keys
from chalicelib.domain.instances import Handle, Instance, InstanceStatus
from chalicelib.domain.instants import SECOND
from chalicelib.engine.effects.context import EffectContext
from chalicelib.engine.effects.purchases import Purchases
from chalicelib.errors import Transient
from chalicelib.planning.kernel.purchases import Bought, Create, NotBought, Terminate
from chalicelib.store import nouns
from tests.world import nouns as b
from tests.world.ports import CountingStore


class Clock:
    def now(self) -> int:
        return b.NOW


class Named(FakeCloud):
    """Each call makes another one, because somebody has deleted the one before. The first answer is lost."""

    def __init__(self) -> None:
        super().__init__(Clock().now)
        self.calls, self.ended = 0, list[dict[str, str]]()

    def create(self, request: CreateRequest) -> Iterator[Handle]:
        self.calls += 1
        yield Handle(kind="vm", id="by-name", data={"uid": str(self.calls), "zone": "a"})
        if self.calls == 1:
            raise Transient("no answer")

    def list_owned(self, instance_id: str | None = None, region: str = "") -> Iterator[Owned]:
        yield Owned(Handle(kind="vm", id="by-name", data={"uid": "3"}), "install", "p", instance_id or "", 0)

    def terminate(self, handle: Handle) -> None:
        self.ended.append(handle.data)


def test_the_handle_of_a_resource_that_was_replaced_is_replaced_too() -> None:
    cloud, store = Named(), CountingStore(Clock().now)
    until = b.NOW + 60 * SECOND
    offer = b.offer("sim.2cpu", backend=cloud.facts.name, region="sim-east")
    instance = b.machine(0, status=InstanceStatus.pending, offer=offer, act_until=until, handles=()).with_(version=0)
    store.commit([nouns.put(instance)])

    def found() -> Instance:
        current = nouns.find(store, Instance, keys.instance(instance.id))
        assert current is not None
        return current

    buying = Purchases(EffectContext(store, Clock(), Accounts([Account.of(cloud)]), "install", b"k" * 32))
    create = Create(f"instance/{instance.id}", offer.backend, until, instance.project_id)
    assert isinstance(buying.create(create), NotBought)
    assert [handle.data for handle in found().handles] == [{"uid": "1", "zone": "a"}]
    assert isinstance(buying.create(create), Bought)
    assert [handle.data for handle in found().handles] == [{"uid": "2", "zone": "a"}]
    store.commit([nouns.put(found().with_(status=InstanceStatus.terminating))])
    buying.terminate(Terminate(f"instance/{instance.id}", offer.backend, until, instance.project_id))
    assert cloud.ended == [{"uid": "3", "zone": "a"}]
