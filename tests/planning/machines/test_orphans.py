"""What belongs to nobody, what has no machine, and what only looks like it. Two looks must agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from chalicelib.domain.events import EVERYWHERE, EventType
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.fleets import PlacementGroup
from chalicelib.domain.instances import Handle, Instance, InstanceStatus
from chalicelib.domain.instants import MINUTE, SECOND, Micros
from chalicelib.domain.sightings import Sighting
from chalicelib.domain.tenants import Project
from chalicelib.domain.volumes import VolumeStatus
from chalicelib.planning.kernel.purchases import PATIENCE, confirmation_delay, describe
from chalicelib.planning.machines.orphans import (
    LIVE,
    SIGHTING_LASTS,
    AccountSweep,
    Finding,
    decide_sweep,
    stray_groups,
    stray_volumes,
    strays,
    unlisted,
)
from chalicelib.planning.volumes.volumes import DescribeVolume
from tests.world import nouns as b
from tests.world.disks import volume

LAG = 10 * SECOND
FACTS = BackendFacts(name="nimbus", title="Nimbus", visibility_lag=LAG, create_timeout=MINUTE)
PROJECT = Project(id="p", name="main", owner_id="u", created_at=b.NOW)
VM, DISK = Handle(kind="vm", id="vm-1"), Handle(kind="disk", id="disk-1")


@dataclass(frozen=True)
class Found:
    install: str = "ours"
    instance_id: str = "one"
    epoch: int = 0
    project_id: str = "p"
    handle: Handle = VM


def instance(**changes: object) -> Instance:
    fields = {"id": "one", "project_id": "p", "fleet_id": "f", "fleet_name": "cloud", "num": 0, "name": "cloud-0"}
    given = {"offer": b.offer(), "created_at": b.NOW, "last_processed_at": b.NOW, **fields, **changes}
    return Instance.model_validate(given)


# --- one listing: what belongs to nobody ------------------------------------------------------------------------------


def judged(found: Found, *owners: Instance, now: Micros = b.NOW) -> bool:
    known = {instance.id: instance for instance in owners}
    return strays([found], known, install_id="ours", now=now, lag=LAG) == [found]


@pytest.mark.parametrize("status", [status for status in InstanceStatus if status != "terminated"])
def test_what_a_living_instance_has_is_its_own(status: InstanceStatus) -> None:
    assert not judged(Found(), instance(status=status), now=b.NOW + 100 * LAG)


def test_a_tag_that_names_no_instance_is_nobodys() -> None:
    assert judged(Found())


def test_another_installs_resources_are_never_touched() -> None:
    assert not judged(Found(install="theirs"))
    ended = instance(status="terminated", finished_at=b.NOW)
    assert not judged(Found(install="theirs"), ended, now=b.NOW + 100 * LAG)


def test_what_an_ended_instance_left_is_nobodys_once_the_listing_must_have_caught_up() -> None:
    ended = instance(status="terminated", finished_at=b.NOW)
    assert not judged(Found(), ended, now=b.NOW + LAG - 1)
    assert judged(Found(), ended, now=b.NOW + LAG)


def test_an_earlier_purchase_is_nobodys_and_a_later_one_isnt_judged() -> None:
    assert judged(Found(epoch=0), instance(epoch=1))
    ended = instance(status="terminated", finished_at=b.NOW)
    assert not judged(Found(epoch=1), ended, now=b.NOW + 100 * LAG)


OTHER_VM = Handle(kind="vm", id="vm-2")


@pytest.mark.parametrize("status", InstanceStatus)
def test_a_second_machine_of_a_purchase_is_nobodys_while_no_job_can_be_on_it(status: InstanceStatus) -> None:
    """The answer to a creation was lost, and what it had created was listed after the next one. The agent of either
    may have used the instance's token first."""
    one = instance(status=status, handles=(DISK, VM))
    assert judged(Found(handle=OTHER_VM), one) == (status in ("provisioning", "idle"))
    assert judged(Found(handle=Handle(kind="disk", id="disk-2")), one) == (status in ("provisioning", "idle"))
    assert not judged(Found(handle=VM), one) and not judged(Found(handle=DISK), one)


