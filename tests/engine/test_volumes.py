"""Volumes against the simulated cloud: what is created, registered and deleted, whatever goes wrong in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chalicelib.backends.accounts import Account, Accounts
from chalicelib.backends.simulated.cloud import FACTS, FakeCloud
from chalicelib.backends.simulated.script import Fault
from chalicelib.backends.spi import VolumeRequest
from chalicelib.domain import keys
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import HOUR, MINUTE, SECOND
from chalicelib.domain.owner import OFFERED
from chalicelib.domain.runs import Run, RunBody, RunStatus
from chalicelib.domain.tenants import Project
from chalicelib.domain.volumes import ProviderDisk, Volume, VolumeReason, VolumeStatus
from chalicelib.engine.effects.volumes import VolumeEffects
from chalicelib.machines.volume import DELETE_SELDOM, TO_CREATE
from chalicelib.planning.volumes.volumes import (
    CreateVolume,
    DeleteVolume,
    DescribeVolume,
    DiskSeen,
    RegisterVolume,
    VolumeNotCreated,
)
from chalicelib.store import nouns
from chalicelib.store.sqlite import SqliteStore
from chalicelib.usecases.machines import volumes
from tests.world import nouns as b
from tests.world.volumes import REGION, Stage, attachment


@pytest.fixture
def stage() -> Stage:
    return Stage()


def held(stage: Stage, volume: Volume) -> None:
    """By a job that waits for its machine."""
    job = b.job(b.run("train"), due_at=None)
    one = attachment(job_id=job.id, run_id=job.run_id, early=True)
    stage.place.save(job, volume.with_(attachments=(one,), due_at=stage.place.at))


def waiting(stage: Stage, *mounts: str) -> Run:
    """A run that has been submitted, and hasn't got anything yet."""
    run, spec = b.run("train"), b.run_spec(run_name="train", volumes=list(mounts))
    stage.place.save(run, RunBody(run_id=run.id, run_spec=spec.model_dump_json(), job_specs=()))
    stage.place.store.commit([nouns.pointer(keys.run_name(b.PROJECT, run.name), run.id)])
    return run


def test_a_volume_is_created_once_and_becomes_active(stage: Stage) -> None:
    volume = stage.created()
    assert volume.status is VolumeStatus.active
    [disk] = stage.cloud.disks.all()
    assert volume.handle is not None and volume.handle.id == disk["id"]
    assert (volume.zone, volume.size_gib, volume.price) == ("sim-east-a", 100, 8.0)
    assert dict(disk["tags"])["dstack-volume"] == volume.id
    assert volume.blank and not volume.external and not volume.multi_attach
    assert stage.messages() == [
        "data: created",
        "data: submitted → provisioning: its provider is creating it",
        "data: provisioning → active",
    ]


def volume_lives(stage: Stage) -> None:
    """On whatever store."""
    volume = stage.created()
    assert volume.status is VolumeStatus.active
    assert [each.id for each in volumes.list_all(stage.place.plane, stage.project)] == [volume.id]
    every = volumes.VolumeFilter(limit=10, only_active=True, ascending=False, prev_created_at=None, prev_id=None)
    assert len(volumes.list_rows(stage.place.plane, [stage.project], every)) == 1
    stage.delete()
    stage.until(lambda: stage.again(volume).deleted)
    assert volumes.list_all(stage.place.plane, stage.project) == []
    assert volumes.list_rows(stage.place.plane, [stage.project], every) == []
    assert stage.create().id != volume.id


def test_a_volume_lives_in_a_file(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "plane.db")
    volume_lives(Stage(store=store))
    store.close()


def test_tags_are_the_users_and_the_owner_is_ours(stage: Stage) -> None:
    stage.created(tags={"team": "blue"})
    [disk] = stage.cloud.disks.all()
    tags = dict(disk["tags"])
    assert (tags["team"], tags["dstack-install"], len(tags)) == ("blue", "install", 6)


def test_a_slow_creation_is_waited_for(stage: Stage) -> None:
    stage.script.ready = 3 * MINUTE
    volume = stage.created()
    assert volume.status is VolumeStatus.provisioning
    stage.until(lambda: stage.again(volume).status is VolumeStatus.active)
    assert stage.place.at - volume.created_at >= 3 * MINUTE
    assert len(stage.cloud.disks.all()) == 1


