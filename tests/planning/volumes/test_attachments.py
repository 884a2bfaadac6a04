"""A volume at the machines of its jobs: attached when the machine is there, detached when nobody uses it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.instances import Handle, Instance, InstanceStatus
from chalicelib.domain.instants import MINUTE, SECOND, Micros
from chalicelib.domain.jobs import Job, JobStatus, Mounted
from chalicelib.domain.noun import Noun
from chalicelib.domain.volumes import AttachmentState, Device, Volume, VolumeStatus
from chalicelib.machines.volume import MOVE_EVERY, TO_ATTACH
from chalicelib.planning.kernel.plan import Outcome, Plan
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.placing.claims import assignment_to
from chalicelib.planning.volumes.attachments import (
    AttachVolume,
    DetachVolume,
    DiskAt,
    DiskNotMoved,
    claim_volumes,
    disks_of,
    may_move,
)
from chalicelib.planning.volumes.snapshot import VolumeSnapshot
from chalicelib.planning.volumes.volumes import decide_disk, decide_volume
from tests.world import nouns as b
from tests.world.disks import ATTACHED, ATTACHING, DETACHING, attachment, effects, saved, snapshot_of, volume, woken

DISK = volume()
DEVICE = Device(serial="vol-data")
MACHINE = b.machine(
    0, b.fleet("cloud"), status=InstanceStatus.busy, handles=(Handle(kind="vm", id="i-1"),), disks=(DISK.id,)
)
SOON = b.NOW + MINUTE


def job(name: str = "train", status: JobStatus = JobStatus.provisioning, at: Instance | None = MACHINE) -> Job:
    place = None
    if at is not None:
        mounted = (Mounted(id=DISK.id, name="data", path="/data"),)
        place = assignment_to(at, at.offer, b.NOW, mounted)
    return b.job(b.run(name), status=status, assignment=place)


TRAIN = job()


def disk(state: AttachmentState = ATTACHING, of: Job = TRAIN, at: Instance = MACHINE, **fields: Any) -> Volume:
    return DISK.with_(attachments=(attachment(of, at, state, **fields),), due_at=b.NOW)


def decided(snapshot: VolumeSnapshot) -> Plan:
    plan = decide_volume(snapshot)
    assert b.lint(snapshot, plan) == []
    return plan


def concluded(snapshot: VolumeSnapshot, outcome: Outcome) -> Plan:
    plan = decide_disk(snapshot, outcome)
    assert b.lint(snapshot, plan) == []
    return plan


def at(plan: Plan) -> list[Any]:
    """The attachments after the plan."""
    return list(saved(plan, Volume)[-1].attachments)


def test_the_disk_is_attached_once_its_machine_exists() -> None:
    plan = decided(snapshot_of(disk(deadline=None), TRAIN, MACHINE))
    (one,) = at(plan)
    (effect,) = effects(plan)
    assert isinstance(effect, AttachVolume) and effect.instance_id == MACHINE.id
    assert effect.act_until == one.act_until == saved(plan, Volume)[0].due_at
    assert one.deadline == b.NOW + TO_ATTACH


@pytest.mark.parametrize("status", [InstanceStatus.pending, InstanceStatus.terminating])
def test_it_waits_for_a_machine_that_isnt_there(status: InstanceStatus) -> None:
    plan = decided(snapshot_of(disk(deadline=None), TRAIN, MACHINE.with_(status=status)))
    assert effects(plan) == [] and saved(plan, Volume)[0].due_at == b.NOW + MINUTE


def test_while_an_attempt_may_be_under_way_nobody_makes_another() -> None:
    snapshot = snapshot_of(disk(act_until=SOON), TRAIN, MACHINE)
    assert effects(decided(snapshot)) == []
    assert len(effects(decided(replace(snapshot, now=SOON, volume=snapshot.volume.with_(due_at=SOON))))) == 1


def attempt(of: Volume, *, there: bool, attaching: bool = True) -> DiskAt:
    return DiskAt(of.unit, MACHINE.id, SOON, attaching, there, DEVICE if there else None)


def test_what_its_provider_shows_is_attached_and_wakes_the_run() -> None:
    before = disk(act_until=SOON)
    plan = concluded(snapshot_of(before, TRAIN, MACHINE), attempt(before, there=True))
    (one,) = at(plan)
    assert (one.state, one.device, one.name, one.act_until) == (ATTACHED, DEVICE, "vol-data", None)
    assert "run" in woken(plan)


def test_what_it_doesnt_show_yet_is_asked_for_again() -> None:
    before = disk(act_until=SOON)
    after = saved(concluded(snapshot_of(before, TRAIN, MACHINE), attempt(before, there=False)), Volume)[0]
    assert after.due_at == b.NOW + MOVE_EVERY and after.attachments[0].state is ATTACHING
    assert effects(decided(snapshot_of(after, TRAIN, MACHINE))) == [], "not at once"
    assert len(effects(decided(snapshot_of(after, TRAIN, MACHINE, now=b.NOW + MOVE_EVERY)))) == 1


def test_an_overtaken_attempt_has_no_consequences() -> None:
    before = disk(act_until=SOON + 1)
    assert concluded(snapshot_of(before, TRAIN, MACHINE), attempt(before, there=True)).empty


@pytest.mark.parametrize("end", ["finished", "elsewhere", "requeued", "erased"])
@pytest.mark.parametrize("state", [ATTACHING, ATTACHED])
def test_it_is_detached_when_its_job_has_ended_or_lost_its_place(end: str, state: AttachmentState) -> None:
    after: dict[str, list[Noun]] = {
        "finished": [job(status=JobStatus.done)],
        "elsewhere": [job(at=b.machine(1, b.fleet("cloud")))],
        "requeued": [job(status=JobStatus.submitted, at=None)],
        "erased": [],
    }
    plan = decided(snapshot_of(disk(state), *after[end], MACHINE))
    assert at(plan)[0].state is DETACHING
    assert [type(effect) for effect in effects(plan)] == [DetachVolume]


def test_one_that_was_never_asked_for_is_simply_dropped() -> None:
    plan = decided(snapshot_of(disk(deadline=None), job(status=JobStatus.failed), MACHINE))
    assert at(plan) == [] and effects(plan) == []
    (machine,) = saved(plan, Instance)
    assert machine.disks == () and {"queue", "instance"} <= woken(plan)


def test_a_running_attempt_to_attach_is_waited_for_before_it_is_detached() -> None:
    snapshot = snapshot_of(disk(act_until=SOON), job(status=JobStatus.done), MACHINE)
    plan = decided(snapshot)
    assert at(plan)[0].state is DETACHING and effects(plan) == [] and plan.next_wake == SOON
    after = saved(plan, Volume)[0]
    late = concluded(snapshot_of(after, job(status=JobStatus.done), MACHINE), attempt(after, there=False))
    assert at(late)[0].shows_by and at(late)[0].shows_by > b.NOW, "it may show later, so it isn't gone"


def test_only_what_its_provider_shows_as_detached_is_free() -> None:
    done = job(status=JobStatus.done)
    before = disk(DETACHING, act_until=SOON)
    still = concluded(snapshot_of(before, done, MACHINE), attempt(before, there=True, attaching=False))
    assert at(still)[0].state is DETACHING and saved(still, Instance) == []
    after = saved(still, Volume)[0]
    assert effects(decided(snapshot_of(after, done, MACHINE))) == [], "it is asked again, but not at once"
    gone = concluded(snapshot_of(before, done, MACHINE), attempt(before, there=False, attaching=False))
    assert at(gone) == [] and saved(gone, Volume)[0].used_at == b.NOW
    assert saved(gone, Instance)[0].disks == () and {"queue", "instance"} <= woken(gone)


def failed(error: str, of: Volume, *, attaching: bool = True) -> DiskNotMoved:
    return DiskNotMoved(of.unit, error, "the zone is wrong", None, MACHINE.id, SOON, attaching)


@pytest.mark.parametrize(
    ("machine", "status", "free"),
    [
        (MACHINE, VolumeStatus.active, False),
        (MACHINE.with_(status=InstanceStatus.terminating), VolumeStatus.active, False),
        (MACHINE.with_(status=InstanceStatus.terminated), VolumeStatus.active, True),
        (None, VolumeStatus.active, True),
        (MACHINE, VolumeStatus.failed, True),
    ],
)
def test_a_disk_that_its_provider_doesnt_know_is_free_only_if_something_else_says_so(
    machine: Instance | None, status: VolumeStatus, free: bool
) -> None:
    before = disk(DETACHING, act_until=SOON).with_(status=status)
    known = snapshot_of(before, job(status=JobStatus.done), *([machine] if machine else ()))
    assert (at(concluded(known, failed("Gone", before, attaching=False))) == []) is free
    assert at(concluded(known, failed("Gone", before))) != [], "it was to be attached"
    assert at(concluded(known, failed("Transient", before, attaching=False))) != []


@pytest.mark.parametrize("error", ["Unfit", "MissingPermission", "InvalidCredentials"])
def test_a_refusal_ends_the_job(error: str) -> None:
    before = disk(act_until=SOON)
    plan = concluded(snapshot_of(before, TRAIN, MACHINE), failed(error, before))
    assert at(plan)[0].error == "volume data: the zone is wrong" and "run" in woken(plan)
    assert effects(decided(snapshot_of(saved(plan, Volume)[0], TRAIN, MACHINE, now=SOON + MINUTE))) == []


@pytest.mark.parametrize("error", ["InUse", "Throttled", "Transient"])
def test_what_may_pass_is_tried_again_until_the_time_is_up(error: str) -> None:
    before = disk(act_until=SOON)
    after = saved(concluded(snapshot_of(before, TRAIN, MACHINE), failed(error, before)), Volume)[0]
    assert after.attachments[0].error == ""
    next_time = after.due_at or 0
    again = decided(snapshot_of(after, TRAIN, MACHINE, now=max(next_time, SOON)))
    assert len(effects(again)) == 1
    late = decided(snapshot_of(after, TRAIN, MACHINE, now=b.NOW + 6 * MINUTE))
    assert at(late)[0].error == ("volume data: it wasn't attached to cloud-0 within 5 minutes: the zone is wrong"), (
        "and the last thing that went wrong"
    )


@pytest.mark.parametrize(("retry_after", "pause"), [(40.0, 40 * SECOND), (0.5, MOVE_EVERY), (None, 30 * SECOND)])
def test_a_provider_that_says_when_to_try_again_is_believed(retry_after: float | None, pause: Micros) -> None:
    """As long as nobody asks more often than one looks."""
    before = disk(act_until=SOON)
    outcome = replace(failed("AlreadyThere", before), retry_after=retry_after)
    after = saved(concluded(snapshot_of(before, TRAIN, MACHINE), outcome), Volume)[-1]
    assert (after.due_at, after.attachments[0].shows_by) == (b.NOW + pause, b.NOW + pause)


def test_an_unclear_failure_is_waited_for() -> None:
    before = disk(act_until=SOON)
    after = saved(concluded(snapshot_of(before, TRAIN, MACHINE), failed("Transient", before)), Volume)[0]
    assert after.attachments[0].act_until == SOON, "the call may still take effect"


def test_a_disk_that_is_lost_ends_the_job() -> None:
    lost = disk().with_(status=VolumeStatus.failed)
    assert at(decided(snapshot_of(lost, TRAIN, MACHINE)))[0].error == "volume data: it is failed"


def test_a_node_that_isnt_placed_yet_keeps_its_volume() -> None:
    waiting = job(status=JobStatus.submitted, at=None)
    assert at(decided(snapshot_of(disk(deadline=None, early=True), waiting, MACHINE)))[0].state is ATTACHING
    ended = job(status=JobStatus.failed, at=None)
    assert at(decided(snapshot_of(disk(ATTACHED, early=True), ended, MACHINE)))[0].state is DETACHING


# --- at several machines, and for several jobs -----------------------------------------------------------------------


def test_jobs_of_one_machine_share_what_is_attached_there() -> None:
    first, second = job("one"), job("two")
    shared = DISK.with_(multi_attach=True, attachments=(attachment(first, MACHINE, device=DEVICE),))
    draft = Draft(b.NOW)
    (taken,), _ = claim_volumes(draft, [shared], second, MACHINE)
    assert [one.state for one in taken.attachments] == [ATTACHED, ATTACHED]
    plan = decided(snapshot_of(taken, first.with_(status=JobStatus.done), second, MACHINE))
    assert [one.job_id for one in at(plan)] == [second.id] and effects(plan) == []
    assert saved(plan, Instance) == [], "the machine has it still"


def test_an_attachment_says_where_its_job_is_stored() -> None:
    """Every number of it: with another job's record, the disk of a live job would count as left behind."""
    of = b.job(b.run("train"), 4, replica=2, node=3)
    ((taken,), _) = claim_volumes(Draft(b.NOW), [volume()], of, MACHINE)
    (one,) = taken.attachments
    assert keys.job(one.run_id, one.replica_num, one.job_num, one.submission_num) == of.place().key


