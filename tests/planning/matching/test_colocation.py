"""Clusters of machines that are bought: the first one says where, and the others are bought there."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.fleets import Fleet
from chalicelib.domain.instances import Handle, Instance, InstanceStatus
from chalicelib.domain.instants import SECOND
from chalicelib.domain.offers import ClusterLimit, Offer, OfferTerms
from chalicelib.planning.kernel.plan import Plan, Step
from chalicelib.planning.kernel.purchases import Bought, Create, CreateSeveral, Describe, NotBought, Seen, batch_creates
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.machines.fleet import decide_fleet
from chalicelib.planning.machines.instance import decide_instance
from chalicelib.planning.machines.outcomes import decide_outcome
from chalicelib.planning.machines.snapshots import FleetSnapshot, InstanceSnapshot
from chalicelib.planning.matching.colocation import first_of
from chalicelib.planning.matching.offer_book import OfferBook
from chalicelib.planning.placing.queue import decide_queue
from chalicelib.planning.placing.snapshot import QueueSnapshot
from tests.world import nouns as b
from tests.world.nouns import lint

FACTS = {
    "aws": BackendFacts(name="aws", multinode=True),
    "gcp": BackendFacts(name="gcp", multinode=True),
    "vastai": BackendFacts(name="vastai"),
}
EU = ("eu-a", "eu-b")
OFFERS = (
    b.offer("lone", 0.1, backend="vastai", region="any"),  # the cheapest, but its machines don't reach each other
    b.offer("small", 1.0, backend="aws", region="eu", availability_zones=EU),
    b.offer("large", 1.5, backend="aws", region="eu", availability_zones=EU),
    b.offer("small", 1.2, backend="aws", region="us", availability_zones=("us-a",)),
    b.offer("big", 1.1, backend="gcp", region="eu"),
)


class World:
    """A fleet that is looked at again and again, and a cloud that answers as told."""

    def __init__(self, *, nodes: Any = "4", offers: tuple[Offer, ...] = OFFERS, **config: Any) -> None:
        self.fleet: Fleet = b.fleet("cloud", to_create=4)
        self.spec = b.fleet_spec(nodes=nodes, **{"placement": "cluster", **config})
        self.instances: dict[str, Instance] = {}
        self.book, self.now = OfferBook(offers), b.NOW

    @property
    def view(self) -> FleetView:
        live = tuple(i for i in self.instances.values() if i.status != InstanceStatus.terminated)
        return FleetView(self.fleet, self.spec, live)

    def decide(self) -> list[Instance]:
        """The machines that it orders now."""
        before = set(self.instances)
        snapshot = FleetSnapshot(self.now, self.view, self.book, FACTS)
        self._save(decide_fleet(snapshot), snapshot)
        return [self.instances[each] for each in self.instances if each not in before]

    def accepted(self, instance: Instance, zone: str = "") -> Plan:
        handle = Handle(kind="vm", id=instance.id[:4], data={"zone": zone} if zone else {})
        self.instances[instance.id] = instance.with_(handles=(handle,))
        return self._conclude(instance, Bought(f"instance/{instance.id}", 0, instance.act_until or 0))

    def refused(self, instance: Instance) -> Plan:
        error = ("InsufficientCapacity", "there is none", None)
        return self._conclude(instance, NotBought(f"instance/{instance.id}", *error, 0, instance.act_until or 0))

    def _conclude(self, instance: Instance, outcome: Bought | NotBought) -> Plan:
        now = self.instances[instance.id]
        snapshot = InstanceSnapshot(self.now, now, None, self.view, (), FACTS[now.offer.backend])
        return self._save(decide_outcome(snapshot, outcome), snapshot)

    def _save(self, plan: Plan, snapshot: Any) -> Plan:
        assert lint(snapshot, plan) == []
        for noun in (noun for step in plan.steps for noun in step.saves):
            if isinstance(noun, Fleet):
                self.fleet = noun
            elif isinstance(noun, Instance):
                self.instances[noun.id] = noun
        return plan


def places(machines: list[Instance]) -> list[tuple[str, str, str, tuple[str, ...] | None]]:
    return [(i.offer.backend, i.offer.region, i.offer.instance.name, i.offer.availability_zones) for i in machines]


def woken(plan: Plan) -> set[str]:
    return {unit for step in plan.steps for unit in step.wake}


def test_the_machine_that_says_where_is_the_first_that_its_cloud_accepted() -> None:
    ordered, again = (b.machine(num, status=InstanceStatus.pending) for num in (0, 1))
    zoned = (Handle(kind="vm", id="vm", data={"zone": "eu-a"}),)
    untold, zoned_first, zoned_second = b.machine(2), b.machine(3, handles=zoned), b.machine(4, handles=zoned)
    leaving = b.machine(5, handles=zoned, status=InstanceStatus.terminating)
    assert first_of([leaving, zoned_second, zoned_first, untold, again, ordered]) is zoned_first
    assert first_of([untold, again, ordered]) is untold
    assert first_of([again, ordered]) is ordered
    assert first_of([leaving, b.host(6)]) is None


def test_the_first_machine_says_where_the_others_are_bought() -> None:
    world = World()
    (first,) = world.decide()
    assert places([first]) == [("aws", "eu", "small", EU)]  # the zone is the cloud's choice
    assert world.decide() == []
    assert f"fleet/{world.fleet.id}" in woken(world.accepted(first, zone="eu-b"))
    assert places(world.decide()) == [("aws", "eu", "small", ("eu-b",))] * 3  # all at once


def test_without_the_wake_up_the_fleet_looks_again_by_itself() -> None:
    world = World()
    (first,) = world.decide()
    world.decide()
    assert world.fleet.due_at is not None and world.fleet.due_at <= (first.act_until or 0) + 2 * SECOND
    world.accepted(first)
    world.now = world.fleet.due_at
    assert len(world.decide()) == 3


def test_a_place_that_refuses_the_first_machine_is_left_for_the_next() -> None:
    world = World()
    for expected in (("gcp", "eu", "big", None), ("aws", "us", "small", ("us-a",))):
        (machine,) = world.decide() if world.instances == {} else [list(world.instances.values())[-1]]
        world.refused(machine)
        (then,) = world.decide()
        assert places([then]) == [expected]


def test_the_others_stay_in_its_region_whatever_is_cheaper_elsewhere() -> None:
    world = World()
    (first,) = world.decide()
    world.accepted(first, zone="eu-a")
    for machine in world.decide():
        world.refused(machine)
    assert places(world.decide()) == [("aws", "eu", "large", ("eu-a",))] * 3
    for machine in [each for each in world.instances.values() if each.status is InstanceStatus.pending]:
        world.refused(machine)
    assert world.decide() == []
    assert world.fleet.message == "every matching offer in eu-a is unavailable or has failed; will retry"


def test_a_machine_that_is_leaving_says_nothing() -> None:
    """The first of those that stay and that the cloud has accepted does."""
    world = World()
    gone = b.machine(0, world.fleet, status=InstanceStatus.terminating, offer=OFFERS[3])
    young = b.machine(1, world.fleet, status=InstanceStatus.pending, offer=OFFERS[1], act_until=b.NOW + SECOND)
    there = b.machine(2, world.fleet, offer=OFFERS[4])
    world.instances = {each.id: each for each in (gone, young, there)}
    world.fleet = world.fleet.with_(next_instance_num=3, to_create=0)
    assert places(world.decide()) == [("gcp", "eu", "big", None)]


def test_a_first_machine_whose_zone_nobody_told_still_gives_the_others_one_zone() -> None:
    """Its agent reported, and the cloud's answer was lost."""
    world = World()
    unknown = b.machine(0, world.fleet, offer=OFFERS[1])
    world.instances, world.fleet = {unknown.id: unknown}, world.fleet.with_(next_instance_num=1, to_create=0)
    second, *_ = found = world.decide()
    assert places(found) == [("aws", "eu", "small", ("eu-a",))] * 3
    world.accepted(second, zone="eu-a")
    world.instances = {each.id: each for each in (unknown, world.instances[second.id])}
    assert {zones for *_, zones in places(world.decide())} == {("eu-a",)}


