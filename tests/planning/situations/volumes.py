"""Volumes: each look at one, each answer of its provider, and what is next at each machine that has it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from chalicelib.domain.instances import Handle, InstanceStatus
from chalicelib.domain.instants import DAY, HOUR, MINUTE, SECOND
from chalicelib.domain.jobs import Job, JobStatus, Mounted
from chalicelib.domain.volumes import AttachmentState, Device, ProviderDisk, Volume, VolumeStatus
from chalicelib.planning.kernel import purchases
from chalicelib.planning.kernel.plan import Outcome
from chalicelib.planning.kernel.snapshot import NounsSnapshot
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.placing.claims import assignment_to
from chalicelib.planning.volumes.attachments import DiskAt, DiskNotMoved, give_up_early, take
from chalicelib.planning.volumes.volumes import (
    DiskLeft,
    DiskSeen,
    VolumeMade,
    VolumeNotDone,
    VolumeNotMade,
    decide_disk,
    decide_volume,
)
from tests.planning.situations.kit import BEFORE, NOW, Decided, situation
from tests.world import nouns as b
from tests.world.disks import ATTACHED, ATTACHING, DETACHING, attachment, look, volume

LATER = NOW + MINUTE
FLEET = b.fleet("cloud")
HERE = b.machine(0, FLEET, status=InstanceStatus.busy, handles=(Handle(kind="vm", id="i-1"),), disks=(volume().id, "x"))
GIVEN = {"created_at": BEFORE, "last_processed_at": BEFORE, "active_at": BEFORE, "due_at": NOW}
OPEN: dict[str, Any] = {"status": VolumeStatus.submitted, "handle": None, "active_at": None, "deadline": LATER}
MAKING: dict[str, Any] = {"status": VolumeStatus.provisioning, "active_at": None, "deadline": LATER}
DELETING: dict[str, Any] = {"status": VolumeStatus.deleting}
FAILED: dict[str, Any] = {"status": VolumeStatus.failed, "remains": True}
OURS: dict[str, Any] = {"auto_cleanup_seconds": 7200}
THEIRS: dict[str, Any] = {"external_id": "vol-data"}


def job(status: JobStatus = JobStatus.provisioning, name: str = "train", *, at: Any = HERE) -> Job:
    place = None if at is None else assignment_to(at, at.offer, BEFORE, (Mounted(id="v", name="data", path="/data"),))
    return b.job(b.run(name), status=status, assignment=place)


TRAIN = job()


def of(**fields: Any) -> Volume:
    return volume(**{**GIVEN, **fields})


def disk(
    state: AttachmentState = ATTACHING, *jobs: Job, status: str = "active", due: int = NOW, **fields: Any
) -> Volume:
    """One that the machine has, for these jobs."""
    there = tuple(attachment(each, HERE, state, **{"deadline": LATER, **fields}) for each in jobs or (TRAIN,))
    return of(attachments=there, status=VolumeStatus(status), due_at=due)


def looked_at(of: Volume, *beside: Any, wanted: bool = False) -> Decided:
    snapshot = replace(look(of, *beside, now=NOW), wanted=wanted)
    return snapshot, decide_volume(snapshot)


def concluded(of: Volume, make: Callable[..., Outcome], /, *beside: Any, **said: Any) -> Decided:
    snapshot = look(of, *beside, now=NOW)
    return snapshot, decide_disk(snapshot, make(of.unit, **said))


# --- until it is there ------------------------------------------------------------------------------------------------

situation("volume: submitted", looked_at, of(**OPEN))
situation("volume: submitted, and it exists already", looked_at, of(**OPEN, **THEIRS))
situation("volume: submitted, and a call is under way", looked_at, of(**OPEN, act_until=NOW + 1))
situation("volume: submitted, and a call has had its time", looked_at, of(**OPEN, act_until=NOW))
situation("volume: submitted, and out of time", looked_at, of(**{**OPEN, "deadline": NOW}))
situation(
    "volume: submitted, and out of time, with a reason", looked_at, of(**{**OPEN, "deadline": NOW}, message="no room")
)
situation("volume: theirs, and out of time", looked_at, of(**{**OPEN, "deadline": NOW}, **THEIRS))
situation("volume: being made", looked_at, of(**MAKING))
situation("volume: being made, and asked for later", looked_at, of(**{**MAKING, "due_at": NOW + 1}))
situation("volume: being made, and never asked for", looked_at, of(**{**MAKING, "due_at": None}))
situation("volume: being made, and out of time", looked_at, of(**{**MAKING, "deadline": NOW}))
situation("volume: being made without a deadline", looked_at, of(**{**MAKING, "deadline": None}))

MADE, NOT_MADE = VolumeMade, VolumeNotMade
CALL: dict[str, Any] = {"epoch": 0, "act_until": LATER}
DISK = Handle(kind="disk", id="vol-new")
situation("volume: made", concluded, of(**OPEN, act_until=LATER, message="old"), MADE, **CALL, handle=DISK)
for name, fields in (("deleted", DELETING), ("given up", FAILED), ("made by others", MAKING)):
    at = of(**{**OPEN, **fields, "act_until": LATER})
    situation(f"volume: made when it is {name}", concluded, at, MADE, **CALL, handle=DISK)
    situation(f"volume: not made when it is {name}", concluded, at, NOT_MADE, error="Transient", message="no", **CALL)
    situation(f"volume: refused when it is {name}", concluded, at, NOT_MADE, error="Unfit", message="no", **CALL)
situation("volume: made in another attempt", concluded, of(**OPEN, act_until=NOW), MADE, **CALL, handle=DISK)
situation("volume: made in another life", concluded, of(**OPEN, act_until=LATER, epoch=1), MADE, **CALL, handle=DISK)
ASKED, THERE = of(**OPEN, act_until=LATER), of(**OPEN, **THEIRS, act_until=LATER)
for error in ("Throttled", "Transient", "Gone", "Unfit", "SomethingNew"):
    for name, one in (("volume", ASKED), ("their volume", THERE)):
        for wait in (None, 0.5, 90.0):
            said = {"error": error, "message": "x" * 600, "retry_after": wait, **CALL}
            situation(f"{name}: {error}, to be tried again after {wait}", concluded, one, NOT_MADE, **said)

# --- in use, or not ---------------------------------------------------------------------------------------------------

UNUSED = of(**OURS, active_at=NOW - 2 * HOUR)
situation("volume: nobody uses it", looked_at, of())
situation("volume: nobody uses it, and it is looked at in time", looked_at, of(due_at=NOW + 1))
situation("volume: nobody has used it for a while", looked_at, of(**OURS))
situation("volume: nobody used it since its last job", looked_at, UNUSED.with_(used_at=BEFORE))
situation("volume: nobody used it for too long", looked_at, UNUSED)
situation("volume: nobody used it, but somebody waits for it", looked_at, UNUSED, wanted=True)
situation(
    "volume: nobody used it for days, but somebody waits",
    looked_at,
    of(auto_cleanup_seconds=864000, active_at=1),
    wanted=True,
)
situation("volume: nobody used it for a moment", looked_at, of(auto_cleanup_seconds=1))
situation("volume: used for long", looked_at, disk(ATTACHED).with_(**OURS, active_at=NOW - DAY), TRAIN, HERE)
situation("volume: theirs", looked_at, of(**THEIRS))
situation("volume: theirs, and looked at in time", looked_at, of(**THEIRS, due_at=NOW + 1))

SEEN, MB = (
    DiskSeen,
    ProviderDisk(handle=DISK, state="available", zone="eu-b", size_gib=120, price=0.1, multi_attach=True),
)
for state in ("creating", "available", "in_use", "deleting", "failed"):
    for name, fields in (("submitted", OPEN), ("being made", MAKING)):
        shown = MB.with_(state=state)
        said = {"epoch": 0, "disk": shown}
        situation(
            f"volume: {name}, and shown as {state}",
            concluded,
            of(**fields, act_until=LATER, message="old"),
            SEEN,
            **said,
        )
situation(
    "volume: ready, in a zone of its own",
    concluded,
    of(**MAKING, zone="eu-a", **OURS),
    SEEN,
    epoch=0,
    disk=MB.with_(zone=""),
)
situation("volume: not shown yet", concluded, of(**MAKING), SEEN, epoch=0, disk=None)
situation("volume: shown in another life", concluded, of(**MAKING, epoch=1), SEEN, epoch=0, disk=MB)
APART = purchases.apart(b.FACTS["aws"])
situation("volume: it is still there", concluded, of(), SEEN, epoch=0, disk=MB)
situation("volume: it is there again", concluded, of(**THEIRS, missing_since=BEFORE), SEEN, epoch=0, disk=MB)
situation("volume: it isn't there any more", concluded, of(), SEEN, epoch=0, disk=None)
situation(
    "volume: it isn't there any more, though it is attached",
    concluded,
    disk(ATTACHED),
    SEEN,
    TRAIN,
    HERE,
    epoch=0,
    disk=None,
)
situation("volume: theirs isn't there", concluded, of(**THEIRS), SEEN, epoch=0, disk=None)
for name, since in (("for a moment", NOW - APART + 1), ("for long enough", NOW - APART)):
    situation(
        f"volume: theirs isn't there {name}", concluded, of(**THEIRS, missing_since=since), SEEN, epoch=0, disk=None
    )
situation("volume: shown when it is being deleted", concluded, of(**DELETING), SEEN, epoch=0, disk=MB)

# --- until nothing is left --------------------------------------------------------------------------------------------

situation("volume: theirs, and to be forgotten", looked_at, of(**DELETING, **THEIRS, message="old", deadline=LATER))
for asked in (0, 1, 9, 30):
    situation(f"volume: to be deleted, asked {asked} times", looked_at, of(**DELETING, asked=asked))
situation("volume: to be deleted, and asked before", looked_at, of(**{**DELETING, "due_at": NOW + 1}))
situation(
    "volume: to be deleted, but attached", looked_at, disk(ATTACHED, status="deleting", due=NOW + HOUR), TRAIN, HERE
)
situation("volume: failed, and something may be left", looked_at, of(**FAILED))
situation("volume: failed, and something was asked to go", looked_at, of(**{**FAILED, "due_at": NOW + 1}))
situation("volume: failed, and nothing is left", looked_at, of(**{**FAILED, "remains": False, "due_at": None}))
situation("volume: failed, and attached", looked_at, disk(ATTACHED, status="failed").with_(remains=True), TRAIN, HERE)

LEFT, END = DiskLeft, {"epoch": 0, "began": NOW}
for name, fields in (("deleted", {**DELETING, "message": "old"}), ("given up", FAILED), ("in use", {})):
    situation(f"volume: nothing is left of one that is {name}", concluded, of(**fields), LEFT, **END)
    situation(
        f"volume: something is left of one that is {name}", concluded, of(**fields), LEFT, **END, going="disk vol-1"
    )
    for when, until in (("may still be", NOW + 1), ("can't be", NOW)):
        told = f"volume: more {when} made of one that is {name}"
        situation(told, concluded, of(**fields), LEFT, **END, open_until=until)
for name, fields in (
    ("in use", {}),
    ("given up", FAILED),
    ("deleted", {"status": VolumeStatus.deleted, "due_at": None}),
):
    situation(
        f"volume: a call failed for one that is {name}",
        concluded,
        of(**fields),
        VolumeNotDone,
        error="Throttled",
        message="x" * 600,
    )
situation(
    "volume: a call failed as before", concluded, of(message="no"), VolumeNotDone, error="Throttled", message="no"
)
situation(
    "volume: a call failed in another life", concluded, of(epoch=1), VolumeNotDone, error="Throttled", message="no"
)

# --- at its machines --------------------------------------------------------------------------------------------------

OTHER = job(JobStatus.running, "eval")
situation("disk: to be attached for the first time", looked_at, disk(deadline=None), TRAIN, HERE)
situation("disk: to be attached again", looked_at, disk(), TRAIN, HERE)
situation("disk: to be attached in its last moment", looked_at, disk(deadline=NOW + 1), TRAIN, HERE)
situation("disk: not attached in time", looked_at, disk(deadline=NOW, act_until=NOW, message="busy"), TRAIN, HERE)
situation(
    "disk: not attached in time, and nobody knows why",
    looked_at,
    disk(ATTACHING, TRAIN, OTHER, deadline=NOW),
    TRAIN,
    OTHER,
    HERE,
)
situation("disk: an attempt is under way", looked_at, disk(act_until=NOW + 1), TRAIN, HERE)
situation("disk: an attempt has had its time", looked_at, disk(act_until=NOW), TRAIN, HERE)
situation(
    "disk: an attempt has had its time, but may not show yet",
    looked_at,
    disk(act_until=NOW, shows_by=NOW + SECOND),
    TRAIN,
    HERE,
)
situation("disk: an attempt doesn't show yet", looked_at, disk(shows_by=NOW + 1, due=NOW + 9), TRAIN, HERE)
situation("disk: an attempt shows by now", looked_at, disk(shows_by=NOW), TRAIN, HERE)
situation("disk: to be attached before it is due", looked_at, disk(due=NOW + 1), TRAIN, HERE)
situation(
    "disk: to be attached for the first time before it is due", looked_at, disk(deadline=None, due=NOW + 1), TRAIN, HERE
)
situation("disk: attaching it failed", looked_at, disk(error="no"), TRAIN, HERE)
for status in InstanceStatus:
    situation(
        f"disk: to be attached to one that is {status.value}", looked_at, disk(), TRAIN, HERE.with_(status=status)
    )
situation("disk: to be attached to one that is gone", looked_at, disk(), TRAIN)
for gone in ("failed", "deleting", "deleted"):
    if gone != "deleted":
        situation(f"disk: to be attached when it is {gone}", looked_at, disk(status=gone), TRAIN, HERE)
situation("disk: attached", looked_at, disk(ATTACHED, due=NOW + HOUR), TRAIN, HERE)

ENDED, ELSEWHERE = job(JobStatus.done), job(at=b.machine(1, FLEET))
HOMELESS = job(JobStatus.submitted, at=None)
for name, beside in (
    ("ended", [ENDED]),
    ("is erased", []),
    ("is elsewhere", [ELSEWHERE]),
    ("has no place", [HOMELESS]),
):
    for state in (ATTACHING, ATTACHED, DETACHING):
        situation(f"disk: {state.value} when its job {name}", looked_at, disk(state), *beside, HERE)
situation("disk: its job ended before it was asked for", looked_at, disk(deadline=None), ENDED, HERE)
situation("disk: its job ended at a machine that is gone", looked_at, disk(deadline=None), ENDED)
situation("disk: its job has no place yet", looked_at, disk(early=True), HOMELESS, HERE)
situation("disk: one of two jobs ended", looked_at, disk(ATTACHED, TRAIN, OTHER), ENDED, OTHER, HERE)
situation("disk: detaching it is under way", looked_at, disk(DETACHING, act_until=NOW + 1), ENDED, HERE)
situation(
    "disk: detaching it may not show yet", looked_at, disk(DETACHING, act_until=NOW, shows_by=NOW + 1), ENDED, HERE
)

TRIED: dict[str, Any] = {"act_until": LATER, "message": "old"}
DEVICE = Device(serial="vol-data")
for there in (True, False):
    for attaching in (True, False):
        for state in (ATTACHING, DETACHING):
            name = (
                f"disk: {state.value}, {'there' if there else 'not there'} after {'at' if attaching else 'de'}taching"
            )
            how = {"instance_id": HERE.id, "act_until": LATER, "attaching": attaching, "there": there, "device": DEVICE}
            situation(name, concluded, disk(state, TRAIN, OTHER, **TRIED), DiskAt, TRAIN, OTHER, HERE, **how)
for name, device in (
    ("a path", Device(by_id="by")),
    ("a file", Device(backing_file="f")),
    ("a folder", Device(folder="d")),
    ("nothing", None),
):
    said = {"instance_id": HERE.id, "act_until": LATER, "attaching": True, "there": True, "device": device}
    situation(f"disk: attached as {name}", concluded, disk(**TRIED), DiskAt, TRAIN, HERE, **said)
LATE = {"instance_id": HERE.id, "act_until": LATER + 1, "attaching": True, "there": True}
situation("disk: attached too late", concluded, disk(**TRIED), DiskAt, TRAIN, HERE, **LATE)
situation(
    "disk: attached to another machine", concluded, disk(**TRIED), DiskAt, TRAIN, HERE, **{**LATE, "instance_id": "i"}
)
for error in ("Throttled", "Transient", "Gone", "Unfit", "SomethingNew"):
    for state in (ATTACHING, DETACHING):
        for wait in (None, 90.0):
            said = {"instance_id": HERE.id, "act_until": LATER, "attaching": state is ATTACHING, "retry_after": wait}
            name = f"disk: {error} when {state.value}, to be tried again after {wait}"
            situation(
                name, concluded, disk(state, **TRIED), DiskNotMoved, TRAIN, HERE, error=error, message="x" * 600, **said
            )
GONE = {"instance_id": HERE.id, "act_until": LATER, "attaching": False, "error": "Gone", "message": "no such disk"}
for name, one, beside in (
    ("its machine is erased", disk(DETACHING, **TRIED), []),
    ("its machine is terminated", disk(DETACHING, **TRIED), [HERE.with_(status=InstanceStatus.terminated)]),
    ("it was lost", disk(DETACHING, status="failed", **TRIED), [HERE]),
):
    situation(f"disk: unknown to its provider, and {name}", concluded, one, DiskNotMoved, TRAIN, *beside, **GONE)


# --- with a job's place -----------------------------------------------------------------------------------------------


def taken(*volumes: Volume, early: bool = False, at: Any = HERE) -> Decided:
    draft = Draft(NOW)
    take(draft, volumes, TRAIN, at, early=early)
    return NounsSnapshot(NOW, (*volumes, at)), draft.plan()


def given_up(*volumes: Volume, jobs: Any = (TRAIN.id,)) -> Decided:
    draft = Draft(NOW)
    for each in volumes:
        give_up_early(draft, each, jobs, HERE.id)
    return NounsSnapshot(NOW, volumes), draft.plan()


BESIDE = disk(ATTACHED, OTHER, device=DEVICE, name="vol-data", message="m", act_until=LATER, shows_by=LATER)
situation("disk: taken to a machine", taken, of(), volume("more", **GIVEN), at=HERE.with_(disks=("x",)))
situation("disk: taken to a machine that has it", taken, of())
situation("disk: taken before its job has a place", taken, of(), early=True)
situation("disk: taken beside another job", taken, BESIDE)
situation("disk: taken where it was before", taken, disk(ATTACHED))
situation("disk: a place that isn't to be", given_up, disk(ATTACHING, TRAIN, OTHER, early=True))
situation("disk: a place that wasn't early", given_up, disk(ATTACHING))
situation("disk: the place of another", given_up, disk(ATTACHING, OTHER, early=True))