def test_a_zone_is_kept_to(stage: Stage) -> None:
    assert stage.created(availability_zone="sim-east-b").zone == "sim-east-b"


def test_in_some_regions_a_volume_has_several_machines(stage: Stage) -> None:
    assert stage.created(region="sim-north").multi_attach


# --- creation that fails ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("error", ["Transient", "Throttled", "AlreadyThere", "Bug"])
def test_an_unclear_answer_is_decided_by_asking_again(stage: Stage, error: str, when: str) -> None:
    stage.script.faults.append(Fault("create_volume", error, when=when))  # type: ignore[arg-type]
    volume = stage.create()
    stage.until(lambda: stage.again(volume).status is VolumeStatus.active)
    assert len(stage.cloud.disks.all()) == 1
    assert stage.again(volume).message == ""


@pytest.mark.parametrize("error", ["QuotaExceeded", "InsufficientCapacity", "MissingPermission"])
def test_a_refusal_fails_the_volume_with_its_words(stage: Stage, error: str) -> None:
    stage.script.faults.append(Fault("create_volume", error))
    volume = stage.create()
    stage.settle()
    failed = stage.again(volume)
    assert (failed.status, failed.reason) == (VolumeStatus.failed, VolumeReason.refused)
    assert failed.message == f"simulated: {error} before create_volume"
    stage.after(MINUTE)
    assert not stage.again(volume).remains and stage.again(volume).due_at is None
    assert f"data: submitted → failed: {failed.message}" in stage.messages()


def test_a_quota_of_the_cloud_is_a_refusal(stage: Stage) -> None:
    stage.script.quota["volume"] = 0
    volume = stage.create()
    stage.settle()
    assert stage.again(volume).message == "the quota for volumes is 0 (simulated)"


def test_a_refusal_after_an_unclear_answer_leaves_nothing(stage: Stage) -> None:
    """What the first call made is found by its tag, and removed."""
    stage.script.faults.append(Fault("create_volume", "Transient", "after"))
    stage.script.end = MINUTE
    volume = stage.create()
    stage.settle()
    stage.script.faults.append(Fault("create_volume", "QuotaExceeded"))
    stage.until(lambda: stage.again(volume).status is VolumeStatus.failed)
    assert len(stage.cloud.disks.all()) == 1
    stage.until(lambda: not stage.again(volume).remains)
    assert stage.cloud.disks.all() == []


def test_a_creation_that_nobody_executed_is_repeated_when_its_time_is_up(stage: Stage) -> None:
    stage.lost = lambda effect: isinstance(effect, CreateVolume)
    volume = stage.create()
    stage.settle()
    stage.lost = lambda effect: False
    stage.after(FACTS.create_timeout)
    assert stage.cloud.disks.all() == []
    stage.after(FACTS.visibility_lag)
    assert len(stage.cloud.disks.all()) == 1
    stage.until(lambda: stage.again(volume).status is VolumeStatus.active)


def test_a_late_executor_leaves_the_creation_to_the_next_pass(stage: Stage) -> None:
    stage.create()
    stage.place.reconciler().run(sorted(stage.place.take_woken()))
    [effect] = stage.place.effects
    stage.place.at = effect.act_until - FACTS.visibility_lag - FACTS.create_timeout // 2 + 1
    stage.executor.execute(effect)
    assert stage.cloud.disks.all() == []


def test_an_effect_of_an_earlier_attempt_has_no_consequences(stage: Stage) -> None:
    volume = stage.create()
    stage.place.reconciler().run(sorted(stage.place.take_woken()))
    [effect] = stage.place.effects
    stage.place.save(stage.again(volume).with_(act_until=effect.act_until + 1))
    stage.executor.execute(effect)
    assert stage.cloud.disks.all() == []


@pytest.mark.slow
def test_one_that_never_comes_fails_in_time_and_is_removed(stage: Stage) -> None:
    stage.script.ready = 10 * HOUR
    volume = stage.create()
    stage.until(lambda: stage.again(volume).status is VolumeStatus.failed)
    failed = stage.again(volume)
    assert stage.place.at - volume.created_at < TO_CREATE + MINUTE
    assert (failed.reason, failed.message) == (VolumeReason.timeout, "it wasn't available within 20 minutes")
    stage.until(lambda: not stage.again(volume).remains)
    assert stage.cloud.disks.all() == []


