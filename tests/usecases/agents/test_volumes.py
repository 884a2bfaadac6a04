"""A job's volumes in its agent's calls: the task waits for them, and a mounted disk is marked."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.api.wire.runs import _job_error, job_message, run_message
from chalicelib.api.wire.volumes import volume_json
from chalicelib.domain.instances import InstanceStatus
from chalicelib.domain.jobs import Job, JobStatus, Mounted
from chalicelib.domain.reasons import JobReason
from chalicelib.domain.volumes import AttachmentState, Device, Volume
from chalicelib.engine.kinds import KINDS
from chalicelib.machines.job import TO_UNMOUNT
from tests.usecases.cluster import Cluster, exited, running, wants
from tests.world import nouns as b
from tests.world.disks import ATTACHED, ATTACHING, DETACHING, attachment, volume
from tests.world.plane import World

DEVICE = Device(backing_file="/disks/data")


@pytest.fixture
def cluster(world: World) -> Cluster:
    made = Cluster.of(world)
    made.agent.join()
    return made


def placed(cluster: Cluster, state: AttachmentState, **fields: Any) -> tuple[Job, Volume]:
    """A job with a blank volume in this state."""
    job = cluster.place()
    disk = volume(blank=True, version=0, **fields)
    assert job.assignment is not None
    where = job.assignment.with_(volumes=(Mounted(id=disk.id, name="data", path="/data"),))
    job = job.with_(assignment=where)
    cluster.save(job)
    disk = disk.with_(attachments=(attachment(job, cluster.instance, state, device=DEVICE),))
    cluster.save(disk)
    cluster.save(cluster.instance.with_(disks=(disk.id,)))
    return cluster.job(job), cluster.world.again(disk)


def test_the_task_is_sent_once_its_volume_is_attached(cluster: Cluster) -> None:
    _, disk = placed(cluster, ATTACHING)
    assert wants(cluster.agent.sync()) == {}
    (one,) = disk.attachments
    cluster.save(disk.with_(attachments=(one.with_(state=ATTACHED),)))
    (entry,) = cluster.agent.sync()["tasks"]
    assert entry["spec"]["volumes"] == [
        {
            "kind": "disk",
            "volume": disk.id,
            "name": "data",
            "path": "/data",
            "device": {"backing_file": "/disks/data"},
            "format": True,
            "install": cluster.world.plane.install_id,
            "read_only": False,
        }
    ]


def test_its_agent_hears_of_it() -> None:
    job, machine = b.job(b.run()), b.machine()
    assert list(KINDS.listeners(volume(attachments=(attachment(job, machine, ATTACHING),)))) == []
    assert list(KINDS.listeners(volume(attachments=(attachment(job, machine),)))) == [machine.id]


def test_a_disk_that_was_mounted_is_never_formatted_again(cluster: Cluster) -> None:
    job, disk = placed(cluster, ATTACHED)
    cluster.agent.sync(running(job))
    assert cluster.world.again(disk).blank, "nothing was mounted yet"
    cluster.agent.sync(running(job, mounted=[disk.id]))
    assert not cluster.world.again(disk).blank


def test_a_strangers_disk_isnt_marked(cluster: Cluster) -> None:
    _, disk = placed(cluster, ATTACHED)
    other = cluster.place("other")
    cluster.agent.sync(running(other, mounted=[disk.id]))
    assert cluster.world.again(disk).blank


def test_a_job_whose_disk_is_still_mounted_hasnt_ended(cluster: Cluster) -> None:
    job, disk = placed(cluster, ATTACHED)
    cluster.agent.sync(running(job, mounted=[disk.id]))
    cluster.agent.sync(exited(job, 0, held=[disk.id]))
    assert cluster.job(job).status is JobStatus.terminating
    assert cluster.instance.claims, "its place is still taken"
    cluster.world.take_woken()
    cluster.agent.sync(exited(job, 0))
    assert (cluster.job(job).status, cluster.job(job).reason) == (JobStatus.done, JobReason.done_by_runner)
    assert f"volume/{disk.id}" in cluster.world.take_woken(), "now it can be detached"


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("wait", [TO_UNMOUNT - b.MINUTE, TO_UNMOUNT + b.MINUTE])
def test_a_machine_that_never_lets_go_of_a_disk_is_ended_for_it(cluster: Cluster, wait: int, alone: bool) -> None:
    job, disk = placed(cluster, ATTACHED)
    if not alone:
        cluster.place("other")
    machine = cluster.instance
    cluster.save(machine.with_(offer=machine.offer.with_(backend="aws")))
    cluster.agent.sync(running(job, mounted=[disk.id]))
    cluster.agent.sync(exited(job, 0, held=[disk.id]))
    cluster.world.at += wait
    cluster.agent.sync(exited(job, 0, held=[disk.id]))
    ended = wait > TO_UNMOUNT and alone
    assert (cluster.instance.status is InstanceStatus.terminating) is ended
    assert cluster.job(job).status is JobStatus.terminating, "it isn't proven yet"


def test_who_uses_a_jobs_disk_is_told_until_it_is_free(cluster: Cluster) -> None:
    job, disk = placed(cluster, ATTACHED)
    cluster.agent.sync(running(job, mounted=[disk.id]))
    stopped = {"reason": JobReason.terminated_by_user, "message": "stopped", "stop_sent_at": cluster.world.at}
    cluster.save(cluster.job(job).with_(status=JobStatus.terminating, **stopped))
    ended = {"mounted": [disk.id], "message": "the job's own words"}
    for user in ("cat (process 7)", "tail (process 8)"):
        why = f"volume data can't be unmounted yet: by {user}"
        cluster.agent.sync(exited(job, 0, held=[disk.id], held_by=why, **ended))
        found = cluster.job(job)
        assert (job_message(found), _job_error(found)) == (f"stopped; {why}", why)
        assert shown(cluster.world.again(disk)) == ("active", why) and run_message(b.run(), [found]) == why
    assert shown(cluster.world.again(disk), state=DETACHING) == ("active", None), "its machine has unmounted it"
    cluster.agent.sync(exited(job, 0, **ended))
    found = cluster.job(job)
    assert found.finished and (job_message(found), _job_error(found)) == ("stopped", None)
    assert shown(cluster.world.again(disk)) == ("active", None)


def test_a_folder_in_the_place_of_a_disk_is_told_while_it_is_in_use(cluster: Cluster) -> None:
    _, disk = placed(cluster, ATTACHED)
    folder = {"device": Device(folder="/disks/data.folder")}
    assert shown(disk, **folder) == (
        "active",
        "a folder instead of a disk: this computer's kernel refuses loop devices",
    )
    assert shown(disk, **folder, state=DETACHING) == shown(disk) == ("active", None)


def shown(disk: Volume, **changes: Any) -> tuple[str, str | None]:
    """What a list shows of its state."""
    seen = volume_json(disk.with_(attachments=tuple(each.with_(**changes) for each in disk.attachments)), "main", b.NOW)
    return seen["status"], seen["status_message"]


@pytest.mark.parametrize("wait", [TO_UNMOUNT - b.MINUTE, TO_UNMOUNT + b.MINUTE])
def test_a_disk_is_waited_for_no_longer_though_the_job_had_no_limit(cluster: Cluster, wait: int) -> None:
    """A machine that ends already waits for a job without a `kill_at`."""
    job, disk = placed(cluster, ATTACHED)
    cluster.agent.sync(running(job, mounted=[disk.id]))
    limits = {"stop_sent_at": cluster.world.at, "kill_at": None}
    cluster.save(cluster.job(job).with_(status=JobStatus.terminating, reason=JobReason.terminated_by_user, **limits))
    cluster.save(cluster.instance.with_(status=InstanceStatus.terminating, disks=(disk.id,)))
    cluster.world.at += wait
    cluster.agent.sync(exited(job, 0, held=[disk.id]))
    assert (cluster.job(job).kill_at is not None) is (wait > TO_UNMOUNT)


def test_a_volume_that_couldnt_be_mounted_ends_the_job_with_the_reason(cluster: Cluster) -> None:
    job, _ = placed(cluster, ATTACHED)
    cluster.agent.sync(exited(job, None, reason="volume_error", message="volume data holds an LVM signature"))
    after = cluster.job(job)
    assert (after.reason, after.message) == (JobReason.volume_error, "volume data holds an LVM signature")