def test_what_came_with_a_machine_is_no_second_one() -> None:
    """Such as a network card, which the provider lists by itself."""
    one = instance(status="idle", handles=(VM,))
    assert not judged(Found(handle=DISK), one)
    assert not judged(Found(handle=OTHER_VM), instance(status="idle"))
    assert not judged(Found(handle=OTHER_VM, epoch=1), one)


# --- one listing: whose machine isn't there ---------------------------------------------------------------------------


@pytest.mark.parametrize("status", InstanceStatus)
def test_only_an_instance_that_should_have_a_machine_can_lack_it(status: InstanceStatus) -> None:
    one = instance(status=status, handles=(DISK, VM))
    assert unlisted([], [one]) == ([one] if status in LIVE else [])
    assert {"provisioning", "idle", "busy"} == set(LIVE)


def test_what_was_never_written_down_cannot_be_missing() -> None:
    assert unlisted([], [instance(status="provisioning")]) == []


@pytest.mark.parametrize(
    "shown", [Found("?", "?"), Found("?", "?", handle=DISK), Found(handle=Handle(kind="ip", id="7"))]
)
def test_one_resource_by_handle_or_by_tag_is_enough(shown: Found) -> None:
    """What is left of it in part is for `describe` to judge, which is asked while its agent is silent."""
    assert unlisted([shown], [instance(status="idle", handles=(DISK, VM))]) == []


# --- two looks --------------------------------------------------------------------------------------------------------


def sweep(*found: Found, began: Micros = b.NOW, lacking: Instance | None = None, **more: object) -> AccountSweep[Found]:
    absent = [(lacking, None)] if lacking else []
    given = {"projects": {"p": PROJECT}, "absent": absent, **more}
    return AccountSweep("nimbus-all", FACTS, began, began + SECOND, found, **given)  # type: ignore[arg-type]


def sighting(findings: Sequence[Finding[Found]]) -> Sighting:
    ((saved,),) = [finding.step.saves for finding in findings]
    assert isinstance(saved, Sighting)
    return saved.with_(version=saved.version + 1)


def event_types(finding: Finding[Found]) -> list[EventType | None]:
    return [event.type for event in finding.step.events]


STRAY, LACKING = Found(instance_id="unheard-of"), instance(status="idle", handles=(DISK, VM))
FIRST = sighting(list(decide_sweep(sweep(STRAY))))
CONFIRMED_AT = FIRST.first_at + confirmation_delay(FACTS)


def test_the_first_sight_is_written_down_and_told_and_nothing_is_done() -> None:
    (finding,) = decide_sweep(sweep(STRAY))
    assert (finding.end, finding.gone) == (None, None)
    assert (FIRST.subject, FIRST.first_at, FIRST.until) == (
        "resource/vm/vm-1",
        b.NOW + SECOND,
        b.NOW + SECOND + SIGHTING_LASTS,
    )
    (event,) = finding.step.events
    assert (event.type, event.project_id, event.targets[0].name) == (EventType.orphaned, "p", "main")
    assert event.message == "vm vm-1 at Nimbus is an orphan; it will be removed if the next sweep agrees"


def test_a_second_look_that_is_too_early_says_nothing() -> None:
    assert list(decide_sweep(sweep(STRAY, began=CONFIRMED_AT - 1, sightings=[FIRST]))) == []


def test_it_is_the_beginning_of_the_second_listing_that_counts() -> None:
    slow = replace(sweep(STRAY, began=CONFIRMED_AT - 1, sightings=[FIRST]), now=CONFIRMED_AT + MINUTE)
    assert list(decide_sweep(slow)) == []