@pytest.mark.slow
def test_a_throttled_provider_that_stays_so_is_given_up_in_time(stage: Stage) -> None:
    stage.script.faults.append(Fault("create_volume", "Throttled", times=10_000, retry_after=30.0))
    volume = stage.create()
    stage.until(lambda: stage.again(volume).status is VolumeStatus.failed)
    assert stage.again(volume).message.endswith("within 20 minutes: simulated: Throttled before create_volume")


# --- registered -------------------------------------------------------------------------------------------------------


def test_an_external_volume_is_only_registered(stage: Stage) -> None:
    stage.cloud.disks.add("vol-shared", REGION, size_gib=7, projects="main")
    stage.place.at += 2 * SECOND
    volume = stage.create(volume_id="vol-shared", size=None)
    stage.settle()
    found = stage.again(volume)
    assert found.status is VolumeStatus.active
    assert found.handle is not None and found.handle.id == "vol-shared"
    assert (found.size_gib, found.zone, found.external, found.blank) == (7, "sim-east-a", True, False)


@pytest.mark.parametrize("projects", ["", "other", "mains main-2"])
def test_a_disk_is_registered_only_where_its_owner_offers_it(stage: Stage, projects: str) -> None:
    """Whoever knows its id could mount it else: projects share accounts, and accounts hold what is nobody's here."""
    stage.cloud.disks.add("vol-shared", REGION, projects=projects)
    stage.place.at += 2 * SECOND
    failed = registered(stage, "data")
    assert failed.status is VolumeStatus.failed
    assert "its owner has to set the tag dstack-projects=main on it" in failed.message
    stage.delete("data")
    stage.settle()
    stage.cloud.disks.add("vol-shared", REGION, projects=f"{projects} main")
    stage.place.at += 2 * SECOND
    assert registered(stage, "data").status is VolumeStatus.active


class ReadOnlyDisks(FakeCloud):
    """Whose disks nobody can write."""

    def register_volume(self, volume_id: str, region: str, zone: str) -> ProviderDisk:
        return super().register_volume(volume_id, region, zone).with_(writable=False)


def test_a_disk_that_can_only_be_read_is_registered_only_as_that(stage: Stage) -> None:
    cloud = ReadOnlyDisks(stage.place.now, script=stage.script, facts=FACTS.with_(name="aws"))
    stage.backends = Accounts([Account.of(cloud, stage.project.id)])
    object.__setattr__(stage.place.plane, "backends", stage.backends)
    cloud.disks.add("vol-shared", REGION, projects="main")
    stage.place.at += 2 * SECOND
    failed = registered(stage, "data")
    assert failed.status is VolumeStatus.failed and "can only be read: add `read_only: true`" in failed.message
    stage.delete("data")
    stage.settle()
    volume = stage.create("data", volume_id="vol-shared", size=None)
    stage.place.save(volume.with_(read_only=True))
    stage.settle()
    assert stage.again(volume).status is VolumeStatus.active


def test_an_external_volume_that_isnt_there_fails(stage: Stage) -> None:
    volume = stage.create(volume_id="vol-missing", size=None)
    stage.settle()
    failed = stage.again(volume)
    assert (failed.status, failed.reason) == (VolumeStatus.failed, VolumeReason.not_found)
    assert failed.message == "Volume vol-missing not found"
    assert failed.due_at is None and not failed.remains


def test_an_external_volume_is_forgotten_and_never_touched(stage: Stage) -> None:
    stage.cloud.disks.add("vol-shared", REGION, projects="main")
    stage.place.at += 2 * SECOND
    volume = stage.create(volume_id="vol-shared", size=None)
    stage.settle()
    stage.delete()
    stage.settle()
    assert stage.again(volume).deleted
    assert [disk["id"] for disk in stage.cloud.disks.all()] == ["vol-shared"]
    assert stage.cloud.disks.all()[0]["ends_at"] is None


