"""The volumes of tasks on several nodes: all nodes get theirs before the first starts, whatever comes in between."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.gangs import GangStatus
from chalicelib.domain.instances import Handle, Instance, InstanceStatus
from chalicelib.domain.instants import MINUTE
from chalicelib.domain.jobs import JobStatus
from chalicelib.domain.reasons import JobReason, RunReason
from chalicelib.domain.runs import Run, RunStatus
from chalicelib.domain.volumes import AttachmentState, Volume
from chalicelib.machines.gang import TO_MEET
from chalicelib.store import nouns
from tests.world import nouns as b
from tests.world.disks import attachment, volume
from tests.world.engine import Engine
from tests.world.gangs import gang_of, holders, jobs_of, task

QUEUE = f"queue/{b.PROJECT}"
BY_RANK = {"name": "data-${{ dstack.node_rank }}", "path": "/data"}


@pytest.fixture
def place() -> Engine:
    return Engine.in_memory()


def reconcile(place: Engine, *runs: Run) -> None:
    done = place.reconciler().run([QUEUE, *(f"run/{run.id}" for run in runs)])
    assert not done.failed, done.failed


def machines(place: Engine, count: int, zone: str = "", name: str = "cloud") -> list[Instance]:
    """A cluster of machines that were bought and have reported."""
    fleet = place.fleet(name, placement="cluster", nodes="0..100")
    made = []
    for number in range(count):
        handle = Handle(kind="vm", id=f"i-{number}", data={"zone": zone} if zone else {})
        machine = b.machine(number, fleet, internal_ip=f"10.0.0.{number + 1}", handles=(handle,), idle_seconds=None)
        place.save(machine, b.presence_of(machine, last=place.at, promise=b.DAY, facts=b.host_facts()))
        made.append(place.again(machine))
    place.save(place.again(fleet).with_(next_instance_num=count))
    return made


def add(place: Engine, count: int, **fields: Any) -> list[Volume]:
    """Volumes `data-0` and so on."""
    made = [volume(f"data-{number}", version=0, **fields) for number in range(count)]
    place.save(*made)
    place.store.commit([nouns.pointer(keys.volume_name(b.PROJECT, each.name), each.id) for each in made])
    return [place.again(each) for each in made]


@pytest.mark.parametrize("nodes", [2, 15, 16, 40])
@pytest.mark.slow
def test_each_node_gets_the_volume_of_its_rank_with_its_place(place: Engine, nodes: int) -> None:
    where, disks = machines(place, nodes), add(place, nodes)
    run = task(place, "train", nodes, volumes=[BY_RANK])
    for _ in range(3):
        reconcile(place, run)
    jobs, gang = jobs_of(place, run), gang_of(place, run)
    assert gang is not None and gang.status is GangStatus.released
    for rank, job in enumerate(jobs):
        (one,) = place.again(disks[rank]).attachments
        assert job.status is JobStatus.provisioning and job.assignment is not None
        assert (one.job_id, one.instance_id, one.early) == (job.id, gang.places[rank], False)
        assert [each.name for each in job.assignment.volumes] == [f"data-{rank}"]
        (machine,) = [place.again(each) for each in where if each.id == one.instance_id]
        assert machine.disks == (disks[rank].id,)


def test_the_later_nodes_have_theirs_before_the_first_starts(place: Engine) -> None:
    machines(place, 2)
    first, second = add(place, 2)
    run = task(place, "train", 2, volumes=[BY_RANK], startup_order="master-first")
    reconcile(place, run)
    master, worker = jobs_of(place, run)
    assert (master.status, worker.status) == (JobStatus.provisioning, JobStatus.submitted)
    assert [each.early for each in place.again(second).attachments] == [True]
    assert [each.job_id for each in place.again(second).attachments] == [worker.id]
    done = place.reconciler().run([first.unit, second.unit])
    assert not done.failed and place.again(second).attachments[0].state is AttachmentState.attaching
    place.save(place.again(master).with_(status=JobStatus.running, running_at=place.at))
    reconcile(place, run)
    assert [each.early for each in place.again(second).attachments] == [False]
    assert jobs_of(place, run)[1].status is JobStatus.provisioning


@pytest.mark.parametrize("nodes", [2, 3])
def test_while_one_of_their_volumes_is_taken_no_node_takes_a_place(place: Engine, nodes: int) -> None:
    where, disks = machines(place, nodes), add(place, nodes)
    held = disks[-1].with_(attachments=(attachment(b.job(b.run("other")), b.machine(9)),))
    place.save(held)
    run = task(place, "train", nodes, volumes=[BY_RANK])
    reconcile(place, run)
    assert not any(place.again(each).claims for each in where)
    assert jobs_of(place, run)[0].message == f"waiting for volume `data-{nodes - 1}`, which run `other` uses"
    place.save(place.again(held).with_(attachments=()))
    reconcile(place, run)
    assert {job.status for job in jobs_of(place, run)} == {JobStatus.provisioning}


@pytest.mark.parametrize("taken", [(), ("a-1",), ("b-0",), ("a-0", "b-1")])
def test_of_several_names_the_nodes_get_those_that_are_free_in_one_zone(place: Engine, taken: tuple[str, ...]) -> None:
    for zone in "ab":
        machines(place, 2, f"eu-{zone}", f"cloud-{zone}")
        made = [volume(f"{zone}-{rank}", zone=f"eu-{zone}", version=0) for rank in range(2)]
        held = (attachment(b.job(b.run("other")), b.machine(9)),)
        place.save(*(each.with_(attachments=held if each.name in taken else ()) for each in made))
        place.store.commit([nouns.pointer(keys.volume_name(b.PROJECT, each.name), each.id) for each in made])
    names = [f"{zone}-${{{{ dstack.node_rank }}}}" for zone in "ab"]
    run = task(place, "train", 2, volumes=[{"name": names, "path": "/data"}])
    for _ in range(3):
        reconcile(place, run)
    jobs = jobs_of(place, run)
    if len(taken) == 2:
        assert "waiting for volume `a-0`, which run `other` uses" in jobs[0].message
        return
    got = [each.name for job in jobs if job.assignment is not None for each in job.assignment.volumes]
    zone = "b" if "a-1" in taken else "a"
    assert got == [f"{zone}-0", f"{zone}-1"]


def without_addresses(place: Engine, where: list[Instance]) -> None:
    """A gang on these machines is sealed, and waits for their addresses."""
    for machine in where:
        place.save(place.again(machine).with_(internal_ip=""))


@pytest.mark.parametrize("nodes", [2, pytest.param(40, marks=pytest.mark.slow)])
def test_of_two_that_want_the_same_volumes_the_later_waits_in_the_queue_and_then_starts(
    place: Engine, nodes: int
) -> None:
    where, disks = machines(place, 2 * nodes), add(place, nodes)
    without_addresses(place, where)
    first = task(place, "first", nodes, volumes=[BY_RANK])
    reconcile(place, first)
    place.at += MINUTE
    second = task(place, "second", nodes, volumes=[BY_RANK])
    for _ in range(2):
        reconcile(place, first, second)
    assert gang_of(place, first).status is GangStatus.sealed  # type: ignore[union-attr]
    for rank, disk in enumerate(disks):
        (one,) = place.again(disk).attachments
        assert (one.run_id, one.job_num, one.early) == (first.id, rank, True)
    assert gang_of(place, second) is None and len(holders(place, where)) == 1
    place.at += 2 * TO_MEET
    reconcile(place, second)
    assert jobs_of(place, second)[0].message == "waiting for volume `data-0`, which run `first` uses"
    assert {job.status for job in jobs_of(place, second)} == {JobStatus.submitted}
    for disk in disks:
        place.save(place.again(disk).with_(attachments=()))
    place.save(*(place.again(machine).with_(internal_ip="10.0.0.1") for machine in where))
    for _ in range(3):
        reconcile(place, second)
    assert {job.status for job in jobs_of(place, second)} == {JobStatus.provisioning}


def test_a_single_job_waits_for_the_volume_of_a_sealed_gang(place: Engine) -> None:
    where = machines(place, 3)
    add(place, 2)
    without_addresses(place, where)
    run = task(place, "train", 2, volumes=[BY_RANK])
    reconcile(place, run)
    single = task(place, "single", volumes=["data-1:/data"])
    reconcile(place, single)
    (job,) = jobs_of(place, single)
    assert (job.status, job.message) == (JobStatus.submitted, "waiting for volume `data-1`, which run `train` uses")


def test_a_gang_that_is_undone_gives_its_volumes_back(place: Engine) -> None:
    where, disks = machines(place, 2), add(place, 2)
    without_addresses(place, where)
    run = task(place, "train", 2, volumes=[BY_RANK])
    reconcile(place, run)
    place.save(place.again(run).with_(status=RunStatus.terminating, reason=RunReason.stopped_by_user))
    for _ in range(3):
        reconcile(place, run)
        assert not place.reconciler().run([disk.unit for disk in disks]).failed
    leaving = [one for disk in disks for one in place.again(disk).attachments]
    assert [(one.early, one.state) for one in leaving] == [(False, AttachmentState.detaching)] * 2
    assert not any(place.again(machine).claims for machine in where)


def test_a_sealed_gang_that_lost_a_volume_begins_again_and_waits_for_it(place: Engine) -> None:
    where, (first, second) = machines(place, 2), add(place, 2)
    without_addresses(place, where)
    run = task(place, "train", 2, volumes=[BY_RANK])
    reconcile(place, run)
    other = attachment(b.job(b.run("other")), b.machine(9))
    place.save(place.again(second).with_(attachments=(other,)))
    place.save(*(place.again(machine).with_(internal_ip="10.0.0.1") for machine in where))
    reconcile(place, run)
    assert gang_of(place, run).status is GangStatus.undone  # type: ignore[union-attr]
    assert not place.reconciler().run([first.unit]).failed
    assert [one.state for one in place.again(first).attachments] == [AttachmentState.detaching]
    place.save(place.again(first).with_(attachments=()))
    reconcile(place, run)
    assert jobs_of(place, run)[0].message == "waiting for volume `data-1`, which run `other` uses"
    assert not any(place.again(machine).claims for machine in where)


def test_nodes_whose_places_have_no_free_volume_claim_nothing(place: Engine) -> None:
    """Each of two nodes may have either volume, but only one of these is where the machines are."""
    where, (first, second) = machines(place, 2, zone="eu-a"), add(place, 2)
    place.save(first.with_(zone="eu-a"), second.with_(zone="eu-c"))
    run = task(place, "train", 2, volumes=[{"name": ["data-0", "data-1"], "path": "/data"}])
    reconcile(place, run)
    assert {job.status for job in jobs_of(place, run)} == {JobStatus.submitted}
    assert gang_of(place, run) is None and not any(place.again(machine).claims for machine in where)


def test_nodes_in_two_zones_can_never_start(place: Engine) -> None:
    machines(place, 2, zone="eu-a")
    first, second = add(place, 2)
    place.save(first.with_(zone="eu-a"), second.with_(zone="eu-c"))
    run = task(place, "train", 2, volumes=[BY_RANK])
    reconcile(place, run)
    job = jobs_of(place, run)[0]
    assert job.reason is JobReason.failed_to_start_due_to_no_capacity


def test_a_task_waits_for_the_zone_of_machines_that_are_still_being_created(place: Engine) -> None:
    """All that their cluster may have: one may come up where the second node's volume is."""
    fleet = place.fleet("cloud", placement="cluster", nodes="2..2")
    offer = b.offer(availability_zones=("eu-a", "eu-b"))
    coming = [
        b.machine(number, fleet, status=InstanceStatus.pending, handles=(), offer=offer, started_at=None)
        for number in range(2)
    ]
    place.save(*coming, place.again(fleet).with_(next_instance_num=2))
    add(place, 2, zone="eu-a")
    run = task(place, "train", 2, volumes=[BY_RANK])
    reconcile(place, run)
    lead = jobs_of(place, run)[0]
    text = "waiting for the zone of cloud-0 in fleet `cloud`, which is still being created"
    assert (lead.status, lead.message) == (JobStatus.submitted, text)
    away = [Handle(kind="vm", id=f"i-{each.num}", data={"zone": "eu-b"}) for each in coming]
    place.save(*[place.again(each).with_(handles=(one,)) for each, one in zip(coming, away, strict=True)])
    reconcile(place, run)
    assert jobs_of(place, run)[0].reason is JobReason.failed_to_start_due_to_no_capacity