def test_a_second_look_far_enough_away_ends_it() -> None:
    (finding,) = decide_sweep(sweep(STRAY, began=CONFIRMED_AT, sightings=[FIRST]))
    assert (finding.end, event_types(finding)) == (STRAY, [EventType.reclaimed])
    assert finding.step.events[0].message == "vm vm-1 at Nimbus is an orphan and is being removed"


def test_two_looks_lie_further_apart_than_any_lag() -> None:
    assert confirmation_delay(FACTS) >= FACTS.visibility_lag + FACTS.create_timeout


def test_it_is_told_once_and_ended_until_it_is_gone() -> None:
    acted = sighting(list(decide_sweep(sweep(STRAY, began=CONFIRMED_AT, sightings=[FIRST]))))
    (again,) = decide_sweep(sweep(STRAY, began=CONFIRMED_AT + SECOND, sightings=[acted]))
    assert (again.end, again.step.saves, again.step.events) == (STRAY, (), ())


def test_a_look_that_contradicts_undoes_the_first() -> None:
    """Its owner turned up, or it is gone: what is seen later is a first sight again."""
    undone = sighting(list(decide_sweep(sweep(began=CONFIRMED_AT, sightings=[FIRST]))))
    assert list(decide_sweep(sweep(began=CONFIRMED_AT + SECOND, sightings=[undone]))) == []
    (again,) = decide_sweep(sweep(STRAY, began=CONFIRMED_AT + MINUTE, sightings=[undone]))
    assert (again.end, event_types(again)) == (None, [EventType.orphaned])


def test_a_first_sight_of_long_ago_counts_for_nothing() -> None:
    (again,) = decide_sweep(sweep(STRAY, began=b.NOW + SIGHTING_LASTS, sightings=[FIRST]))
    assert (again.end, event_types(again)) == (None, [EventType.orphaned])
    assert sighting([again]).version == FIRST.version + 1  # the old one may still stand there


def test_without_the_tags_project_global_admins_see_it_and_the_rest_is_the_same() -> None:
    (finding,) = decide_sweep(sweep(STRAY, projects={}))
    (event,) = finding.step.events
    assert (event.type, event.project_id, event.targets[0].name) == (EventType.orphaned, EVERYWHERE, "p")
    (finding,) = decide_sweep(sweep(STRAY, began=CONFIRMED_AT, projects={}, sightings=[sighting([finding])]))
    assert (finding.end, event_types(finding)) == (STRAY, [EventType.reclaimed])


def test_each_resource_is_seen_for_itself() -> None:
    other = replace(STRAY, handle=DISK)
    found = list(decide_sweep(sweep(STRAY, other, began=CONFIRMED_AT, sightings=[FIRST])))
    assert [(finding.end, event_types(finding)) for finding in found] == [
        (STRAY, [EventType.reclaimed]),
        (None, [EventType.orphaned]),
    ]


def test_an_instance_without_a_machine_is_told_of_and_then_asked_for_by_name() -> None:
    """An account that leads elsewhere than before lists nothing, either."""
    (first,) = decide_sweep(sweep(lacking=LACKING))
    assert (first.gone, event_types(first)) == (None, [EventType.missing])
    (event,) = first.step.events
    assert (event.targets[0].name, event.fleet_id) == ("cloud-0", "f")
    seen = next(noun for noun in first.step.saves if isinstance(noun, Sighting))
    assert list(decide_sweep(sweep(lacking=LACKING, began=CONFIRMED_AT - 1, sightings=[seen]))) == []
    (second,) = decide_sweep(sweep(lacking=LACKING, began=CONFIRMED_AT, sightings=[seen]))
    assert (second.gone, second.end, second.step.events) == (LACKING, None, ())
    assert second.step.effects == (describe(LACKING, CONFIRMED_AT + SECOND, FACTS),)


