"""The volumes of tasks on several nodes: all nodes get theirs before the first starts, whatever comes in between."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.gangs import GangStatus
from chalicelib.domain.instances import Handle, Instance
from chalicelib.domain.jobs import JobStatus
from chalicelib.domain.reasons import JobReason
from chalicelib.domain.runs import Run
from chalicelib.domain.volumes import AttachmentState, Volume
from chalicelib.machines.gang import TO_MEET
from chalicelib.store import nouns
from tests.world import nouns as b
from tests.world.disks import attachment, volume
from tests.world.engine import Engine
from tests.world.gangs import gang_of, jobs_of, task

QUEUE = f"queue/{b.PROJECT}"
BY_RANK = {"name": "data-${{ dstack.node_rank }}", "path": "/data"}


@pytest.fixture
def place() -> Engine:
    return Engine.in_memory()


def look(place: Engine, *runs: Run) -> None:
    done = place.reconciler().run([QUEUE, *(f"run/{run.id}" for run in runs)])
    assert not done.failed, done.failed


def machines(place: Engine, count: int, zone: str = "") -> list[Instance]:
    """A cluster of machines that were bought and have reported."""
    fleet = place.fleet("cloud", placement="cluster", nodes="0..100")
    made = []
    for number in range(count):
        handle = Handle(kind="vm", id=f"i-{number}", data={"zone": zone} if zone else {})
        machine = b.machine(number, fleet, internal_ip=f"10.0.0.{number + 1}", handles=(handle,), idle_seconds=None)
        place.save(machine, b.heard(machine, last=place.at, promise=b.DAY, facts=b.host_facts()))
        made.append(place.again(machine))
    place.save(place.again(fleet).with_(next_instance_num=count))
    return made


def add(place: Engine, count: int, **rest: Any) -> list[Volume]:
    """Volumes `data-0` and so on."""
    made = [volume(f"data-{number}", version=0, **rest) for number in range(count)]
    place.save(*made)
    place.store.commit([nouns.pointer(keys.volume_name(b.PROJECT, each.name), each.id) for each in made])
    return [place.again(each) for each in made]


@pytest.mark.parametrize("nodes", [2, 15, 16, 40])
def test_each_node_gets_the_volume_of_its_rank_with_its_place(place: Engine, nodes: int) -> None:
    where, disks = machines(place, nodes), add(place, nodes)
    run = task(place, "train", nodes, volumes=[BY_RANK])
    for _ in range(3):
        look(place, run)
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
    look(place, run)
    master, worker = jobs_of(place, run)
    assert (master.status, worker.status) == (JobStatus.provisioning, JobStatus.submitted)
    assert [each.early for each in place.again(second).attachments] == [True]
    assert [each.job_id for each in place.again(second).attachments] == [worker.id]
    done = place.reconciler().run([first.unit, second.unit])
    assert not done.failed and place.again(second).attachments[0].state is AttachmentState.attaching
    place.save(place.again(master).with_(status=JobStatus.running, running_at=place.at))
    look(place, run)
    assert [each.early for each in place.again(second).attachments] == [False]
    assert jobs_of(place, run)[1].status is JobStatus.provisioning


@pytest.mark.parametrize("nodes", [2, 3])
def test_while_one_of_their_volumes_is_taken_no_node_takes_a_place(place: Engine, nodes: int) -> None:
    where, disks = machines(place, nodes), add(place, nodes)
    held = disks[-1].with_(attachments=(attachment(b.job(b.run("other")), b.machine(9)),))
    place.save(held)
    run = task(place, "train", nodes, volumes=[BY_RANK])
    look(place, run)
    assert not any(place.again(each).claims for each in where)
    assert jobs_of(place, run)[0].message == f"waiting for volume `data-{nodes - 1}`, which run `other` uses"
    place.save(place.again(held).with_(attachments=()))
    look(place, run)
    assert {job.status for job in jobs_of(place, run)} == {JobStatus.provisioning}


def test_a_volume_that_is_taken_between_the_places_and_the_release_ends_the_attempt_in_time(place: Engine) -> None:
    where = machines(place, 2)
    for machine in where:
        place.save(machine.with_(internal_ip=""))
    _, second = add(place, 2)
    run = task(place, "train", 2, volumes=[BY_RANK])
    look(place, run)
    gang = gang_of(place, run)
    assert gang is not None and gang.status is GangStatus.sealed
    place.save(place.again(second).with_(attachments=(attachment(b.job(b.run("other")), b.machine(9)),)))
    for machine in where:
        place.save(place.again(machine).with_(internal_ip="10.0.0.1"))
    look(place, run)
    assert gang_of(place, run).status is GangStatus.sealed  # type: ignore[union-attr]
    place.at += TO_MEET
    look(place, run)
    ended = {job.job_num: job for job in jobs_of(place, run)}
    assert ended[1].reason is JobReason.volume_error
    assert "waited too long for volume `data-1`, which run `other` uses" in ended[1].message


def test_nodes_in_two_zones_can_never_start(place: Engine) -> None:
    machines(place, 2, zone="eu-a")
    first, second = add(place, 2)
    place.save(first.with_(zone="eu-a"), second.with_(zone="eu-c"))
    run = task(place, "train", 2, volumes=[BY_RANK])
    look(place, run)
    job = jobs_of(place, run)[0]
    assert job.reason is JobReason.failed_to_start_due_to_no_capacity