@pytest.mark.parametrize(
    ("install", "project", "why"),
    [
        ("another", "p", ""),
        ("install", b.PROJECT, "was created by this server for a volume that is gone."),
        ("install", "p", "belongs to another project of this server."),
    ],
)
def test_a_disk_of_this_server_isnt_registered(stage: Stage, install: str, project: str, why: str) -> None:
    tags = {"dstack-install": install, "dstack-project": project, "dstack-volume": "v", "dstack-epoch": "0"}
    tags |= {OFFERED: "main"}
    request = VolumeRequest("token", "theirs", tuple(tags.items()), REGION, "", 1)
    handle = stage.cloud.create_volume(request)
    stage.place.at += 5 * SECOND
    volume = stage.create("ours", volume_id=handle.id, size=None)
    stage.settle()
    found = stage.again(volume)
    assert found.status is (VolumeStatus.failed if why else VolumeStatus.active)
    assert found.message == (f"Volume {handle.id} {why}" if why else "")
    stage.delete("ours")
    stage.settle()
    assert [disk["ends_at"] for disk in stage.cloud.disks.all()] == [None]


def registered(stage: Stage, name: str, **fields: Any) -> Volume:
    volume = stage.create(name, **{"volume_id": "vol-shared", "size": None, **fields})
    stage.settle()
    return stage.again(volume)


def test_a_disk_is_registered_once(stage: Stage) -> None:
    stage.cloud.disks.add("vol-shared", REGION, projects="main")
    stage.place.at += 2 * SECOND
    assert registered(stage, "first").status is VolumeStatus.active
    second = registered(stage, "second")
    assert (second.status, second.message) == (VolumeStatus.failed, "Volume vol-shared is the volume first already.")
    elsewhere = Project(id="p2", name="other", owner_id="user", created_at=stage.place.at)
    stage.place.store.commit([nouns.put(elsewhere), nouns.pointer(keys.project_name("other"), "p2")])
    stage.project, home = elsewhere, stage.project
    assert registered(stage, "third").message == "Volume vol-shared belongs to another project of this server."
    stage.project = home
    stage.delete("first", "second")
    stage.settle()
    assert registered(stage, "fourth").status is VolumeStatus.active


@pytest.mark.parametrize("unique", [True, False])
def test_projects_with_keys_of_their_own_may_have_one_account(stage: Stage, unique: bool) -> None:
    """Where ids are unique everywhere, one id is one disk, whoever's keys show it; elsewhere accounts are apart."""
    elsewhere = Project(id="p2", name="other", owner_id="user", created_at=stage.place.at)
    stage.place.store.commit([nouns.put(elsewhere), nouns.pointer(keys.project_name("other"), "p2")])
    facts = FACTS.with_(name="aws", unique_volumes=unique)
    clouds = [FakeCloud(stage.place.now, script=stage.script, facts=facts) for _ in range(2)]
    stage.backends = Accounts(
        Account.of(cloud, project.id) for cloud, project in zip(clouds, (stage.project, elsewhere), strict=True)
    )
    object.__setattr__(stage.place.plane, "backends", stage.backends)
    for cloud in clouds:
        cloud.disks.add("vol-shared", REGION, projects="main other")
    stage.place.at += 2 * SECOND
    assert registered(stage, "first").status is VolumeStatus.active
    stage.project = elsewhere
    assert registered(stage, "second").message == (
        "Volume vol-shared belongs to another project of this server." if unique else ""
    )


def test_of_two_registrations_at_once_one_succeeds(stage: Stage) -> None:
    """Both have asked the provider before either has said what it found."""
    stage.cloud.disks.add("vol-shared", REGION, projects="main")
    stage.place.at += 2 * SECOND
    effects = VolumeEffects(stage.acting)
    both = [stage.create(name, volume_id="vol-shared", size=None) for name in ("first", "second")]
    until = stage.place.at + MINUTE
    stage.place.save(*(each.with_(act_until=until) for each in both))
    effects_of_both = [RegisterVolume(each.unit, each.backend, until, each.project_id) for each in both]
    first, second, again = (effects.register(effect) for effect in (*effects_of_both, effects_of_both[0]))
    assert isinstance(first, DiskSeen) and isinstance(again, DiskSeen)
    assert isinstance(second, VolumeNotCreated)
    assert (second.error, second.message) == ("Unfit", "Volume vol-shared is the volume first already.")


def test_a_volume_that_failed_keeps_no_disk_from_others(stage: Stage) -> None:
    stage.cloud.disks.add("vol-shared", REGION, projects="main")
    stage.place.at += 2 * SECOND
    failed = registered(stage, "gone", region="sim-north")
    key = keys.disk("aws", REGION, "vol-shared")
    stage.place.store.commit([nouns.pointer(key, failed.id)])
    assert failed.status is VolumeStatus.failed, "so its claim is void"
    first = registered(stage, "first")
    assert first.status is VolumeStatus.active
    assert nouns.find_target(stage.place.store, key) == (first.id, 2)