def test_a_volume_without_a_disk_is_told_of_and_then_asked_for_by_name() -> None:
    """What it holds can't be bought again: two listings aren't proof enough."""
    lacking = volume()
    first = sighting(list(decide_sweep(sweep(diskless=[lacking]))))
    (second,) = decide_sweep(sweep(diskless=[lacking], began=CONFIRMED_AT, sightings=[first]))
    assert second.gone == lacking
    description = DescribeVolume(lacking.unit, lacking.backend, CONFIRMED_AT + SECOND + PATIENCE, lacking.project_id)
    assert second.step.effects == (description,)


def test_another_purchase_of_the_instance_is_another_matter() -> None:
    first = sighting(list(decide_sweep(sweep(lacking=LACKING))))
    found = list(decide_sweep(sweep(lacking=LACKING.with_(epoch=1), began=CONFIRMED_AT, sightings=[first])))
    assert [finding.gone for finding in found] == [None, None]


@pytest.mark.parametrize(("promised", "lost"), [(SECOND, False), (SECOND - 1, True)])
def test_a_machine_whose_agent_reports_is_there_whatever_is_listed(promised: Micros, lost: bool) -> None:
    """Somebody took the tag off, or the credentials are of another account now."""
    first = sighting(list(decide_sweep(sweep(lacking=LACKING))))
    presence = b.presence_of(LACKING, last=CONFIRMED_AT).with_(seen_until=CONFIRMED_AT + promised)
    found = list(decide_sweep(sweep(began=CONFIRMED_AT, sightings=[first], absent=[(LACKING, presence)])))
    assert [finding.gone for finding in found] == [LACKING if lost else None]


def test_the_lag_is_counted_from_the_end_or_from_what_was_last_seen_of_it() -> None:
    touched = instance(status="terminated", finished_at=b.NOW, last_processed_at=b.NOW + 50 * LAG)
    assert judged(Found(), touched, now=b.NOW + LAG)
    assert not judged(Found(), touched, now=b.NOW + LAG - 1)
    old = instance(status="terminated", finished_at=None, last_processed_at=b.NOW + 5 * LAG)
    assert judged(Found(), old, now=b.NOW + 6 * LAG)
    assert not judged(Found(), old, now=b.NOW + 6 * LAG - 1)


# --- what isn't an instance's -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FoundGroup:
    install: str = "ours"
    fleet_id: str = "f"
    group_id: str = "g"


@dataclass(frozen=True)
class FoundDisk:
    install: str = "ours"
    volume_id: str = "v"
    epoch: int = 1


def test_a_placement_group_is_nobodys_if_no_fleet_has_it() -> None:
    having = b.fleet("f", groups=(PlacementGroup(id="g", backend="aws", region="eu"),))
    for found, fleets, stray in (
        (FoundGroup(), {"f": having}, False),
        (FoundGroup(group_id="h"), {"f": having}, True),
        (FoundGroup(), {}, True),
        (FoundGroup(install="theirs"), {}, False),
    ):
        assert stray_groups([found], fleets, install_id="ours") == [found] * stray


@pytest.mark.parametrize(
    ("found", "owner", "stray"),
    [
        (FoundDisk(), None, True),
        (FoundDisk(install="theirs"), None, False),
        (FoundDisk(), {}, False),
        (FoundDisk(), {"epoch": 2}, True),  # of an earlier life
        (FoundDisk(), {"status": VolumeStatus.deleted, "deleted_at": b.NOW - LAG}, True),
        (FoundDisk(), {"status": VolumeStatus.deleted, "deleted_at": b.NOW - LAG + 1}, False),  # may be shown too late
        (FoundDisk(epoch=2), {"status": VolumeStatus.deleted, "deleted_at": b.NOW - LAG}, False),
    ],
)
def test_a_disk_is_nobodys_if_no_volume_has_it(found: FoundDisk, owner: dict[str, Any] | None, stray: bool) -> None:
    owners = {} if owner is None else {"v": volume(**{"epoch": 1, **owner})}
    assert stray_volumes([found], owners, install_id="ours", now=b.NOW, lag=LAG) == [found] * stray