def test_no_backend_can_do_it() -> None:
    world = World(offers=OFFERS[:1])
    assert world.decide() == []
    assert world.fleet.message == "no offer matches this fleet; will retry"
    loose = World(offers=OFFERS[:1], placement="any")
    assert len(loose.decide()) == 4


def test_the_zones_that_a_fleet_allows_are_kept() -> None:
    loose = World(placement="any", availability_zones=["eu-b"])
    assert {zones for *_, zones in places(loose.decide()) if zones} <= {("eu-b",)}


# --- jobs on one node ------------------------------------------------------------------------------------------------


def queue(world: World, *names: str) -> Plan:
    items = tuple(b.queued(name) for name in names)
    snapshot = QueueSnapshot(world.now, b.PROJECT, items, (world.view,), world.book, FACTS)
    plan = decide_queue(snapshot)
    assert lint(snapshot, plan) == []
    return plan


def bought(plan: Plan) -> list[Instance]:
    found = {noun.id: noun for step in plan.steps for noun in step.saves if isinstance(noun, Instance)}
    return list(found.values())


def messages(plan: Plan) -> list[str]:
    return [noun.message for step in plan.steps for noun in step.saves if isinstance(noun, b.Job)]


def test_jobs_buy_where_the_first_machine_is() -> None:
    world = World(nodes="0..4")
    plan = queue(world, "one", "two")
    assert places(bought(plan)) == [("aws", "eu", "small", EU)]
    assert "waiting for the first machine of cluster `cloud` to be created" in messages(plan)
    (first,) = bought(plan)
    world.instances[first.id], world.fleet = first, world.fleet.with_(next_instance_num=1)
    assert bought(queue(world, "two")) == []
    world.accepted(first, zone="eu-a")
    assert places(bought(queue(world, "two"))) == [("aws", "eu", "small", ("eu-a",))]


