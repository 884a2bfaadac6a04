"""The sweep and volumes: disks that belong to nobody, and volumes whose disk is gone."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.backends.simulated.cloud import FACTS, FakeCloud
from chalicelib.backends.simulated.script import Fault
from chalicelib.backends.spi import VolumeRequest
from chalicelib.domain import keys
from chalicelib.domain.ids import derive
from chalicelib.domain.instants import DAY, HOUR, SECOND
from chalicelib.domain.volumes import VolumeReason, VolumeStatus
from chalicelib.planning.kernel.purchases import confirmation_delay
from chalicelib.planning.machines.orphans import SIGHTING_LASTS
from chalicelib.store.port import Delete
from tests.world.nouns import PROJECT
from tests.world.volumes import REGION, Stage, attachment

APART = confirmation_delay(FACTS)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def disk(stage: Stage, name: str = "lost", install: str = "install") -> str:
    """A disk that no volume knows."""
    tags = {"install": install, "project": PROJECT, "volume": derive("test", "volume", name), "epoch": "0"}
    made = VolumeRequest(name, name, tuple((f"dstack-{k}", v) for k, v in tags.items()), REGION, "", 1)
    return stage.cloud.create_volume(made).id


def there(stage: Stage) -> list[str]:
    return [body["id"] for body in stage.cloud.disks.all()]


def test_a_disk_of_nobody_is_told_of_and_then_deleted(stage: Stage) -> None:
    orphan = disk(stage)
    assert stage.sweep(after=5 * SECOND).released == []
    assert stage.messages() == [
        f"main: volume {orphan} at Simulated cloud is an orphan; it will be removed if the next sweep agrees"
    ]
    [given_back] = stage.sweep(after=APART).released
    assert given_back.handle.id == orphan
    stage.place.at += SECOND
    assert there(stage) == []
    assert stage.messages()[-1] == f"main: volume {orphan} at Simulated cloud is an orphan and is being removed"


def test_two_sweeps_too_close_together_prove_nothing(stage: Stage) -> None:
    disk(stage)
    stage.sweep(after=5 * SECOND)
    assert stage.sweep(after=APART - SECOND).released == []
    assert len(there(stage)) == 1


def test_others_disks_are_never_touched(stage: Stage) -> None:
    disk(stage, install="somebody else's")
    stage.cloud.disks.add("vol-shared", REGION, projects="main")
    for _ in range(3):
        assert stage.sweep(after=HOUR).released == []
    assert len(there(stage)) == 2 and stage.messages() == []


@pytest.mark.parametrize("status", [VolumeStatus.provisioning, VolumeStatus.active, VolumeStatus.failed])
def test_a_disk_of_a_volume_is_left_alone(stage: Stage, status: VolumeStatus) -> None:
    volume = stage.created()
    stage.place.save(volume.with_(status=status, due_at=stage.place.at + 100 * DAY))
    for _ in range(3):
        assert stage.sweep(after=HOUR).released == []


def test_what_is_left_of_a_deleted_volume_goes(stage: Stage) -> None:
    volume = stage.created()
    stage.place.save(volume.with_(status=VolumeStatus.deleted, deleted_at=stage.place.at, due_at=None))
    stage.sweep(after=HOUR)
    [given_back] = stage.sweep(after=APART).released
    assert volume.handle is not None and given_back.handle.id == volume.handle.id


def test_a_stale_listing_of_a_deleted_volume_is_no_orphan(stage: Stage) -> None:
    volume = stage.created()
    stage.place.save(volume.with_(status=VolumeStatus.deleted, deleted_at=stage.place.at, due_at=None))
    stage.sweep(after=FACTS.visibility_lag - 1)
    assert not [line for line in stage.messages() if "is an orphan" in line]


def test_one_whose_record_is_erased_goes(stage: Stage) -> None:
    volume = stage.created()
    stage.place.store.commit([Delete(keys.volume(volume.id))])
    stage.sweep()
    assert len(stage.sweep(after=APART).released) == 1


def test_a_disk_in_use_is_asked_for_again_until_it_goes(stage: Stage) -> None:
    disk(stage)
    stage.script.faults.append(Fault("delete_volume", "InUse", times=2))
    stage.sweep(after=5 * SECOND)
    for _ in range(2):
        assert stage.sweep(after=APART).released == []
    assert len(stage.sweep(after=APART).released) == 1


# --- volumes without a disk -------------------------------------------------------------------------------------------


def test_a_deleted_volume_misses_no_disk(stage: Stage) -> None:
    volume = stage.created()
    stage.delete()
    stage.until(lambda: stage.again(volume).deleted)
    for _ in range(3):
        assert stage.sweep(after=HOUR).lost == []
    assert there(stage) == []


def test_a_volume_whose_disk_is_gone_has_failed(stage: Stage) -> None:
    volume = stage.created()
    assert volume.handle is not None
    stage.cloud.disks.lose(volume.handle.id)
    assert stage.sweep().lost == []
    assert stage.messages()[-1] == "data: the cloud doesn't list it; it will be closed if the next sweep agrees"
    assert stage.sweep(after=APART).lost == [volume.id]
    lost = stage.again(volume)
    assert (lost.status, lost.reason) == (VolumeStatus.failed, VolumeReason.lost)
    assert lost.message == "its provider no longer knows it" and lost.due_at is None
    stage.delete()
    stage.settle()
    assert stage.again(volume).deleted


def test_one_that_is_attached_keeps_being_looked_at(stage: Stage) -> None:
    volume = stage.created()
    assert volume.handle is not None
    stage.place.save(volume.with_(attachments=(attachment(),)))
    stage.cloud.disks.lose(volume.handle.id)
    stage.sweep()
    stage.sweep(after=APART)
    assert stage.again(volume).status is VolumeStatus.failed and stage.again(volume).due_at is not None


def test_a_listing_that_forgets_is_contradicted_by_the_disk(stage: Stage) -> None:
    volume, cloud = stage.created(), stage.cloud
    stage.configure(Forgetful(cloud))
    stage.sweep()
    assert stage.sweep(after=APART).lost == [volume.id]
    assert stage.again(volume).status is VolumeStatus.active


def test_one_sight_of_it_clears_the_suspicion(stage: Stage) -> None:
    stage.created()
    forgetful = Forgetful(stage.cloud)
    stage.configure(forgetful)
    stage.sweep()
    stage.configure(stage.cloud)
    stage.sweep(after=APART)
    stage.configure(forgetful)
    assert stage.sweep(after=APART).lost == []
    assert stage.sweep(after=SIGHTING_LASTS + SECOND).lost == []


def test_an_account_without_an_answer_proves_nothing(stage: Stage) -> None:
    volume = stage.created()
    assert volume.handle is not None
    stage.cloud.disks.lose(volume.handle.id)
    stage.script.faults.append(Fault("list_volumes", "Transient", times=5))
    for _ in range(5):
        assert stage.sweep(after=APART).lost == []
    assert stage.again(volume).status is VolumeStatus.active


def test_an_external_volume_is_asked_for_once_a_day(stage: Stage) -> None:
    stage.cloud.disks.add("vol-shared", REGION, projects="main")
    stage.place.at += 2 * SECOND
    volume = stage.create(volume_id="vol-shared", size=None)
    stage.settle()
    for _ in range(3):
        stage.after(DAY + SECOND)
        assert stage.again(volume).status is VolumeStatus.active
    stage.cloud.disks.lose("vol-shared")
    for _ in range(3):
        assert stage.sweep(after=HOUR).lost == []
    stage.after(DAY)
    assert stage.again(volume).status is VolumeStatus.active
    stage.after(APART - SECOND)
    assert stage.again(volume).status is VolumeStatus.active
    stage.after(SECOND)
    assert stage.again(volume).reason is VolumeReason.lost


def test_an_external_volume_may_be_overlooked_now_and_then(stage: Stage) -> None:
    """Days apart, so none confirms another."""
    stage.cloud.disks.add("vol-shared", REGION, projects="main")
    stage.place.at += 2 * SECOND
    volume = stage.create(volume_id="vol-shared", size=None)
    stage.settle()
    for _ in range(3):
        stage.cloud.disks.lose("vol-shared")
        stage.after(DAY + SECOND)
        assert stage.again(volume).missing_since
        stage.cloud.disks.add("vol-shared", REGION, projects="main")
        stage.after(APART)
        found = stage.again(volume)
        assert (found.status, found.missing_since) == (VolumeStatus.active, None)


class Forgetful(FakeCloud):
    """Its listings of volumes are empty."""

    def __init__(self, cloud: FakeCloud) -> None:
        self.__dict__ = cloud.__dict__  # it is the same cloud

    def list_owned_volumes(self, volume_id: str | None = None, region: str = "") -> Any:
        return iter(())