def test_a_projects_own_disk_isnt_registered_again(stage: Stage) -> None:
    data = stage.created()
    assert data.handle is not None
    again = registered(stage, "again", volume_id=data.handle.id)
    assert again.message == f"Volume {data.handle.id} is the volume data already."


# --- deleted ----------------------------------------------------------------------------------------------------------


def test_a_deletion_ends_when_the_provider_has_nothing_left(stage: Stage) -> None:
    stage.script.end = 40 * SECOND
    volume = stage.created()
    stage.delete()
    stage.settle()
    assert stage.again(volume).status is VolumeStatus.deleting
    stage.until(lambda: stage.again(volume).deleted)
    assert stage.cloud.disks.all() == []
    assert stage.again(volume).due_at is None
    assert stage.messages()[-2:] == ["data: active → deleting: deleted by a user", "data: deleting → deleted"]


def test_a_deletion_is_never_given_up(stage: Stage) -> None:
    volume = stage.created()
    stage.script.lies = 1
    stage.script.faults.append(Fault("delete_volume", "MissingPermission", times=12))
    stage.delete()
    stage.until(lambda: stage.again(volume).deleted, step=MINUTE)
    assert stage.cloud.disks.all() == []
    assert [line for line in stage.messages() if "MissingPermission" in line] == [
        "data: MissingPermission: simulated: MissingPermission before delete_volume"
    ]


def test_requests_become_rarer(stage: Stage) -> None:
    volume = stage.created()
    stage.script.faults.append(Fault("delete_volume", "Transient", times=10_000))
    stage.delete()
    waits = []
    for _ in range(12):
        stage.settle()
        due_at = stage.again(volume).due_at
        assert due_at is not None
        waits.append(due_at - stage.place.at)
        stage.place.at = due_at
    rounded = [round(wait / SECOND) * SECOND for wait in waits]
    assert rounded[:3] == [5 * SECOND, 10 * SECOND, 20 * SECOND] and rounded[-1] == DELETE_SELDOM


def test_one_that_is_deleted_while_it_is_created_leaves_nothing(stage: Stage) -> None:
    """Its creation may still be in flight, and show only later."""
    stage.script.faults.append(Fault("create_volume", "Transient", "after"))
    volume = stage.create()
    stage.settle()
    stage.delete()
    stage.until(lambda: stage.again(volume).deleted)
    assert stage.cloud.disks.all() == []


@pytest.mark.parametrize("meanwhile", [VolumeStatus.deleting, VolumeStatus.failed])
def test_one_whose_creation_ends_when_nobody_wants_it_any_more_is_removed(
    stage: Stage, meanwhile: VolumeStatus
) -> None:
    volume = stage.create()
    stage.place.reconciler().run(sorted(stage.place.take_woken()))
    [effect], stage.place.effects = stage.place.effects, []
    create = stage.cloud.disks.create

    def slow(request: VolumeRequest) -> Handle:
        made = create(request)
        stage.place.save(stage.again(volume).with_(status=meanwhile))
        return made

    stage.cloud.disks.create = slow  # type: ignore[method-assign]
    stage.executor.execute(effect)
    assert stage.again(volume).handle is not None
    stage.until(lambda: stage.cloud.disks.all() == [])
    stage.after(10 * MINUTE)
    assert stage.again(volume).due_at is None


def test_an_attached_volume_is_deleted_only_when_it_isnt_any_more(stage: Stage) -> None:
    volume = stage.created()
    stage.delete()
    held(stage, stage.again(volume))
    stage.after(HOUR)
    assert stage.again(volume).status is VolumeStatus.deleting
    assert stage.cloud.disks.all()[0]["ends_at"] is None
    stage.place.save(stage.again(volume).with_(attachments=()))
    stage.until(lambda: stage.again(volume).deleted)
    assert stage.cloud.disks.all() == []