def test_a_job_that_fits_nothing_there_is_told_so() -> None:
    world = World(nodes="0..4")
    there = b.machine(0, world.fleet, status=InstanceStatus.busy, offer=OFFERS[4].with_(price=2.0))
    world.instances = {there.id: there}
    spec = b.run_spec(run_name="two", instance_types=["large"])
    snapshot = QueueSnapshot(world.now, b.PROJECT, (b.queued("two", spec),), (world.view,), world.book, FACTS)
    assert any(
        "cluster `cloud` has its first machine in eu, and nothing that fits can be bought there" in message
        for message in messages(decide_queue(snapshot))
    )


@pytest.mark.parametrize("backend", ["aws", "vastai"])
def test_only_backends_that_can_are_asked_for_the_first(backend: str) -> None:
    world = World(nodes="0..4", backends=[backend])
    found = bought(queue(world, "one"))
    assert [each.offer.backend for each in found] == (["aws"] if backend == "aws" else [])


# --- addresses -------------------------------------------------------------------------------------------------------


def test_a_machine_whose_agent_knows_no_address_asks_its_cloud() -> None:
    world = World()
    machine = b.machine(0, world.fleet, offer=OFFERS[1], due_at=b.NOW)
    run = b.run("train")
    held = b.holding(machine, b.job(run))
    snapshot = InstanceSnapshot(world.now, held, b.presence_of(held), FleetView(world.fleet, world.spec, (held,)), ())
    (effect,) = [effect for step in decide_instance(snapshot).steps for effect in step.effects]
    assert isinstance(effect, Describe)
    plan = decide_outcome(snapshot, Seen(f"instance/{held.id}", 0, "running", "h", "10.1.0.7"))
    assert [noun.internal_ip for step in plan.steps for noun in step.saves] == ["10.1.0.7"]
    assert f"run/{run.id}" in woken(plan)  # its gang may be waiting for that


@pytest.mark.parametrize("what", ["known", "loose", "host"])
def test_others_ask_nobody(what: str) -> None:
    world = World(placement="any" if what == "loose" else "cluster")
    known = {"internal_ip": "10.0.0.1"} if what == "known" else {}
    made = b.host(0, world.fleet) if what == "host" else b.machine(0, world.fleet, offer=OFFERS[1], **known)
    snapshot = InstanceSnapshot(world.now, made, b.presence_of(made), FleetView(world.fleet, world.spec, (made,)), ())
    assert not any(step.effects for step in decide_instance(snapshot).steps)


# --- several in one call ---------------------------------------------------------------------------------------------


def test_purchases_are_put_together_as_far_as_one_call_goes() -> None:
    facts = {"aws": BackendFacts(name="aws", batch=3), "gcp": BackendFacts(name="gcp")}
    creates = [Create(f"instance/{number}", "aws", 7) for number in range(7)]
    others = [Create("instance/x", "gcp", 7), Create("instance/y", "gcp", 7), Create("instance/z", "aws", 8)]
    step = batch_creates(Step(effects=(*creates, *others)), facts)
    assert [getattr(each, "units", (each.unit,)) for each in step.effects] == [
        ("instance/0", "instance/1", "instance/2"),
        ("instance/3", "instance/4", "instance/5"),
        ("instance/6",),
        ("instance/x",),
        ("instance/y",),
        ("instance/z",),
    ]
    assert [each for effect in step.effects[:2] for each in effect.each()] == creates[:6]


def test_what_is_bought_with_others_is_committed_like_any() -> None:
    world = World()
    (first,) = world.decide()
    snapshot = FleetSnapshot(world.now, world.view, world.book, FACTS)
    several = CreateSeveral(f"instance/{first.id}", "aws", 7, b.PROJECT, (f"instance/{first.id}", "instance/other"))
    broken = lint(snapshot, Plan((Step(saves=(first,), effects=(several,)),)))
    assert any("act_until other than the committed one" in each for each in broken)
    assert any("instance/other is bought without a committed act_until" in each for each in broken)


def test_a_cluster_that_an_account_cant_have_so_large_is_bought_elsewhere_or_the_fleet_says_why() -> None:
    """Before a single machine is bought."""
    why = "each takes an elastic address, and the account may have 3 in eu"
    limit = ClusterLimit(most=3, why=why, hint="ask for more")
    few = b.offer("p5", 1.0, backend="aws", region="eu", terms=OfferTerms(cluster=limit))
    world = World(nodes="4", offers=(few, b.offer("a3", 9.0, backend="gcp", region="eu")))
    assert [each.offer.instance.name for each in world.decide()] == ["a3"]
    alone = World(nodes="4", offers=(few,))
    assert alone.decide() == []
    assert alone.fleet.message == f"p5 can't have 4 machines in one cluster: {why}; will retry"
    assert [each.offer.instance.name for each in World(nodes="3", offers=(few,)).decide()] == ["p5"]
