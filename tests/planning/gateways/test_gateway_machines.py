"""Which machines are bought for a gateway, and what follows if one can't be had."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.events import EventType
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.fleets import FleetStatus
from chalicelib.domain.gateways import Gateway, GatewayStatus, Orders, ReplicaState
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.domain.offers import Availability, Offer
from chalicelib.domain.reasons import InstanceReason
from chalicelib.machines.gateway import CHECK_GATEWAY_EVERY
from chalicelib.planning.gateways import gateway_machines
from chalicelib.planning.gateways.gateway_machines import MOST_TRIED, as_fleet
from chalicelib.planning.gateways.gateways import decide_gateway
from chalicelib.planning.gateways.snapshots import GatewaySnapshot
from chalicelib.planning.kernel import purchases
from chalicelib.planning.kernel.plan import Plan
from chalicelib.planning.machines.instance import decide_instance
from chalicelib.planning.machines.snapshots import InstanceSnapshot
from chalicelib.planning.matching.offer_book import OfferBook
from tests.world import nouns as b
from tests.world.gateways import gateway
from tests.world.nouns import lint

FACTS = BackendFacts(name="aws", gateways=True, provisioning_timeout=10 * MINUTE)
SMALL = b.offer("small", 0.05, has=b.resources(cpus=2, gb=4))
LARGE = b.offer("large", 0.20, has=b.resources(cpus=8))
OFFERS = (
    LARGE,
    SMALL,
    b.offer("spot", 0.01, has=b.resources(cpus=2, spot=True)),
    b.offer("tiny", 0.01, has=b.resources(cpus=1, gb=0.5)),
    b.offer("gpu", 0.01, has=b.resources(cpus=8, gpus=1)),
    b.offer("arm", 0.02, has=b.resources(cpus=4, cpu_arch="arm")),
    b.offer("elsewhere", 0.01, region="us"),
    b.offer("others", 0.01, backend="gcp"),
    b.offer("large", 0.01, backend="gcp"),
    b.offer("sold-out", 0.01, availability=Availability.not_available),
)


def bought(**fields: Any) -> Gateway:
    text = fields.pop("configuration", '{"type": "gateway", "backend": "aws", "region": "eu"}')
    return gateway(fleet="", backend="aws", region="eu", configuration=text, **fields)


def snapshot_of(
    of: Gateway, *machines: Instance, offers: tuple[Offer, ...] = OFFERS, now: int = b.NOW, awaited: Any = ()
) -> GatewaySnapshot:
    book = OfferBook(offers, now, awaited=awaited) if awaited else OfferBook(offers, now)
    return GatewaySnapshot(now, of, {each.id: each for each in machines}, offers=book, facts={"aws": FACTS})


def decided(snapshot: GatewaySnapshot) -> tuple[Gateway, list[Instance], Plan]:
    plan = decide_gateway(snapshot)
    assert lint(snapshot, plan) == []
    saves = [noun for step in plan.steps for noun in step.saves]
    of = next((noun for noun in saves if isinstance(noun, Gateway)), snapshot.gateway)
    return of, [noun for noun in saves if isinstance(noun, Instance)], plan


def test_the_cheapest_small_machine_of_its_region_is_bought_with_its_seat() -> None:
    of, (machine,), plan = decided(snapshot_of(bought(name="door")))
    assert (machine.offer.instance.name, machine.name, machine.fleet_id) == ("small", "door-0", of.id)
    assert machine.of_gateway and machine.place().gsi2 is None
    assert machine.idle_seconds is None and machine.deadline == b.NOW + 10 * MINUTE
    (step,) = plan.steps
    assert step.effects == (purchases.create(machine),)
    assert [each.type for each in step.events if each.trade] == [EventType.ordered]
    (replica,) = of.replicas
    assert (replica.instance_id, replica.state) == (machine.id, ReplicaState.submitted)
    assert of.status is GatewayStatus.provisioning and of.orders.next_num == 1


def test_a_named_type_is_bought_whatever_it_is() -> None:
    for name in ("large", "arm", "tiny"):
        text = (
            f'{{"type": "gateway", "backend": "aws", "region": "eu", "instance_type": "{name}", "tags": {{"a": "b"}}}}'
        )
        _, (machine,), _ = decided(snapshot_of(bought(configuration=text)))
        assert (machine.offer.backend, machine.offer.instance.name, machine.tags) == ("aws", name, {"a": "b"})


def test_each_replica_has_its_machine_and_is_bought_once() -> None:
    of, machines, _ = decided(snapshot_of(bought(name="door", wanted=2)))
    assert [each.name for each in machines] == ["door-0", "door-1"] and len({each.id for each in machines}) == 2
    again, more, plan = decided(snapshot_of(of, *machines, now=b.NOW + SECOND))
    assert not more and not any(step.effects for step in plan.steps) and again.replicas == of.replicas


@pytest.mark.parametrize(
    ("type_", "message", "fix"),
    [
        (None, "no machine with 2 CPUs", "name another `region`, or an `instance_type`"),
        ("m9", "no machine of the type m9", "name another `instance_type` or `region`"),
    ],
)
def test_where_nothing_fits_it_says_what_to_change(type_: str | None, message: str, fix: str) -> None:
    text = f'{{"instance_type": "{type_}"}}' if type_ else "{}"
    of, machines, _ = decided(snapshot_of(bought(configuration=text), offers=OFFERS[2:4]))
    assert not machines and message in of.message and of.message.endswith(fix)
    assert of.due_at == b.NOW + gateway_machines.RECHECK_OFFERS


def test_a_backend_without_any_offers_is_no_matter_of_the_region() -> None:
    """As one whose SDK isn't installed, or whose key is refused."""
    of, machines, _ = decided(snapshot_of(bought(), offers=(b.offer("others", 0.01, backend="gcp"),)))
    assert not machines and of.message == "no offers of the backend aws are known: see `dstack backend list`"