def test_volume_and_machine_say_when_they_last_changed() -> None:
    (taken,), machine = claim_volumes(Draft(SOON), [DISK], TRAIN, MACHINE.with_(disks=()))
    assert taken.last_processed_at == machine.last_processed_at == SOON


def test_each_machine_is_attended_to_by_itself() -> None:
    other = b.machine(1, b.fleet("cloud"), handles=(Handle(kind="vm", id="i-2"),), disks=(DISK.id,))
    first, second = job("one"), job("two", at=other)
    attachments = attachment(first, MACHINE), attachment(second, other, ATTACHING, deadline=None)
    both = DISK.with_(multi_attach=True, read_only=True, attachments=attachments, due_at=b.NOW)
    plan = decided(snapshot_of(both, first.with_(status=JobStatus.done), second, MACHINE, other))
    assert [one.state for one in at(plan)] == [DETACHING, ATTACHING]
    assert [(type(e), e.instance_id) for e in effects(plan)] == [
        (DetachVolume, MACHINE.id),
        (AttachVolume, other.id),
    ]


# --- who may act -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of", "effect", "now", "may"),
    [
        (disk(act_until=SOON), AttachVolume, b.NOW, True),
        (disk(act_until=SOON), DetachVolume, b.NOW, False),
        (disk(DETACHING, act_until=SOON), DetachVolume, b.NOW, True),
        (disk(DETACHING, act_until=SOON), AttachVolume, b.NOW, False),
        (disk(act_until=SOON + 1), AttachVolume, b.NOW, False),
        (disk(act_until=SOON), AttachVolume, SOON - 20 * SECOND, False),
        (DISK, AttachVolume, b.NOW, False),
    ],
)
def test_only_the_committed_attempt_is_made_and_only_in_time(of: Volume, effect: Any, now: Micros, may: bool) -> None:
    made = effect(of.unit, "aws", SOON, b.PROJECT, MACHINE.id)
    assert may_move(of, made, b.FACTS["aws"], now) is may


