"""Which placement group a machine is ordered in, when one leaves, and what comes of its deletion."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.fleets import Fleet, FleetStatus, PlacementGroup
from chalicelib.domain.instances import Handle, Instance, InstanceStatus
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.errors import Bug
from chalicelib.machines.instance import TERMINATE_EVERY, TERMINATE_SELDOM
from chalicelib.planning.kernel.plan import Effect, Outcome, Plan, Step
from chalicelib.planning.machines.fleet import decide_fleet
from chalicelib.planning.machines.placement_groups import decide_group, delete_unused_groups, earliest_check
from chalicelib.planning.machines.snapshots import FleetSnapshot
from chalicelib.planning.matching.offer_book import OfferBook
from chalicelib.planning.placing.placement_groups import DeleteGroup, GroupLeft, GroupNotDeleted, in_group, lost
from tests.world import nouns as b
from tests.world.nouns import NOW, lint

FACTS = BackendFacts(name="aws", multinode=True, placement_groups=True, visibility_lag=10 * SECOND)
CLUSTER = b.fleet_spec(nodes="0..4", placement="cluster")
UNIT = f"fleet/{b.fleet().id}"


def group(name: str = "g", *, zone: str = "", **fields: Any) -> PlacementGroup:
    handle = Handle(kind="group", id=f"pg-{name}", data={"zone": zone} if zone else {})
    return PlacementGroup(**{"id": name, "backend": "aws", "region": "eu", "handle": handle, "made_at": NOW, **fields})


def leaving(name: str = "g", **fields: Any) -> PlacementGroup:
    return group(name, **{"leaving": True, "asked": 1, "look_at": NOW + MINUTE, **fields})


def ordered(
    *groups: PlacementGroup, facts: BackendFacts = FACTS, spec: Any = CLUSTER, **offer: Any
) -> tuple[Fleet, str]:
    machine = b.machine(offer=b.offer(**offer), status=InstanceStatus.pending)
    fleet, found = in_group(b.fleet(groups=groups), spec, machine, facts)
    return fleet, found.placement_group


def test_the_first_machine_of_a_place_gets_a_new_group() -> None:
    fleet, name = ordered()
    (made,) = fleet.groups
    assert (made.id, made.backend, made.region) == (name, "aws", "eu")
    assert made.handle is None and not made.leaving


def test_the_next_ones_join_it() -> None:
    assert ordered(group("one"), group("two", region="us")) == (
        b.fleet(groups=(group("one"), group("two", region="us"))),
        "one",
    )
    assert ordered(group("one"), group("two", region="us"), region="us")[1] == "two"


@pytest.mark.parametrize(
    "other", [leaving("g"), group("g", region="us"), group("g", backend="gcp"), group("g", zone="eu-c")]
)
def test_no_machine_joins_one_that_leaves_or_is_elsewhere(other: PlacementGroup) -> None:
    fleet, name = ordered(other, availability_zones=("eu-a", "eu-b"))
    assert name != "g" and [each.id for each in fleet.groups] == ["g", name]


@pytest.mark.parametrize("zones", [None, ("eu-a", "eu-c")])
def test_a_group_of_a_zone_takes_what_may_be_there(zones: Any) -> None:
    assert ordered(group("g", zone="eu-c"), availability_zones=zones)[1] == "g"


def test_only_clusters_of_backends_that_have_groups_get_one() -> None:
    assert ordered(facts=FACTS.with_(placement_groups=False)) == (b.fleet(), "")
    assert ordered(spec=b.fleet_spec(nodes="0..4")) == (b.fleet(), "")


# --- leaving ----------------------------------------------------------------------------------------------------------


def effects(steps: tuple[Step, ...]) -> list[Effect]:
    return [effect for step in steps for effect in step.effects]


@pytest.mark.parametrize("status", [each for each in InstanceStatus if each is not InstanceStatus.terminated])
def test_a_group_stays_while_an_instance_may_be_in_it(status: InstanceStatus) -> None:
    fleet = b.fleet(groups=(group(),))
    assert delete_unused_groups(fleet, [b.machine(status=status, placement_group="g")], NOW) == ((), fleet)


def test_it_leaves_once_none_is() -> None:
    fleet = b.fleet(groups=(group("used"), group("g")))
    there = [b.machine(placement_group="used"), b.machine(1, status=InstanceStatus.terminated, placement_group="g")]
    (step,), after = delete_unused_groups(fleet, there, NOW)
    assert step.saves == (after,)
    assert [(each.id, each.leaving, each.asked, each.look_at) for each in after.groups] == [
        ("used", False, 0, None),
        ("g", True, 1, NOW + TERMINATE_EVERY),
    ]
    assert after.due_at == NOW + TERMINATE_EVERY
    assert step.effects == (DeleteGroup(UNIT, "aws", NOW + TERMINATE_EVERY + MINUTE, fleet.project_id, "g"),)


@pytest.mark.parametrize(
    ("attempts", "pause"), [(1, 2 * TERMINATE_EVERY), (3, 8 * TERMINATE_EVERY), (9, TERMINATE_SELDOM)]
)
def test_its_deletion_is_requested_less_and_less_often(attempts: int, pause: int) -> None:
    fleet = b.fleet(groups=(leaving(asked=attempts),))
    assert delete_unused_groups(fleet, (), NOW + MINUTE - 1) == ((), fleet)
    steps, after = delete_unused_groups(fleet, (), NOW + MINUTE)
    assert len(effects(steps)) == 1 and after.groups[0].look_at == NOW + MINUTE + pause


def test_a_fleet_is_looked_at_for_whichever_is_first() -> None:
    fleet = b.fleet(groups=(leaving("one", look_at=NOW + 2), leaving("two", look_at=NOW + 3), group("three")))
    assert [earliest_check(fleet, at) for at in (None, NOW + 1, NOW + 5)] == [NOW + 2, NOW + 1, NOW + 2]
    assert earliest_check(b.fleet(groups=(group(),)), None) is None


def decided_on(fleet: Fleet, *there: Instance, now: int = NOW, **config: Any) -> tuple[Plan, FleetSnapshot]:
    view = b.view(fleet, *there, **{"nodes": "0..4", "placement": "cluster", **config})
    snapshot = FleetSnapshot(now, view, OfferBook((b.offer(),)), {"aws": FACTS})
    plan = decide_fleet(snapshot)
    assert lint(snapshot, plan) == []
    return plan, snapshot


def last(plan: Plan) -> Fleet:
    return next(noun for step in reversed(plan.steps) for noun in step.saves if isinstance(noun, Fleet))


def test_a_fleet_deletes_the_groups_that_nobody_is_in() -> None:
    plan, _ = decided_on(b.fleet(groups=(group(),), due_at=NOW))
    assert [type(each) for each in effects(plan.steps)] == [DeleteGroup]
    assert last(plan).due_at == plan.next_wake == NOW + TERMINATE_EVERY


def test_a_new_machine_does_not_join_the_one_that_leaves_now() -> None:
    plan, _ = decided_on(b.fleet(groups=(group(),), to_create=1))
    (machine,) = (noun for step in plan.steps for noun in step.saves if isinstance(noun, Instance))
    assert machine.placement_group not in ("", "g")
    assert [(each.id, each.leaving) for each in last(plan).groups] == [("g", True), (machine.placement_group, False)]


def test_a_pause_outlasts_looks_at_a_group() -> None:
    fleet = b.fleet(groups=(leaving(look_at=NOW),), consolidation_attempt=2, paused_until=NOW + MINUTE, due_at=NOW)
    plan, _ = decided_on(fleet, nodes="1")
    assert last(plan).consolidation_attempt == 2 and last(plan).paused_until == NOW + MINUTE
    assert not [noun for step in plan.steps for noun in step.saves if isinstance(noun, Instance)]


def test_a_deleted_fleet_ends_after_its_groups() -> None:
    over = b.fleet(status=FleetStatus.terminating, groups=(group(),), due_at=NOW)
    plan, _ = decided_on(over)
    assert last(plan).status is FleetStatus.terminating and len(effects(plan.steps)) == 1
    assert last(plan).due_at == NOW + TERMINATE_EVERY
    plan, _ = decided_on(over.with_(groups=()))
    assert last(plan).status is FleetStatus.terminated


# --- what comes of it -------------------------------------------------------------------------------------------------


def after_outcome(outcome: Outcome, *groups: PlacementGroup, **fields: Any) -> tuple[Plan, Fleet | None]:
    snapshot = FleetSnapshot(NOW, b.view(b.fleet(groups=groups, due_at=NOW + 1, **fields)), OfferBook(()))
    plan = decide_group(snapshot, outcome)
    assert lint(snapshot, plan) == []
    return plan, None if plan.empty else last(plan)


def test_what_is_gone_is_forgotten() -> None:
    plan, fleet = after_outcome(GroupLeft(UNIT, "g"), leaving(), group("other"))
    assert fleet and [each.id for each in fleet.groups] == ["other"]
    assert plan.steps[0].wake == (UNIT,) and fleet.due_at == NOW + 1
    _, fleet = after_outcome(GroupLeft(UNIT, "g"), leaving(), status=FleetStatus.terminating)
    assert fleet and fleet.due_at == NOW


def test_what_is_still_there_is_remembered_once() -> None:
    _, fleet = after_outcome(GroupLeft(UNIT, "g", "2 machines are in it"), leaving())
    assert fleet and fleet.groups == (leaving(message="2 machines are in it"),)
    plan, _ = after_outcome(GroupLeft(UNIT, "g", "2 machines are in it"), *fleet.groups)
    assert plan.empty


@pytest.mark.parametrize(("after", "look_at"), [(None, NOW + MINUTE), (5.0, NOW + MINUTE), (90.0, NOW + 90 * SECOND)])
def test_a_failure_is_told_and_its_pause_is_kept(after: float | None, look_at: int) -> None:
    failed = GroupNotDeleted(UNIT, "Throttled", "too many requests", after, "g")
    plan, fleet = after_outcome(failed, leaving())
    assert fleet and (fleet.groups[0].message, fleet.groups[0].look_at) == ("too many requests", look_at)
    (event,) = plan.steps[0].events
    assert event.message == "Throttled: placement group in eu: too many requests"
    assert after_outcome(failed, *fleet.groups)[0].empty


def test_what_came_too_late_changes_nothing() -> None:
    assert after_outcome(GroupLeft(UNIT, "g"))[0].empty
    with pytest.raises(Bug, match="no outcome of an effect on a fleet"):
        after_outcome(Outcome(UNIT))


@pytest.mark.parametrize(("now", "forgotten"), [(NOW + 10 * SECOND - 1, False), (NOW + 10 * SECOND, True)])
def test_an_unknown_group_is_made_again_once_it_should_be_visible(now: int, forgotten: bool) -> None:
    fleet, machine = b.fleet(groups=(group(), group("other"))), b.machine(placement_group="g")
    found = lost(fleet, machine, now, FACTS)
    assert (found is not None) == forgotten
    if found:
        assert found.groups == (group(handle=None, made_at=None), group("other"))
        assert lost(found, machine, now, FACTS) is None
    assert lost(fleet, b.machine(), now, FACTS) is None


# --- the rules --------------------------------------------------------------------------------------------------------


def broken(before: Fleet, *there: Instance, **step: Any) -> list[str]:
    snapshot = FleetSnapshot(NOW, b.view(before, *there), OfferBook(()))
    return [rule for rule in lint(snapshot, Plan((Step(**step),))) if "group" in rule]


def test_plans_that_break_a_rule() -> None:
    fleet, machine = b.fleet(groups=(group(),)), b.machine(placement_group="g", version=1)
    gone = fleet.with_(groups=(leaving(),), due_at=NOW)
    delete = DeleteGroup(UNIT, "aws", NOW, fleet.project_id, "g")
    used = "fleet local gives up placement group g, which is used"
    assert broken(fleet, saves=(gone,), effects=(delete,)) == []
    assert broken(fleet, machine, saves=(gone,), effects=(delete,)) == [used]
    assert broken(fleet, machine, saves=(fleet.with_(groups=()),)) == [used]
    ended = machine.with_(status=InstanceStatus.terminated)
    assert broken(fleet, machine, saves=(gone, ended), effects=(delete,)) == []
    unintended = "placement group g is deleted without committing it"
    assert broken(fleet, effects=(delete,)) == [unintended]
    assert broken(fleet, saves=(fleet,), effects=(delete,)) == [unintended]
    unwatched = "fleet local deletes a placement group, but nothing will look at it again"
    assert broken(fleet, saves=(gone.with_(due_at=None),)) == [unwatched]
    new = b.machine(1, placement_group="g", version=0)
    stray = f"instance {new.name} is ordered in a placement group that its fleet doesn't keep"
    assert broken(fleet, saves=(fleet, new)) == []
    assert broken(fleet, saves=(gone, new)) == [stray, used]
    assert broken(fleet, saves=(new,)) == [stray]


@pytest.mark.parametrize(
    ("leaving", "look_at", "at", "when"),
    [
        (True, 3, 5, 3),
        (True, 7, 5, 5),
        (True, 3, None, 3),
        (True, None, 5, 5),  # its machines haven't gone yet
        (False, 3, 5, 5),
        (False, None, None, None),
    ],
)
def test_a_fleet_is_looked_at_sooner_for_a_group_that_leaves(
    leaving: bool, look_at: int | None, at: int | None, when: int | None
) -> None:
    group = PlacementGroup(id="g", backend="aws", region="eu", leaving=leaving, look_at=look_at)
    assert earliest_check(b.fleet("cloud", groups=(group,)), at) == when