def test_without_its_backend_a_volume_waits_to_be_deleted(stage: Stage) -> None:
    volume = stage.created()
    stage.configure()
    stage.delete()
    stage.after(MINUTE)
    assert stage.again(volume).message == "The backend aws isn't configured. Configure it again."
    stage.configure(stage.cloud)
    stage.until(lambda: stage.again(volume).deleted, step=MINUTE)
    assert stage.cloud.disks.all() == []


# --- kept -------------------------------------------------------------------------------------------------------------


def test_one_that_is_unused_for_long_enough_is_deleted(stage: Stage) -> None:
    volume = stage.created(auto_cleanup_duration="1h")
    assert volume.active_at is not None
    stage.place.at = volume.active_at + HOUR - SECOND
    stage.settle()
    assert stage.again(volume).status is VolumeStatus.active
    stage.after(SECOND)
    assert stage.again(volume).status is VolumeStatus.deleting
    assert "data: active → deleting: unused for 1 hour" in stage.messages()
    stage.until(lambda: stage.again(volume).deleted)


def test_with_zero_it_stays_for_a_minute_after_its_last_use(stage: Stage) -> None:
    volume = stage.created(auto_cleanup_duration=0)
    assert volume.active_at is not None
    stage.place.at = volume.active_at + MINUTE - SECOND
    stage.settle()
    assert stage.again(volume).status is VolumeStatus.active
    held(stage, stage.again(volume))
    stage.after(HOUR)
    assert stage.again(volume).status is VolumeStatus.active
    stage.place.save(stage.again(volume).with_(attachments=(), used_at=stage.place.at, due_at=stage.place.at))
    stage.after(MINUTE)
    assert "data: active → deleting: unused for 1 minute" in stage.messages()


def test_its_last_use_counts(stage: Stage) -> None:
    volume = stage.created(auto_cleanup_duration="1h")
    stage.place.save(volume.with_(used_at=stage.place.at + 30 * MINUTE))
    stage.after(HOUR)
    assert stage.again(volume).status is VolumeStatus.active
    stage.after(30 * MINUTE)
    assert stage.again(volume).status is VolumeStatus.deleting


def test_one_in_use_is_kept(stage: Stage) -> None:
    volume = stage.created(auto_cleanup_duration="1h")
    held(stage, volume)
    stage.after(3 * HOUR)
    assert stage.again(volume).status is VolumeStatus.active


@pytest.mark.parametrize("mount", ["data-0:/data", "data-${{ dstack.node_rank }}:/data"])
def test_one_that_a_live_run_names_is_kept(stage: Stage, mount: str) -> None:
    """The run waits, for a machine or for the other volume, so the volume isn't attached."""
    volume = stage.created("data-0", auto_cleanup_duration="1h")
    run = waiting(stage, mount)
    stage.after(HOUR)
    stage.after(HOUR)
    assert stage.again(volume).status is VolumeStatus.active
    stage.place.save(stage.place.again(run).with_(status=RunStatus.done, finished_at=stage.place.at))
    stage.after(HOUR)
    assert stage.again(volume).status is VolumeStatus.deleting


def test_what_runs_name_otherwise_doesnt_count(stage: Stage) -> None:
    volume = stage.created("data-0", auto_cleanup_duration="1h")
    waiting(stage, "data-01:/data", "data-${{ dstack.node_rank }}x:/more")
    stage.after(HOUR)
    assert stage.again(volume).status is VolumeStatus.deleting


@pytest.mark.parametrize("never", ["off", -1, None])
def test_others_are_kept_for_ever(stage: Stage, never: object) -> None:
    volume = stage.created(auto_cleanup_duration=never)
    for _ in range(5):
        stage.after(1000 * HOUR)
    assert stage.again(volume).status is VolumeStatus.active


def test_a_settled_volume_costs_no_calls(stage: Stage) -> None:
    stage.created()
    stage.after(HOUR)
    assert stage.place.effects == [] and stage.place.woken == []


@pytest.mark.parametrize("kind", [CreateVolume, RegisterVolume, DescribeVolume, DeleteVolume])
def test_an_effect_on_a_volume_that_is_gone_does_nothing(stage: Stage, kind: type) -> None:
    volume = stage.created()
    stage.delete()
    stage.until(lambda: stage.again(volume).deleted)
    version = stage.again(volume).version
    stage.executor.execute(kind(volume.unit, volume.backend, stage.place.at + MINUTE, volume.project_id))
    assert stage.again(volume).version == version
