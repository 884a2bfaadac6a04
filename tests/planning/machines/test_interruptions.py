"""Machines that their cloud takes back: the time that their jobs have, and what is asked before it."""

from __future__ import annotations

from typing import Any

from chalicelib.domain.instances import Handle, InstanceStatus
from chalicelib.domain.instants import HOUR, Micros
from chalicelib.domain.jobs import Mounted
from chalicelib.domain.offers import OfferTerms
from chalicelib.planning.kernel.purchases import Describe, Seen, Terminate
from chalicelib.planning.machines.instance import TO_BE_WARNED
from chalicelib.planning.machines.interruptions import NOTICE
from tests.planning.machines.test_instance import World, effects
from tests.world import nouns as b

SPOT = b.offer(has=b.resources(spot=True))


def taken_back(at: Micros = b.NOW + b.MINUTE) -> World:
    """A spot machine whose cloud takes it back then, while a job runs there."""
    return World("terminating", due_at=b.NOW, offer=SPOT, taken_back_at=at).with_job("terminating")


def test_a_machine_that_is_taken_back_is_left_to_its_jobs_until_they_have_stopped() -> None:
    world = taken_back()
    assert effects(world.decide()) == []
    assert world.instance.due_at == b.NOW + b.MINUTE
    world.jobs, world.instance = (), world.instance.with_(claims=())
    assert effects(world.decide()) == [Terminate]
    assert effects(world.decide()) == []  # it has been asked for


def test_a_machine_that_is_taken_back_is_released_when_its_time_is_over() -> None:
    world = taken_back()
    assert effects(world.decide()) == []
    world.now = b.NOW + b.MINUTE
    assert effects(world.decide()) == [Terminate]


def test_a_machine_that_goes_before_its_time_is_over_is_released_then() -> None:
    world = taken_back()
    world.instance = world.instance.with_(handles=(Handle(kind="vm", id="v1"),))
    world.now += HOUR
    world.instance = world.instance.with_(taken_back_at=world.now + b.MINUTE)
    assert effects(world.decide()) == []
    assert effects(world.outcome(Seen("x", 0, "running", interrupted=True))) == []
    assert effects(world.outcome(Seen("x", 0, "gone"))) == [Terminate]
    assert effects(world.outcome(Seen("x", 0, "gone"))) == [], "once"


def test_a_notice_of_the_cloud_leaves_time_and_an_end_leaves_none() -> None:
    announced = World("busy", offer=SPOT, handles=(Handle(kind="vm", id="v1"),)).with_job("running")
    announced.outcome(Seen("x", 0, "running", interrupted=True))
    assert announced.instance.taken_back_at == announced.now + NOTICE
    gone = World("busy", offer=SPOT, handles=(Handle(kind="vm", id="v1"),)).with_job("running")
    gone.now += HOUR
    plan = gone.outcome(Seen("x", 0, "gone"))
    assert gone.instance.taken_back_at is None
    assert effects(plan) == [Terminate]


def with_a_disk(status: str, **fields: Any) -> World:
    """A spot machine with a disk of a job that hasn't stopped, and with an agent that was heard of just now."""
    handles = (Handle(kind="vm", id="v1"),)
    world = World(status, offer=SPOT, due_at=b.NOW, disks=("disk",), handles=handles, started_at=b.NOW, **fields)
    (job,) = world.with_job("terminating").jobs
    assert job.assignment is not None
    mounts = (Mounted(id="disk", name="data", path="/data"),)
    world.jobs = (job.with_(assignment=job.assignment.with_(volumes=mounts), kill_at=b.NOW + HOUR),)
    return world.reported(promise=b.DAY)


def test_nobody_can_unmount_the_disks_of_a_machine_that_is_gone_so_nothing_waits_for_that() -> None:
    gone = with_a_disk("busy")
    gone.now += b.MINUTE
    assert effects(gone.outcome(Seen("x", 0, "gone"))) == [Terminate]
    assert effects(gone.decide()) == [], "it has been asked for"
    gone.left()
    assert gone.instance.status is InstanceStatus.terminated
    before_its_time = with_a_disk("terminating", taken_back_at=b.NOW + HOUR)
    before_its_time.now += b.MINUTE
    assert effects(before_its_time.decide()) == []
    assert effects(before_its_time.outcome(Seen("x", 0, "gone"))) == [Terminate]


def test_disks_are_unmounted_until_the_machine_is_taken_and_no_longer() -> None:
    world = with_a_disk("terminating", taken_back_at=b.NOW + b.MINUTE)
    world.now = b.NOW + b.MINUTE - 1
    assert effects(world.decide()) == []
    world.now += 1
    assert effects(world.decide()) == [Terminate]


BLOCK = b.offer().with_(terms=OfferTerms(reservation="cr-1", ends_at=b.NOW + HOUR))


def test_a_machine_that_was_bought_until_then_is_asked_about_before_and_no_earlier() -> None:
    """Its end may have been put off since: it is asked about as long as it lives."""
    world = World("busy", offer=BLOCK, due_at=b.NOW).with_job("running").reported(promise=b.DAY)
    assert effects(world.decide()) == []
    assert world.instance.due_at == b.NOW + HOUR - TO_BE_WARNED
    for _ in range(3):
        world.now = world.instance.due_at or 0
        assert effects(world.decide()) == [Describe]
        assert effects(world.decide()) == [], "once"
        world.seen("running")
    assert world.instance.status is InstanceStatus.busy


def test_a_machine_has_until_then_if_its_cloud_says_when_it_goes() -> None:
    for reclaim_at, until in ((b.NOW + HOUR, b.NOW + HOUR), (b.NOW, b.NOW + b.SECOND + NOTICE)):
        world = World("busy", offer=BLOCK, handles=(Handle(kind="vm", id="v1"),)).with_job("running")
        world.outcome(Seen("x", 0, "running", interrupted=True, reclaim_at=reclaim_at))
        assert (world.instance.taken_back_at, world.instance.message) == (until, "its reservation cr-1 ends")
