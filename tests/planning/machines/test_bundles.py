"""The instances of one purchase: how each of them decides by the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chalicelib.domain.bundles import follows, handles_for, members, others_among, unclaimed
from chalicelib.domain.fleets import FleetStatus
from chalicelib.domain.instances import Handle, Instance, InstanceStatus
from chalicelib.domain.offers import OfferTerms
from chalicelib.domain.reasons import InstanceReason
from chalicelib.planning.kernel.plan import Plan
from chalicelib.planning.kernel.purchases import Create, Seen, Terminate
from chalicelib.planning.machines.bundles import occupied, staying
from chalicelib.planning.machines.fleet import decide_fleet
from chalicelib.planning.machines.instance import decide_instance
from chalicelib.planning.machines.outcomes import decide_outcome
from chalicelib.planning.machines.snapshots import FleetSnapshot, InstanceSnapshot
from chalicelib.planning.matching.offer_book import OfferBook
from tests.planning.machines.test_instance import OPEN, effects
from tests.world import nouns as b
from tests.world.nouns import lint

FLEET = b.fleet("cloud")
OFFER = b.offer("x3", terms=OfferTerms(bundle=3))
VM = (Handle(kind="vm", id="vm-1", data={"zone": "eu-a"}),)
IDLE = {"idle_seconds": 60, "idle_since": b.NOW}


def bundle(status: str = "idle", **fields: Any) -> list[Instance]:
    young = status in ("pending", "provisioning")
    fresh: dict[str, Any] = {"started_at": None, "idle_since": None, "deadline": b.NOW + 10 * b.MINUTE} if young else {}
    made = [
        b.machine(
            num,
            FLEET,
            offer=OFFER,
            bundle=0,
            status=InstanceStatus(status),
            **{**fresh, **fields},
        )
        for num in range(3)
    ]
    return made


def snapshot(at: int, those: list[Instance], now: int = b.NOW + b.SECOND, **more: Any) -> InstanceSnapshot:
    one, others = those[at], tuple(each for number, each in enumerate(those) if number != at)
    view = b.view(more.pop("fleet", FLEET), *those, nodes=more.pop("nodes", "0.."), placement="cluster")
    return InstanceSnapshot(now, one, None, view, more.pop("jobs", ()), b.FACTS["aws"], (), others)


def decided(seen: InstanceSnapshot) -> tuple[Instance, Plan]:
    plan = decide_instance(seen)
    assert lint(seen, plan) == []
    saved = {noun.id: noun for step in plan.steps for noun in step.saves if isinstance(noun, Instance)}
    return saved.get(seen.instance.id, seen.instance), plan


def ended(instance: Instance, reason: InstanceReason = InstanceReason.unreachable) -> Instance:
    return instance.with_(status=InstanceStatus.terminating, reason=reason, message="it is silent", due_at=b.NOW)


def busy(instance: Instance) -> Instance:
    return b.holding(instance.with_(status=InstanceStatus.busy, idle_since=None), b.job(b.run()))


def test_the_first_stands_for_all() -> None:
    those = bundle()
    assert [follows(each) for each in those] == [False, True, True]
    assert members(those[2]) == tuple(each.id for each in those)
    alone = b.machine(5, FLEET)
    assert members(alone) == (alone.id,) and not follows(alone)


def test_the_others_get_its_handles_each_with_its_number() -> None:
    first, second, third = bundle("pending", act_until=None)
    first = first.with_(status=InstanceStatus.provisioning, handles=VM)
    assert [each.data["worker"] for each in handles_for(third, first)] == ["2"]
    found, plan = decided(snapshot(1, [first, second, third]))
    assert found.status is InstanceStatus.provisioning and effects(plan) == []
    assert found.handles == (VM[0].with_(data={"zone": "eu-a", "worker": "1"}),)


def test_handles_that_came_before_the_first_was_accepted_are_enough() -> None:
    first, second, third = bundle("pending", act_until=OPEN, handles=VM)
    found, _ = decided(snapshot(1, [first, second.with_(act_until=None), third]))
    assert found.status is InstanceStatus.pending
    accepted = first.with_(status=InstanceStatus.provisioning, act_until=None)
    assert decided(snapshot(1, [accepted, found, third]))[0].status is InstanceStatus.provisioning


def test_the_others_buy_nothing_while_the_first_is_being_bought() -> None:
    first, second, third = bundle("pending", act_until=OPEN)
    second = second.with_(act_until=None, due_at=b.NOW)
    found, plan = decided(snapshot(1, [first, second, third], now=OPEN + b.SECOND))
    assert effects(plan) == [] and found.status is InstanceStatus.pending
    _, plan = decided(snapshot(0, [first, second, third], now=OPEN + b.SECOND))
    assert effects(plan) == [Create]


def test_a_bundle_that_wasnt_ordered_as_a_whole_is_never_bought() -> None:
    """The process died between two commits."""
    first, second, _ = bundle("pending", act_until=OPEN)
    found, plan = decided(snapshot(0, [first, second], now=OPEN - b.SECOND))
    assert (found.status, effects(plan)) == (InstanceStatus.pending, []), "the others may still be committed"
    found, plan = decided(snapshot(0, [first, second], now=OPEN))
    assert found.status is InstanceStatus.terminating and Create not in effects(plan)
    assert "wasn't ordered as a whole" in found.message


def test_numbers_that_a_purchase_committed_in_part_left_free_are_others() -> None:
    first, second, _ = bundle()
    single, later = b.machine(2, FLEET), b.machine(2, FLEET, offer=OFFER, bundle=2)
    elsewhere = b.machine(1, b.fleet("away"), offer=OFFER, bundle=0)
    for other in (None, single, later, elsewhere):
        assert others_among(first, [first, second, other]) == (second,)
    assert others_among(single, [first, second]) == () == others_among(single, [b.machine(3, FLEET)])


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("status", ["pending", "provisioning", "idle", "busy"])
def test_when_one_ends_the_others_do(at: int, status: str) -> None:
    those = bundle(status, act_until=None)
    if status == "busy":
        those = [busy(each) for each in those]
    those[(at + 1) % 3] = ended(those[(at + 1) % 3])
    found, plan = decided(snapshot(at, those))
    assert (found.status, found.reason) == (InstanceStatus.terminating, InstanceReason.unreachable)
    assert found.message.endswith("which was bought together with it, has ended: it is silent")
    assert Terminate not in effects(plan), "one of them hasn't ended yet"
    woken = those if at == 0 else (those[0], those[at])  # the first passes it on
    wakes = {unit for unit in plan.steps[0].wake if unit.startswith("instance/")}
    assert wakes == {f"instance/{each.id}" for each in woken}


def test_only_the_first_wakes_all() -> None:
    those = [ended(each) for each in bundle()]
    late = [each.with_(status=InstanceStatus.idle, reason=None) for each in those]
    assert woken(snapshot(0, [those[0], late[1], late[2]])) == {those[1].id, those[2].id}
    assert woken(snapshot(1, [late[0], those[1], late[2]])) == {those[0].id}
    gone = those[0].with_(status=InstanceStatus.terminated, finished_at=b.NOW)
    assert woken(snapshot(1, [gone, *those[1:]])) == set()


def woken(seen: InstanceSnapshot) -> set[str]:
    units = (unit for step in decided(seen)[1].steps for unit in step.wake)
    return {unit.removeprefix("instance/") for unit in units if unit.startswith("instance/")}


def test_the_first_is_terminated_once_all_are_ending_and_the_others_are_gone_with_it() -> None:
    those = [ended(each.with_(handles=VM)) for each in bundle()]
    late = [those[0], those[1], those[2].with_(status=InstanceStatus.idle, reason=None)]
    assert effects(decided(snapshot(0, late))[1]) == []
    assert effects(decided(snapshot(0, those))[1]) == [Terminate]
    early = [those[0].with_(due_at=b.NOW + b.MINUTE), *those[1:]]
    assert effects(decided(snapshot(0, early))[1]) == [Terminate], "the last one's end has woken it before it was due"
    tried = [early[0].with_(stop_attempts=1), *those[1:]]
    assert effects(decided(snapshot(0, tried))[1]) == []
    waiting, plan = decided(snapshot(1, those))
    assert effects(plan) == [] and waiting.status is InstanceStatus.terminating
    gone = [those[0].with_(status=InstanceStatus.terminated, finished_at=b.NOW), *those[1:]]
    found, plan = decided(snapshot(1, gone))
    assert found.status is InstanceStatus.terminated and effects(plan) == []


def test_while_one_uses_its_notice_none_is_terminated() -> None:
    those = [ended(each).with_(taken_back_at=b.NOW + b.MINUTE) for each in bundle()]
    those[2] = b.holding(those[2], b.job(b.run()))
    assert effects(decided(snapshot(0, those))[1]) == []
    assert effects(decided(snapshot(0, those, now=b.NOW + 2 * b.MINUTE))[1]) == [Terminate]


def test_a_notice_to_one_is_a_notice_to_all() -> None:
    those = [busy(each) for each in bundle()]
    those[1] = ended(those[1], InstanceReason.error).with_(taken_back_at=b.NOW + b.MINUTE)
    assert decided(snapshot(0, those))[0].taken_back_at == b.NOW + b.MINUTE


def test_one_idles_only_once_all_of_them_do() -> None:
    late = b.NOW + 10 * b.MINUTE
    those = bundle(**IDLE)
    assert decided(snapshot(0, those, now=late))[0].reason is InstanceReason.idle_timeout
    used = [those[0], those[1], busy(those[2])]
    assert decided(snapshot(0, used, now=late))[0].status is InstanceStatus.idle
    just = [those[0], those[1], those[2].with_(idle_since=late - b.SECOND)]
    assert decided(snapshot(0, just, now=late))[0].status is InstanceStatus.idle


@pytest.mark.parametrize(("nodes", "stays"), [("0..", False), ("1..", True), ("3..", True)])
def test_a_fleet_keeps_its_minimum_in_whole_bundles(nodes: str, stays: bool) -> None:
    found, _ = decided(snapshot(0, bundle(**IDLE), now=b.NOW + b.MINUTE * 10, nodes=nodes))
    assert (found.status is InstanceStatus.idle) == stays


FOURS = b.offer("x4", terms=OfferTerms(bundle=4))


def fours(count: int, **fields: Any) -> list[Instance]:
    """Idle instances, in bundles of four."""
    return [b.machine(num, FLEET, offer=FOURS, bundle=num - num % 4, **{**IDLE, **fields}) for num in range(count)]


def among(at: int, those: list[Instance], now: int, nodes: str) -> InstanceSnapshot:
    fleet = FLEET.with_(next_instance_num=len(those))
    view = b.view(fleet, *those, nodes=nodes, placement="cluster")
    return InstanceSnapshot(now, those[at], None, view, (), b.FACTS["aws"], (), others_among(those[at], those))


@pytest.mark.parametrize(
    ("count", "nodes", "idle_seconds", "left"),
    [(12, "4..12", 60, [8]), (12, "5..12", 60, [4, 8]), (12, "0..12", 60, []), (8, "4..4", None, [4])],
)
def test_bundles_end_only_while_the_fleet_has_too_many(
    count: int, nodes: str, idle_seconds: int | None, left: list[int]
) -> None:
    """One after the other, before the others of those that end have had a pass."""
    those = fours(count, idle_seconds=idle_seconds)
    for at in range(0, count, 4):
        those[at], _ = decided(among(at, those, b.NOW + 2 * b.MINUTE, nodes))
    assert [each.num for each in those if each.status is InstanceStatus.idle and each.num % 4 == 0] == left


def test_a_bundle_whose_first_was_refused_doesnt_stay() -> None:
    """It was never created, so it ends at once; its others do with their next passes."""
    those = fours(8)
    young: dict[str, Any] = {"status": InstanceStatus.pending, "idle_since": None, "started_at": None}
    refused = [those[0].with_(offer=OFFER, bundle=0), *(each.with_(offer=OFFER, bundle=0) for each in those[1:3])]
    coming = [each.with_(**young) for each in those[5:]]
    assert staying([*refused, *coming]) == refused
    assert occupied(FLEET.with_(next_instance_num=8), [*refused, *coming]) == 7


def of_fleet(those: list[Instance], nodes: str) -> Plan:
    view = b.view(FLEET.with_(next_instance_num=len(those)), *those, nodes=nodes)
    seen = FleetSnapshot(b.NOW, view, OfferBook((b.offer(),)), b.FACTS)
    plan = decide_fleet(seen)
    assert lint(seen, plan) == []
    return plan


def ends(plan: Plan) -> list[int]:
    saved = (noun for step in plan.steps for noun in step.saves if isinstance(noun, Instance))
    return [each.num for each in saved if each.status is InstanceStatus.terminating]


def test_a_fleet_gives_up_as_many_bundles_as_it_has_too_many() -> None:
    those = fours(12)
    assert ends(of_fleet(those, "0..8")) == [11] and ends(of_fleet(those, "0..4")) == [11, 7]
    assert ends(of_fleet([*those[:4], ended(those[4]), *those[5:8]], "4..4")) == [], "the others of #4 end with it"
    coming = [each.with_(status=InstanceStatus.provisioning, idle_since=None) for each in those[4:6]]
    assert ends(of_fleet([*those[:4], *coming, *those[6:8]], "4..4")) == [7]


def test_a_bundle_that_was_committed_in_part_takes_up_what_it_has() -> None:
    those = [ended(each) for each in fours(3)]
    assert occupied(FLEET.with_(next_instance_num=3), those) == 3
    later = b.machine(3, FLEET)
    assert occupied(FLEET.with_(next_instance_num=4), [*those, later]) == 4
    assert occupied(FLEET.with_(next_instance_num=8), [*those[1:], *fours(8)[4:]]) == 8, "all but its first are left"
    assert effects(of_fleet(those, "3..6")) == [Create] * 3


def test_a_fleet_that_ends_waits_for_all_of_them() -> None:
    those, leaving = bundle(), FLEET.with_(status=FleetStatus.terminating)
    assert decided(snapshot(0, those, fleet=leaving))[0].status is InstanceStatus.terminating
    assert unclaimed(those) == those
    used = [*those[:2], busy(those[2])]
    assert decided(snapshot(0, used, fleet=leaving))[0].status is InstanceStatus.idle
    other = b.machine(7, FLEET)
    assert unclaimed([*used, other]) == [other]


def test_what_the_first_was_refused_isnt_counted_twice() -> None:
    those = [each.with_(handles=VM, act_until=None) for each in bundle("provisioning")]
    seen = snapshot(1, those)
    refused = Seen(f"instance/{those[1].id}", 0, "gone", refused="InsufficientCapacity", message="no room")
    assert decide_outcome(seen, refused).steps == ()
    first = decide_outcome(snapshot(0, those), replace(refused, unit=f"instance/{those[0].id}"))
    (fleet,) = (noun for noun in first.steps[0].saves if noun.kind == "fleet")  # type: ignore[attr-defined]
    assert fleet.to_create == 3 and fleet.tried == (OFFER.key,)  # type: ignore[attr-defined]


@pytest.mark.parametrize("reason", [InstanceReason.idle_timeout, InstanceReason.terminated_by_user])
def test_a_job_that_was_placed_while_another_was_given_up_ends_with_it(reason: InstanceReason) -> None:
    """The end and the last of several commits of its places were simultaneous: the end wins."""
    those = bundle(**IDLE)
    those = [ended(those[0], reason), those[1], busy(those[2])]
    assert [decided(snapshot(at, those))[0].status for at in (1, 2)] == [InstanceStatus.terminating] * 2


# --- the rules that hold for every plan -------------------------------------------------------------------------------


def broken(seen: InstanceSnapshot, plan: Plan) -> str:
    return "; ".join(lint(seen, plan))


def test_the_rules_notice_a_bundle_that_is_given_up_under_a_job() -> None:
    those = bundle(**IDLE)
    seen = snapshot(0, those, now=b.NOW + 10 * b.MINUTE)
    plan = decide_instance(seen)
    used = replace(seen, bundle=(those[1], busy(those[2])))
    assert broken(seen, plan) == ""
    assert "is given up while cloud-2 of its bundle is used" in broken(used, plan)


def test_the_rules_dont_take_another_machine_with_its_number_for_one_of_it() -> None:
    those = [ended(each.with_(handles=VM)) for each in bundle()[:2]]
    single = b.machine(2, FLEET, status=InstanceStatus.busy)
    seen = replace(snapshot(0, those), fleet=b.view(FLEET, *those, single, nodes="0..", placement="cluster"))
    plan = decide_instance(seen)
    assert effects(plan) == [Terminate] and broken(seen, plan) == ""


def test_the_rules_notice_an_end_at_the_provider_too_early_or_of_another() -> None:
    those = [ended(each.with_(handles=VM)) for each in bundle()]
    seen = snapshot(0, those)
    plan = decide_instance(seen)
    early = replace(seen, bundle=(those[1], those[2].with_(status=InstanceStatus.idle, reason=None)))
    assert broken(seen, plan) == "" and "is terminated with cloud-2, which is idle" in broken(early, plan)
    alone = those[1].with_(bundle=None)
    wrong = decide_instance(replace(snapshot(1, those), instance=alone, bundle=()))
    saved = tuple(noun.with_(bundle=0) if isinstance(noun, Instance) else noun for noun in wrong.steps[0].saves)
    follower = Plan((replace(wrong.steps[0], saves=saved),))
    assert "follows another of its bundle, and Terminate is for that one" in broken(snapshot(1, those), follower)
