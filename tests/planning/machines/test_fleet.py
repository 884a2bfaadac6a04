"""As many instances as it must have, no more than it may, and an end on request."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.fleets import Fleet, FleetStatus
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.offers import Offer
from chalicelib.domain.reasons import InstanceReason
from chalicelib.planning.kernel.plan import Plan
from chalicelib.planning.kernel.purchases import Create
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.machines.fleet import MOST_PAUSES, NEXT_BATCH, PAUSES, decide_fleet, ends_instances
from chalicelib.planning.machines.snapshots import FleetSnapshot
from chalicelib.planning.matching.offer_book import OfferBook
from tests.world import nouns as b
from tests.world.nouns import lint


class World:
    def __init__(
        self, *instances: Instance, offers: tuple[Offer, ...] | None = None, nodes: Any = "0..2", **fleet: Any
    ) -> None:
        self.fleet: Fleet = b.fleet("cloud", **fleet)
        self.instances = {i.id: i for i in instances}
        self.spec = b.fleet_spec(nodes=nodes)
        self.book = OfferBook((b.offer(),) if offers is None else offers)
        self.now = b.NOW

    def decide(self) -> Plan:
        live = tuple(i for i in self.instances.values() if i.status != InstanceStatus.terminated)
        snapshot = FleetSnapshot(self.now, FleetView(self.fleet, self.spec, live), self.book, b.FACTS)
        plan = decide_fleet(snapshot)
        assert lint(snapshot, plan) == []
        for step in plan.steps:
            for noun in step.saves:
                if isinstance(noun, Fleet):
                    self.fleet = noun
                elif isinstance(noun, Instance):
                    self.instances[noun.id] = noun
        return plan

    @property
    def statuses(self) -> list[str]:
        return [i.status.value for i in self.instances.values()]


@pytest.mark.parametrize(
    ("nodes", "to_create", "made"),
    [("0..2", 0, 0), ("1..2", 0, 1), ("0..3", 2, 2), ("2", 0, 2), ("0..1", 5, 1), (None, 1, 0)],
)
def test_a_fleet_makes_its_target_and_then_keeps_its_minimum(nodes: Any, to_create: int, made: int) -> None:
    world = World(nodes=nodes, to_create=to_create)
    plan = world.decide()
    assert len(world.instances) == made
    assert sum(isinstance(effect, Create) for step in plan.steps for effect in step.effects) == made
    assert world.fleet.next_instance_num == made
    assert world.decide().steps == ()


def test_an_instance_that_ended_is_replaced_down_to_the_minimum_only() -> None:
    world = World(nodes="1..3", to_create=2)
    world.decide()
    for instance in list(world.instances.values()):
        world.instances[instance.id] = instance.with_(status=InstanceStatus.terminated)
    world.decide()
    assert world.statuses.count("pending") == 1


def test_instances_on_their_way_out_take_room() -> None:
    leaving = b.machine(0, status=InstanceStatus.terminating)
    world = World(leaving, nodes="1")
    assert world.decide().steps == ()


def test_idle_instances_above_the_maximum_end() -> None:
    busy = b.machine(0, status=InstanceStatus.busy)
    world = World(busy, b.machine(1), b.machine(2), nodes="0..1")
    world.decide()
    assert world.statuses == ["busy", "terminating", "terminating"]
    assert {i.reason for i in world.instances.values()} == {None, InstanceReason.max_instances_limit}


def test_an_offer_that_failed_is_passed_over() -> None:
    first, second = b.offer("m1", 1.0), b.offer("m2", 2.0)
    world = World(offers=(first, second), nodes="1", tried=(first.key,))
    world.decide()
    assert [i.offer.instance.name for i in world.instances.values()] == ["m2"]


def test_that_no_machine_can_be_cut_as_it_asks_is_said() -> None:
    world = World(offers=(b.offer("m1", has=b.resources(cpus=8)),))
    world.spec = b.fleet_spec(nodes="1", blocks=3)
    (note,) = world.decide().notes
    assert world.fleet.message == "no machine that fits can be split into 3 equal blocks (m1 has 8 CPUs); will retry"
    assert note.hint == "set the fleet's `blocks: 2`"


def test_when_nothing_can_be_had_it_pauses_longer_and_longer_and_says_so() -> None:
    world = World(offers=(), nodes="1")
    waits = []
    for _ in range(MOST_PAUSES):
        world.decide()
        assert world.fleet.due_at is not None
        waits.append(world.fleet.due_at - world.now)
        assert world.decide().steps == ()
        world.now = world.fleet.due_at
    assert tuple(waits[:5]) == PAUSES
    assert set(waits[5:]) == {PAUSES[-1]}
    assert "no offer matches" in world.fleet.message
    world.decide()
    assert world.fleet.due_at is None
    assert "no more attempts" in world.fleet.message
    assert world.decide().steps == ()


def test_after_a_pause_every_offer_is_tried_again() -> None:
    world = World(nodes="1", tried=(b.offer().key,))
    world.decide()
    assert world.instances == {}
    world.now = world.fleet.due_at or 0
    world.decide()
    assert world.statuses == ["pending"]
    assert world.fleet.consolidation_attempt == 0


def test_a_deleted_fleet_ends_its_instances_and_then_itself() -> None:
    world = World(b.machine(0), b.machine(1, status=InstanceStatus.terminating), status=FleetStatus.terminating)
    world.decide()
    assert world.statuses == ["terminating", "terminating"]
    assert world.fleet.status == FleetStatus.terminating
    world.instances = {i.id: i.with_(status=InstanceStatus.terminated) for i in world.instances.values()}
    world.decide()
    assert (world.fleet.status, world.fleet.deleted) == (FleetStatus.terminated, True)


def test_a_job_that_was_placed_while_its_fleet_was_deleted_keeps_its_machine() -> None:
    job = b.job(b.run())
    busy = b.holding(b.machine(0, status=InstanceStatus.busy), job)
    world = World(busy, b.machine(1), status=FleetStatus.terminating)
    world.decide()
    assert world.statuses == ["busy", "terminating"]


def test_a_large_fleet_is_bought_in_batches() -> None:
    world = World(nodes="250")
    world.decide()
    assert (len(world.instances), world.fleet.due_at) == (100, world.now + NEXT_BATCH)
    world.now += NEXT_BATCH
    world.decide()
    assert (len(world.instances), world.fleet.due_at) == (100, world.now + NEXT_BATCH)
    world.instances = {i.id: i.with_(status=InstanceStatus.idle) for i in world.instances.values()}
    for _ in range(2):
        world.now += NEXT_BATCH
        world.decide()
        world.instances = {i.id: i.with_(status=InstanceStatus.idle) for i in world.instances.values()}
    assert (len(world.instances), world.fleet.due_at) == (250, None)


@pytest.mark.parametrize(
    ("nodes", "made", "status", "ends"),
    [
        ("0..2", 2, FleetStatus.active, False),
        ("0..2", 3, FleetStatus.active, True),  # it may have more than it should
        ("0..", 9, FleetStatus.active, False),
        (None, 9, FleetStatus.active, False),
        ("0..2", 0, FleetStatus.terminating, True),
    ],
)
def test_whose_decision_may_end_machines(nodes: Any, made: int, status: FleetStatus, ends: bool) -> None:
    of = b.fleet("cloud", next_instance_num=made, status=status)
    assert ends_instances(of, b.fleet_spec(nodes=nodes)) is ends
