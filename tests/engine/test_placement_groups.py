"""Placement groups of clusters that are bought: one for each place, and none left, whatever goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from chalicelib.backends.accounts import Accounts
from chalicelib.backends.simulated.cloud import FakeCloud
from chalicelib.backends.simulated.script import Fault
from chalicelib.backends.spi import GroupRequest
from chalicelib.domain.events import Event, EventType
from chalicelib.domain.fleets import Fleet, FleetStatus
from chalicelib.domain.instances import Handle, InstanceStatus
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.domain.reasons import InstanceReason
from chalicelib.engine.effects.context import EffectContext
from chalicelib.engine.effects.placement_groups import of_machine
from chalicelib.engine.sweep import Swept
from chalicelib.errors import Transient
from chalicelib.planning.kernel.plan import Effect
from chalicelib.planning.placing.placement_groups import DeleteGroup, changed
from chalicelib.store import nouns
from tests.backends.conformance import group_request_for, inside, request_for
from tests.engine.test_gang_purchases import NORTH, SMALL, WEST, World, started
from tests.engine.test_sweep import APART, Scene, scene  # noqa: F401 - a fixture
from tests.world import nouns as b
from tests.world.gangs import task


class Grouped(World):
    """Effects of one kind can be lost on their way."""

    loses: type[Effect] | None = None

    @property
    def cluster(self) -> Fleet:
        return self.again(b.fleet("cloud"))

    @property
    def groups(self) -> list[dict[str, Any]]:
        return [body for body in self.cloud.resources() if body["kind"] == "group"]

    def submit(self, effect: Effect) -> None:
        if self.loses is not None and isinstance(effect, self.loses):
            self.loses = None
            return
        super().submit(effect)

    def end(self, *machines: int) -> None:
        """As a user's `fleet delete -i` does."""
        for number in machines:
            found = self.machines[number]
            reason = InstanceReason.terminated_by_user
            self.save(found.with_(status=InstanceStatus.terminating, reason=reason, claims=(), due_at=self.at))

    def idle(self) -> int:
        return sum(each.status is InstanceStatus.idle for each in self.machines)

    def events(self) -> list[Event]:
        page = self.store.query("main", f"events/{b.PROJECT}", limit=1000)
        return [nouns.read(Event, record) for record in page.records]


@pytest.fixture
def world() -> Grouped:
    made = Grouped.with_fleet("0..8")
    made.woken.append(f"fleet/{b.fleet('cloud').id}")
    return made


def wanting(world: Grouped, count: int) -> None:
    fleet = world.cluster
    world.save(fleet.with_(to_create=count, due_at=world.at))


def test_all_machines_of_a_cluster_are_created_in_one_group(world: Grouped) -> None:
    run = task(world, "train", 5, **SMALL)
    world.until(lambda: started(world, run))
    (made,) = world.groups
    (group,) = world.cluster.groups
    assert group.made_at is not None, "until it must be visible"
    assert (group.handle and group.handle.id, group.region, group.leaving) == (made["id"], NORTH, False)
    assert [body["group"] for body in world.cloud.machines()] == [made["id"]] * 5
    assert {body["zone"] for body in world.cloud.machines()} == {made["zone"]}
    assert dict(made["tags"]) == {
        "dstack-install": "install",
        "dstack-project": b.PROJECT,
        "dstack-fleet": world.cluster.id,
        "dstack-group": group.id,
        "dstack-name": world.cluster.name,
    }


@pytest.mark.slow
def test_it_stays_while_one_is_in_it_and_goes_with_the_last(world: Grouped) -> None:
    wanting(world, 2)
    world.until(lambda: world.idle() == 2)
    (first,) = world.groups
    world.end(0)
    world.until(lambda: world.machines[0].status is InstanceStatus.terminated)
    for _ in range(20):
        world.take_pass()
    assert world.groups == [first]
    world.end(1)
    world.until(lambda: not world.groups and not world.cluster.groups)
    assert world.cloud.resources() == [] and world.machines[1].status is InstanceStatus.terminated
    wanting(world, 1)
    world.until(lambda: world.idle() == 1)
    assert world.groups[0]["id"] != first["id"]


def test_other_fleets_get_none() -> None:
    world = Grouped.with_fleet("0..8")
    fleet = world.fleet("apart", nodes="1")
    world.woken.append(f"fleet/{fleet.id}")
    world.until(lambda: bool(world.cloud.machines()))
    assert world.groups == [] and world.cloud.machines()[0]["group"] is None


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_answer_that_is_lost_leaves_one_group(world: Grouped, when: Any) -> None:
    world.script.faults.append(Fault("create_group", "Transient", when))
    wanting(world, 2)
    world.until(lambda: world.idle() == 2)
    assert len(world.groups) == 1
    assert {body["group"] for body in world.cloud.machines()} == {world.groups[0]["id"]}


