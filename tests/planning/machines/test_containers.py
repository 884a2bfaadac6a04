"""A container in place of a machine, from its order to its end: it is there for one job."""

from __future__ import annotations

import pytest

from chalicelib.domain.instances import Handle, InstanceStatus
from chalicelib.domain.jobs import JobStatus
from chalicelib.domain.offers import CONTAINER
from chalicelib.domain.reasons import InstanceReason, JobReason
from chalicelib.planning.kernel.purchases import Describe, Seen, Terminate
from tests.planning.machines.test_instance import World, effects
from tests.world import nouns as b

POD = b.offer("pod", instance_runtime=CONTAINER)
VM = (Handle(kind="vm", id="vm-1"),)


def refused(world: World, message: str) -> None:
    world.not_bought("ContainerFailed", message)


def failed(world: World, message: str) -> None:
    world.outcome(Seen(world.unit, world.instance.epoch, "gone", refused="ContainerFailed", message=message))


def test_a_container_ends_with_its_job() -> None:
    world = World("busy", offer=POD, idle_seconds=0)
    world.decide()
    assert (world.instance.status, world.instance.reason) == (InstanceStatus.terminating, InstanceReason.job_finished)


@pytest.mark.parametrize("status", ["pending", "provisioning"])
def test_a_container_whose_job_ended_before_it_came_up_ends_too(status: str) -> None:
    world = World(status, offer=POD, idle_seconds=0)
    world.decide()
    assert (world.instance.status, world.instance.reason) == (InstanceStatus.terminating, InstanceReason.job_finished)
    machine = World(status, idle_seconds=0)
    machine.decide()
    assert machine.instance.status != InstanceStatus.terminating, "a machine is there for the next one"


def test_what_keeps_a_container_from_starting_ends_its_job_and_no_other_offer_is_tried() -> None:
    for world, report in (
        (World("pending", offer=POD).with_job(), refused),
        (World("provisioning", offer=POD, act_until=None, handles=VM).with_job(), failed),
    ):
        report(world, "no such image")
        (job,) = world.jobs
        assert (job.status, job.reason) == (JobStatus.failed, JobReason.creating_container_error)
        assert job.message == "no such image"
        assert world.instance.status in (InstanceStatus.terminating, InstanceStatus.terminated)
        assert not world.instance.claims


def test_a_container_that_exits_under_its_job_says_why() -> None:
    world = World("busy", offer=POD, handles=VM).with_job("running")
    failed(world, "it ran out of memory")
    assert (world.instance.status, world.instance.message) == (InstanceStatus.terminating, "it ran out of memory")
    assert world.instance.claims, "its job's own pass ends that"


def test_a_container_that_is_gone_was_taken_back_and_has_its_providers_words() -> None:
    world = World("busy", offer=POD, handles=VM).with_job("running")
    world.now += b.DAY
    plan = world.outcome(Seen(world.unit, world.instance.epoch, "gone", message="the node was low on memory"))
    assert (world.instance.status, world.instance.message) == ("terminating", "the node was low on memory")
    assert world.instance.taken_back_at == world.now
    assert effects(plan) == [Terminate], "it has no time left"


@pytest.mark.parametrize(("gang", "address"), [("", "10.0.0.5"), ("g/0", "10.65.0.2")])
def test_where_containers_of_a_task_reach_each_other_is_what_their_provider_says(gang: str, address: str) -> None:
    """A container may have other addresses, too, and its agent may be faster than its description."""
    fields = {"offer": POD, "handles": VM, "act_until": None, "gang": gang}
    world = World("provisioning", **fields).with_job()
    world.spec = b.fleet_spec(nodes="0..2", placement="cluster")
    plan = world.reported().decide()
    assert world.instance.internal_ip == ("" if gang else address)
    if gang:
        assert effects(plan) == [Describe], "it is asked"
        world.outcome(Seen(world.unit, world.instance.epoch, "running", "pod", address))
    assert world.instance.internal_ip == address


@pytest.mark.parametrize("message", ["i-1 is terminated.", ""])
def test_a_machine_that_is_gone_has_its_clouds_words_and_wasnt_taken_back(message: str) -> None:
    world = World("busy", handles=VM).with_job("running")
    world.now += b.DAY
    world.outcome(Seen(world.unit, world.instance.epoch, "gone", message=message))
    assert world.instance.message == (message or "the cloud no longer lists it")
    assert world.instance.taken_back_at is None