def test_the_agent_gets_the_task_with_all_its_disks() -> None:
    assert disks_of(TRAIN, {DISK.id: disk()}, "ours") is None
    assert disks_of(TRAIN, {}, "ours") is None
    assert disks_of(TRAIN, {DISK.id: DISK}, "ours") is None, "it has left, or isn't there yet"
    (entry,) = disks_of(TRAIN, {DISK.id: disk(ATTACHED, device=DEVICE).with_(blank=True)}, "ours") or []
    assert entry == {
        "kind": "disk",
        "volume": DISK.id,
        "name": "data",
        "path": "/data",
        "device": {"serial": "vol-data"},
        "format": True,
        "install": "ours",
        "read_only": False,
    }
    assert disks_of(job(at=None), {}, "ours") == []


# --- the invariants --------------------------------------------------------------------------------------------------


def broken(snapshot: VolumeSnapshot, *changed: Noun, acts: Any = ()) -> list[str]:
    draft = Draft(b.NOW)
    for noun in changed:
        draft.save(noun)
    for effect in acts:
        draft.act(effect)
    return b.lint(snapshot, draft.plan())


OTHER = b.machine(1, b.fleet("cloud"), handles=(Handle(kind="vm", id="i-2"),), disks=(DISK.id,))
SECOND_JOB = job("two", at=OTHER)
TWO = (attachment(TRAIN, MACHINE), attachment(SECOND_JOB, OTHER, ATTACHING, deadline=None))


