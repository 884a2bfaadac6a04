"""Where a purchase got to among the zones is recorded before it goes on there, and told to the next attempt."""

from __future__ import annotations

from collections.abc import Iterator

from chalicelib.backends.accounts import Account, Accounts
from chalicelib.backends.simulated.cloud import FakeCloud
from chalicelib.backends.spi import CreateRequest
from chalicelib.domain import keys
from chalicelib.domain.instances import TRYING, Handle, Instance, InstanceStatus
from chalicelib.domain.instants import SECOND
from chalicelib.engine.effects.context import EffectContext
from chalicelib.engine.effects.purchases import Purchases
from chalicelib.errors import Transient
from chalicelib.planning.kernel.purchases import Bought, Create, NotBought
from chalicelib.store import nouns
from tests.world import nouns as b
from tests.world.ports import CountingStore


class Clock:
    def now(self) -> int:
        return b.NOW


class Zonal(FakeCloud):
    """Its first zone is full, and the answer about the second is lost."""

    def __init__(self) -> None:
        super().__init__(Clock().now)
        self.zones_tried: list[str] = []

    def create(self, request: CreateRequest) -> Iterator[Handle]:
        self.zones_tried.append(request.trying)
        if not request.trying:
            yield Handle(kind=TRYING, id="sim-east-b", data={"zone": "sim-east-b"})
            self.seen = nouns.find(self.store, Instance, keys.instance(request.instance_id))
            raise Transient("no answer")
        yield from super().create(request)


def test_the_zone_is_recorded_before_it_is_tried_and_is_the_next_calls_first() -> None:
    cloud, store = Zonal(), CountingStore(Clock().now)
    cloud.store = store
    until = b.NOW + 60 * SECOND
    offer = b.offer(
        "sim.2cpu", backend=cloud.facts.name, region="sim-east", availability_zones=("sim-east-a", "sim-east-b")
    )
    instance = b.machine(0, status=InstanceStatus.pending, offer=offer, act_until=until, handles=()).with_(version=0)
    store.commit([nouns.put(instance)])
    buying = Purchases(EffectContext(store, Clock(), Accounts([Account.of(cloud)]), "install", b"k" * 32))
    effect = Create(f"instance/{instance.id}", offer.backend, until, instance.project_id)
    assert isinstance(buying.create(effect), NotBought)
    assert cloud.seen is not None and (cloud.seen.trying, cloud.seen.handles) == ("sim-east-b", ())
    assert isinstance(buying.create(effect), Bought)
    assert cloud.zones_tried == ["", "sim-east-b"]
    bought = nouns.find(store, Instance, keys.instance(instance.id))
    assert bought is not None and {handle.kind for handle in bought.handles} == {"disk", "vm"}