class Overtaken(FakeCloud):
    """Something happens between each group's making and the answer that says so."""

    meanwhile: Callable[[Handle], None]

    def create_group(self, request: GroupRequest) -> Handle:
        handle = super().create_group(request)
        self.meanwhile(handle)
        return handle


def overtaken(meanwhile: Callable[[Grouped, Handle], None]) -> Grouped:
    world = Grouped.with_fleet("0..8", Overtaken)
    assert isinstance(world.cloud, Overtaken)
    world.cloud.meanwhile = lambda handle: meanwhile(world, handle)
    world.woken.append(f"fleet/{world.cluster.id}")
    wanting(world, 1)
    return world


def test_one_that_another_process_recorded_first_counts() -> None:
    def record(world: Grouped, handle: Handle) -> None:
        fleet = world.cluster
        world.save(changed(fleet, fleet.groups[0].id, handle=handle, made_at=1))

    world = overtaken(record)
    world.until(lambda: world.idle() == 1)
    assert world.cloud.machines()[0]["group"] == world.groups[0]["id"] and world.cluster.groups[0].made_at == 1


def test_one_that_isnt_wanted_any_more_once_it_is_there_is_given_back() -> None:
    made = list[str]()

    def forget(world: Grouped, handle: Handle) -> None:
        made.append(handle.id)
        world.save(world.cluster.with_(groups=()))

    world = overtaken(forget)
    world.until(lambda: bool(made))
    assert world.groups == [] and world.cloud.machines() == []


@pytest.mark.parametrize("group", ["leaves", "has left"])
def test_no_machine_is_created_in_one_that_isnt_to_stay(world: Grouped, group: str) -> None:
    wanting(world, 1)
    world.until(lambda: world.idle() == 1)
    fleet, (machine,) = world.cluster, world.machines
    left = fleet.with_(groups=()) if group == "has left" else changed(fleet, fleet.groups[0].id, leaving=True)
    world.save(left)
    here = EffectContext(world.store, world, world.plane.backends, "install", b"k" * 32, "http://plane:3000")
    with pytest.raises(Transient, match=r"the placement group of .* isn't needed any more"):
        of_machine(here, machine, world.cloud)


def test_one_that_its_machine_never_used_is_found_by_its_tag(world: Grouped) -> None:
    """The answer was lost, so nobody knows its handle; then the machine isn't wanted any more."""
    world.script.faults.append(Fault("create_group", "Transient", "after"))
    wanting(world, 1)
    world.until(lambda: bool(world.groups))
    assert world.cluster.groups[0].handle is None
    world.end(0)
    world.until(lambda: not world.groups and not world.cluster.groups)
    assert world.machines[0].status is InstanceStatus.terminated


def test_a_group_that_is_refused_is_an_offer_that_is(world: Grouped) -> None:
    world.script.faults.append(Fault("create_group", "QuotaExceeded"))
    wanting(world, 1)
    world.until(lambda: world.idle() == 1)
    first, second = world.machines
    assert (first.status, first.reason) == (InstanceStatus.terminated, InstanceReason.no_offers)
    assert first.offer.key != second.offer.key
    assert [group.id for group in world.cluster.groups] == [second.placement_group] and len(world.groups) == 1


def test_one_that_is_not_visible_yet_is_waited_for(world: Grouped) -> None:
    world.script.lag = 2 * SECOND
    wanting(world, 2)
    world.until(lambda: world.idle() == 2)
    assert len(world.groups) == 1 and len(world.machines) == 2


def test_one_that_is_gone_meanwhile_is_made_again(world: Grouped) -> None:
    wanting(world, 1)
    world.until(lambda: world.idle() == 1)
    (first,) = world.groups
    for body in world.cloud.resources():
        world.cloud.lose(body["id"])  # by hand, all of it
    wanting(world, 2)
    world.until(lambda: len(world.cloud.machines()) == 2)
    assert [body["group"] for body in world.cloud.machines()] == [world.groups[0]["id"]] * 2
    assert world.groups[0]["id"] != first["id"]


@pytest.mark.slow
def test_a_group_that_is_full_moves_the_gang_or_tells_why(world: Grouped) -> None:
    world.script.group = 2
    run = task(world, "train", 3, **{**SMALL, "regions": [NORTH, WEST]})
    regions = {NORTH, WEST}
    world.until(lambda: {each.offer.region for each in world.machines} == regions and world.cluster.groups == ())
    assert world.cloud.resources() == [] and not started(world, run)
    assert any("takes 2 machines" in event.message for event in world.events())