@pytest.mark.parametrize(
    ("before", "after", "complaint"),
    [
        (disk(ATTACHED), DISK.with_(attachments=TWO), "is attached to two machines"),
        (
            disk(ATTACHED).with_(multi_attach=True, read_only=True, blank=True),
            DISK.with_(attachments=TWO, multi_attach=True, read_only=True, blank=True),
            "is attached to two machines",
        ),
        (
            disk(ATTACHED).with_(multi_attach=True),
            DISK.with_(attachments=TWO, multi_attach=True),
            "is attached to two machines",
        ),
        (disk(ATTACHED), DISK, "leaves cloud-0, but nothing shows it detached"),
        (disk(ATTACHING), DISK, "leaves cloud-0, but nothing shows it detached"),
        (disk(ATTACHED), disk(of=SECOND_JOB, at=OTHER), "leaves cloud-0"),
        (DISK, disk(ATTACHED), "is attached at cloud-0, where it wasn't before"),
        (disk(DETACHING), disk(ATTACHING), "is attaching at cloud-0 before it was detached from there"),
    ],
)
def test_a_disk_is_never_where_it_may_not_be(before: Volume, after: Volume, complaint: str) -> None:
    found = broken(snapshot_of(before, TRAIN, SECOND_JOB, MACHINE, OTHER), after)
    assert any(complaint in each for each in found), found