def test_a_backends_first_offers_are_waited_for() -> None:
    of, machines, _ = decided(snapshot_of(bought(), offers=(), awaited=("aws",)))
    assert not machines and of.message == "waiting for the first offers of `aws`"
    assert of.due_at == b.NOW + gateway_machines.CHECK_OFFERS_EVERY


def refused(machine: Instance, message: str = "no room", **fields: Any) -> Instance:
    ended = {"status": InstanceStatus.terminated, "reason": InstanceReason.no_offers, "message": message}
    return machine.with_(**{**ended, **fields})


def test_after_a_few_refusals_there_is_a_pause_and_then_all_are_tried_again() -> None:
    offers = tuple(b.offer(f"m{num}", 0.1 * num, has=b.resources(cpus=2)) for num in range(1, 6))
    of, (machine,), _ = decided(snapshot_of(bought(), offers=offers))
    tried = [machine.offer.instance.name]
    for _ in range(MOST_TRIED - 1):
        of, (machine,), _ = decided(snapshot_of(of, refused(machine), offers=offers))
        tried.append(machine.offer.instance.name)
    assert tried == ["m1", "m2", "m3"]
    of, machines, _ = decided(snapshot_of(of, refused(machine, "no room at all"), offers=offers))
    assert not machines and of.message == "no room at all"
    assert (of.orders.paused_until, of.orders.pauses) == (b.NOW + MINUTE, 1) and of.due_at == b.NOW + MINUTE
    still, machines, _ = decided(snapshot_of(of, offers=offers, now=b.NOW + SECOND))
    assert not machines and still.message == "no room at all"
    of, (machine,), _ = decided(snapshot_of(of, offers=offers, now=b.NOW + MINUTE))
    assert machine.offer.instance.name == "m1" and of.message == ""


def test_one_that_came_up_ends_the_pauses_and_is_replaced_when_it_is_gone() -> None:
    of, (machine,), _ = decided(snapshot_of(bought(orders=Orders(pauses=3, refused="x"))))
    gone = machine.with_(
        status=InstanceStatus.terminated, started_at=b.NOW, hostname="h", reason=InstanceReason.unreachable
    )
    again, (another,), _ = decided(snapshot_of(of, gone))
    assert another.id != machine.id and again.orders == Orders(next_num=2)
    again, _, _ = decided(snapshot_of(of, gone.with_(hostname="")))
    assert again.orders.tried == (SMALL.key,), "one that the world never reached was of no use"


def test_a_machine_that_a_user_ended_is_no_offer_that_failed() -> None:
    of, (machine,), _ = decided(snapshot_of(bought()))
    of, (another,), _ = decided(snapshot_of(of, refused(machine, reason=InstanceReason.terminated_by_user)))
    assert another.offer.key == machine.offer.key and of.orders.tried == ()


def test_its_machine_lives_as_long_as_the_gateway_is_wanted() -> None:
    of, (machine,), _ = decided(snapshot_of(bought()))
    idle = machine.with_(status=InstanceStatus.idle, act_until=None, deadline=None, due_at=b.NOW, started_at=b.NOW)
    late = b.NOW + 30 * 24 * CHECK_GATEWAY_EVERY

    def judged(of: Gateway) -> Instance:
        snapshot = InstanceSnapshot(late, idle, None, as_fleet(of), (), FACTS)
        plan = decide_instance(snapshot)
        assert lint(snapshot, plan) == []
        saved = [noun for step in plan.steps for noun in step.saves]
        assert all(isinstance(noun, Instance) for noun in saved), "the fleet that stands for it is never stored"
        return next((noun for noun in saved if isinstance(noun, Instance)), idle)

    assert judged(of).status is InstanceStatus.idle
    ended = judged(of.with_(status=GatewayStatus.deleting))
    assert (ended.status, ended.message) == (InstanceStatus.terminating, "its gateway is being deleted")
    assert as_fleet(of).fleet.status is FleetStatus.active