def test_a_deletion_that_got_lost_is_repeated(world: Grouped) -> None:
    wanting(world, 1)
    world.until(lambda: world.idle() == 1)
    world.loses = DeleteGroup
    world.end(0)
    world.until(lambda: bool(world.cluster.groups and world.cluster.groups[0].leaving))
    assert len(world.groups) == 1
    world.until(lambda: not world.groups and not world.cluster.groups)


@pytest.mark.slow
def test_a_deletion_is_never_given_up_and_a_deleted_fleet_waits_for_it(world: Grouped) -> None:
    wanting(world, 1)
    world.until(lambda: world.idle() == 1)
    (group,) = world.cluster.groups
    assert group.handle is not None
    offer = next(each for each in world.cloud.offers() if each.region == NORTH)
    strangers = list(world.cloud.create(inside(request_for(offer, "stranger"), group.handle)))
    world.script.faults.append(Fault("delete_group", "MissingPermission"))
    world.save(world.cluster.with_(status=FleetStatus.terminating, due_at=world.at))
    world.until(lambda: world.machines[0].status is InstanceStatus.terminated)
    for _ in range(30):
        world.take_pass(seconds=30.0)
    assert world.cluster.status is FleetStatus.terminating
    assert "1 machines are in placement group" in world.cluster.groups[0].message
    failed = [event for event in world.events() if event.type is EventType.failed]
    assert [event.reason for event in failed] == ["MissingPermission"] and NORTH in failed[0].message
    for handle in strangers:
        world.cloud.lose(handle.id)
    world.until(lambda: world.cluster.status is FleetStatus.terminated, seconds=30.0)
    assert world.groups == [] and world.cluster.groups == ()


def test_a_backend_that_is_taken_out_keeps_its_groups_until_it_is_back(world: Grouped) -> None:
    wanting(world, 1)
    world.until(lambda: world.idle() == 1)
    backends = world.plane.backends
    world.end(0)
    world.until(lambda: world.machines[0].status is InstanceStatus.terminated)
    world.plane = replace(world.plane, backends=Accounts())
    world.script.faults.append(Fault("delete_group", "Transient"))
    for _ in range(10):
        world.take_pass()
    assert len(world.groups) == 1
    world.plane = replace(world.plane, backends=backends)
    world.until(lambda: not world.groups and not world.cluster.groups, seconds=30.0)


# --- the sweep --------------------------------------------------------------------------------------------------------


def leave(scene: Scene, install: str, name: str, fleet: str = "no fleet") -> Handle:  # noqa: F811
    request = group_request_for(scene.cloud.offers()[0], name)
    tags = {**dict(request.tags), "dstack-install": install, "dstack-project": b.PROJECT, "dstack-fleet": fleet}
    return scene.cloud.create_group(replace(request, tags=tuple(tags.items())))


def test_a_group_that_no_fleet_has_is_deleted_when_a_later_sweep_agrees(scene: Scene) -> None:  # noqa: F811
    known = scene.place.fleet("rack", nodes="0..3", placement="cluster")
    orphan, stranger = leave(scene, "ours", "orphan", known.id), leave(scene, "theirs", "stranger")
    left = {orphan.id, stranger.id}
    assert scene.sweep() == Swept() == scene.sweep(after=APART - 1)
    assert {body["id"] for body in scene.cloud.resources()} == left
    assert scene.event_types() == [EventType.orphaned]
    (found,) = scene.sweep(after=1).released
    assert found.handle == orphan
    assert {body["id"] for body in scene.cloud.resources()} == {stranger.id}
    assert scene.event_types() == [EventType.orphaned, EventType.reclaimed]
    assert scene.sweep(after=APART) == Swept()


def test_one_that_is_in_use_after_all_is_left_to_the_next_sweep(scene: Scene) -> None:  # noqa: F811
    orphan = leave(scene, "ours", "orphan")
    request = inside(request_for(scene.cloud.offers()[0]), orphan)
    tags = (("dstack-install", "theirs"), *request.tags[1:])
    handles = list(scene.cloud.create(replace(request, tags=tags)))
    scene.sweep()
    assert scene.sweep(after=APART) == Swept()
    for handle in handles:
        scene.cloud.lose(handle.id)
    assert [one.handle for one in scene.sweep(after=MINUTE).released] == [orphan]


def test_a_listing_that_fails_proves_nothing(scene: Scene) -> None:  # noqa: F811
    orphan = leave(scene, "ours", "orphan")
    scene.sweep()
    scene.script.faults.append(Fault("list_groups", "Transient"))
    assert scene.sweep(after=APART) == Swept()
    assert [one.handle for one in scene.sweep().released] == [orphan]