def test_job_machine_and_volume_agree() -> None:
    bare = MACHINE.with_(disks=())
    found = broken(snapshot_of(DISK, TRAIN, bare), disk(deadline=None))
    assert found == ["volume data is attaching at cloud-0, which doesn't have it among its disks"]
    waiting = job(status=JobStatus.submitted, at=None)
    found = broken(snapshot_of(DISK, waiting, MACHINE), TRAIN)
    assert "job train-0-0 is placed without its volume data" in found


@pytest.mark.parametrize("effect", [AttachVolume, DetachVolume])
def test_no_attempt_without_a_committed_one(effect: Any) -> None:
    made = effect(DISK.unit, "aws", SOON, b.PROJECT, MACHINE.id)
    snapshot = snapshot_of(disk(), TRAIN, MACHINE)
    assert broken(snapshot, acts=[made]) and broken(snapshot, disk(act_until=SOON + 1), acts=[made])
    state = ATTACHING if effect is AttachVolume else DETACHING
    assert broken(snapshot_of(disk(state), TRAIN, MACHINE), disk(state, act_until=SOON), acts=[made]) == []


def test_what_is_committed_of_an_attempt_is_the_same_for_every_job_at_its_machine() -> None:
    one, other = (attachment(each, MACHINE, ATTACHING, act_until=SOON) for each in (TRAIN, job("two")))
    act = AttachVolume(DISK.unit, "aws", SOON, DISK.project_id, MACHINE.id)
    for known, found in ((other, []), (other.with_(act_until=SOON + 1), [act.unit])):
        of = DISK.with_(attachments=(one, known))
        problems = broken(snapshot_of(of, TRAIN, job("two"), MACHINE), of, acts=(act,))
        assert [text.partition(" ")[0] for text in problems if "without a committed act_until" in text] == found
