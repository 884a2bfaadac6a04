"""Volumes: each look at one, each answer of its provider, and what is next at each machine that has it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from chalicelib.domain.instances import Handle, InstanceStatus
from chalicelib.domain.instants import HOUR, MINUTE, SECOND
from chalicelib.domain.jobs import Job, JobStatus, Mounted
from chalicelib.domain.volumes import AttachmentState, Device, ProviderDisk, Volume, VolumeStatus
from chalicelib.planning.kernel import purchases
from chalicelib.planning.kernel.plan import Outcome
from chalicelib.planning.kernel.snapshot import NounsSnapshot
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.placing.claims import assignment_to
from chalicelib.planning.volumes.attachments import DiskAt, DiskNotMoved, claim_volumes, give_up_early
from chalicelib.planning.volumes.volumes import (
    DiskLeft,
    DiskSeen,
    VolumeCreated,
    VolumeNotCreated,
    VolumeNotDone,
    decide_disk,
    decide_volume,
)
from tests.planning.situations.kit import BEFORE, NOW, Decided, situation
from tests.world import nouns as b
from tests.world.disks import ATTACHED, ATTACHING, attachment, snapshot_of, volume

NEXT_TIME = NOW + MINUTE
FLEET = b.fleet("cloud")
HERE = b.machine(0, FLEET, status=InstanceStatus.busy, handles=(Handle(kind="vm", id="i-1"),), disks=(volume().id, "x"))
GIVEN = {"created_at": BEFORE, "last_processed_at": BEFORE, "active_at": BEFORE, "due_at": NOW}
OPEN: dict[str, Any] = {"status": VolumeStatus.submitted, "handle": None, "active_at": None, "deadline": NEXT_TIME}
MAKING: dict[str, Any] = {"status": VolumeStatus.provisioning, "active_at": None, "deadline": NEXT_TIME}
DELETING: dict[str, Any] = {"status": VolumeStatus.deleting}
FAILED: dict[str, Any] = {"status": VolumeStatus.failed, "remains": True}
CLEANED_UP: dict[str, Any] = {"auto_cleanup_seconds": 7200}
REGISTERED: dict[str, Any] = {"external_id": "vol-data"}


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
    there = tuple(attachment(each, HERE, state, **{"deadline": NEXT_TIME, **fields}) for each in jobs or (TRAIN,))
    return of(attachments=there, status=VolumeStatus(status), due_at=due)


def decided(of: Volume, *beside: Any, wanted: bool = False) -> Decided:
    snapshot = replace(snapshot_of(of, *beside, now=NOW), wanted=wanted)
    return snapshot, decide_volume(snapshot)


def concluded(of: Volume, make: Callable[..., Outcome], /, *beside: Any, **fields: Any) -> Decided:
    snapshot = snapshot_of(of, *beside, now=NOW)
    return snapshot, decide_disk(snapshot, make(of.unit, **fields))


# --- until it is there ------------------------------------------------------------------------------------------------

situation("volume: submitted", decided, of(**OPEN), comes_to="data: act_until; CreateVolume; again in 70 s")
situation(
    "volume: submitted, and out of time",
    decided,
    of(**{**OPEN, "deadline": NOW}),
    comes_to="data submitted → failed (timeout); DeleteVolume; again in 5 s",
)
situation("volume: being made", decided, of(**MAKING), comes_to="DescribeVolume; again in 5 s")

MADE, NOT_MADE = VolumeCreated, VolumeNotCreated
CALL: dict[str, Any] = {"epoch": 0, "act_until": NEXT_TIME}
DISK = Handle(kind="disk", id="vol-new")
situation(
    "volume: made when it is deleted",
    concluded,
    of(**{**OPEN, **DELETING, "act_until": NEXT_TIME}),
    MADE,
    **CALL,
    handle=DISK,
    comes_to="data: handle, act_until; again in 0 s",
)
situation(
    "volume: refused when it is deleted",
    concluded,
    of(**{**OPEN, **DELETING, "act_until": NEXT_TIME}),
    NOT_MADE,
    error="Unfit",
    message="no",
    **CALL,
    comes_to="data: act_until; again in 0 s",
)
situation(
    "volume: made when it is made by others",
    concluded,
    of(**{**OPEN, **MAKING, "act_until": NEXT_TIME}),
    MADE,
    **CALL,
    handle=DISK,
    comes_to="again in 0 s",
)
situation(
    "volume: made in another life",
    concluded,
    of(**OPEN, act_until=NEXT_TIME, epoch=1),
    MADE,
    **CALL,
    handle=DISK,
    comes_to="again in 0 s",
)
CREATING = of(**OPEN, act_until=NEXT_TIME)
situation(
    "volume: Throttled, to be tried again after 0.5",
    concluded,
    CREATING,
    NOT_MADE,
    error="Throttled",
    message="x" * 600,
    retry_after=0.5,
    **CALL,
    comes_to="data: message, act_until; again in 1 s",
)
situation(
    "volume: Unfit, to be tried again after 0.5",
    concluded,
    CREATING,
    NOT_MADE,
    error="Unfit",
    message="x" * 600,
    retry_after=0.5,
    **CALL,
    comes_to="data submitted → failed (refused); again in 0 s",
)

# --- in use, or not ---------------------------------------------------------------------------------------------------

UNUSED = of(**CLEANED_UP, active_at=NOW - 2 * HOUR)
situation(
    "volume: nobody used it for too long",
    decided,
    UNUSED,
    comes_to="data active → deleting; DeleteVolume; again in 5 s",
)
situation(
    "volume: nobody used it, but somebody waits for it",
    decided,
    UNUSED,
    wanted=True,
    comes_to="data: used_at; again in 7200 s",
)
situation("volume: theirs", decided, of(**REGISTERED), comes_to="DescribeVolume; again in 86400 s")

SEEN = DiskSeen
MB = ProviderDisk(handle=DISK, state="available", zone="eu-b", size_gib=120, price=0.1, multi_attach=True)
situation(
    "volume: submitted, and shown as creating",
    concluded,
    of(**OPEN, act_until=NEXT_TIME, message="old"),
    SEEN,
    epoch=0,
    disk=MB.with_(state="creating"),
    comes_to="data submitted → provisioning; again in 5 s",
)
situation(
    "volume: being made, and shown as creating",
    concluded,
    of(**MAKING, act_until=NEXT_TIME, message="old"),
    SEEN,
    epoch=0,
    disk=MB.with_(state="creating"),
    comes_to="again in 0 s",
)
situation(
    "volume: submitted, and shown as failed",
    concluded,
    of(**OPEN, act_until=NEXT_TIME, message="old"),
    SEEN,
    epoch=0,
    disk=MB.with_(state="failed"),
    comes_to="data submitted → failed (refused); again in 0 s",
)
situation(
    "volume: ready, in a zone of its own",
    concluded,
    of(**MAKING, zone="eu-a", **CLEANED_UP),
    SEEN,
    epoch=0,
    disk=MB.with_(zone=""),
    comes_to="data provisioning → active; again in 7200 s",
)
situation("volume: not shown yet", concluded, of(**MAKING), SEEN, epoch=0, disk=None, comes_to="again in 0 s")
situation(
    "volume: shown in another life", concluded, of(**MAKING, epoch=1), SEEN, epoch=0, disk=MB, comes_to="again in 0 s"
)
APART = purchases.confirmation_delay(b.FACTS["aws"])
situation("volume: it is still there", concluded, of(), SEEN, epoch=0, disk=MB, comes_to="again in 0 s")
situation(
    "volume: it is there again",
    concluded,
    of(**REGISTERED, missing_since=BEFORE),
    SEEN,
    epoch=0,
    disk=MB,
    comes_to="data: missing_since; again in 0 s",
)
situation(
    "volume: it isn't there any more", concluded, of(), SEEN, epoch=0, disk=None, comes_to="data active → failed (lost)"
)
situation(
    "volume: theirs isn't there",
    concluded,
    of(**REGISTERED),
    SEEN,
    epoch=0,
    disk=None,
    comes_to="data: missing_since; again in 70 s",
)
situation(
    "volume: theirs isn't there for a moment",
    concluded,
    of(**REGISTERED, missing_since=NOW - APART + 1),
    SEEN,
    epoch=0,
    disk=None,
    comes_to="again in 0 s",
)

# --- until nothing is left --------------------------------------------------------------------------------------------

situation(
    "volume: theirs, and to be forgotten",
    decided,
    of(**DELETING, **REGISTERED, message="old", deadline=NEXT_TIME),
    comes_to="data deleting → deleted",
)
situation(
    "volume: to be deleted, but attached",
    decided,
    disk(ATTACHED, status="deleting", due=NOW + HOUR),
    TRAIN,
    HERE,
    comes_to="again in 60 s",
)
situation(
    "volume: failed, and something may be left",
    decided,
    of(**FAILED),
    comes_to="data: asked; DeleteVolume; again in 5 s",
)
situation(
    "volume: failed, and attached",
    decided,
    disk(ATTACHED, status="failed").with_(remains=True),
    TRAIN,
    HERE,
    comes_to="again in 300 s",
)

LEFT, END = DiskLeft, {"epoch": 0, "began": NOW}
situation(
    "volume: nothing is left of one that is deleted",
    concluded,
    of(**{**DELETING, "message": "old"}),
    LEFT,
    **END,
    comes_to="data deleting → deleted",
)
situation(
    "volume: something is left of one that is deleted",
    concluded,
    of(**{**DELETING, "message": "old"}),
    LEFT,
    **END,
    going="disk vol-1",
    comes_to="again in 0 s",
)
situation(
    "volume: more may still be made of one that is deleted",
    concluded,
    of(**{**DELETING, "message": "old"}),
    LEFT,
    **END,
    open_until=NOW + 1,
    comes_to="again in 0.000001 s",
)
situation(
    "volume: nothing is left of one that is given up", concluded, of(**FAILED), LEFT, **END, comes_to="data: remains"
)
situation("volume: nothing is left of one that is in use", concluded, of(), LEFT, **END, comes_to="again in 0 s")
situation(
    "volume: a call failed for one that is in use",
    concluded,
    of(),
    VolumeNotDone,
    error="Throttled",
    message="x" * 600,
    comes_to="data: message; again in 0 s",
)
situation(
    "volume: a call failed as before",
    concluded,
    of(message="no"),
    VolumeNotDone,
    error="Throttled",
    message="no",
    comes_to="again in 0 s",
)

# --- at its machines --------------------------------------------------------------------------------------------------

OTHER = job(JobStatus.running, "eval")
situation(
    "disk: an attempt has had its time, but may not show yet",
    decided,
    disk(act_until=NOW, shows_by=NOW + SECOND),
    TRAIN,
    HERE,
    comes_to="data: attachments; AttachVolume; again in 70 s",
)

ENDED = job(JobStatus.done)
situation(
    "disk: one of two jobs ended",
    decided,
    disk(ATTACHED, TRAIN, OTHER),
    ENDED,
    OTHER,
    HERE,
    comes_to="data: attachments, used_at; again in 300 s",
)

TRIED: dict[str, Any] = {"act_until": NEXT_TIME, "message": "old"}
DEVICE = Device(serial="vol-data")
situation(
    "disk: attaching, not there after detaching",
    concluded,
    disk(ATTACHING, TRAIN, OTHER, **TRIED),
    DiskAt,
    TRAIN,
    OTHER,
    HERE,
    instance_id=HERE.id,
    act_until=NEXT_TIME,
    attaching=False,
    there=False,
    device=DEVICE,
    comes_to="data: attachments; again in 5 s",
)
situation(
    "disk: attached as a path",
    concluded,
    disk(**TRIED),
    DiskAt,
    TRAIN,
    HERE,
    instance_id=HERE.id,
    act_until=NEXT_TIME,
    attaching=True,
    there=True,
    device=Device(by_id="by"),
)
situation(
    "disk: attached as a file",
    concluded,
    disk(**TRIED),
    DiskAt,
    TRAIN,
    HERE,
    instance_id=HERE.id,
    act_until=NEXT_TIME,
    attaching=True,
    there=True,
    device=Device(backing_file="f"),
)
situation(
    "disk: Gone when attaching, to be tried again after 90.0",
    concluded,
    disk(ATTACHING, **TRIED),
    DiskNotMoved,
    TRAIN,
    HERE,
    error="Gone",
    message="x" * 600,
    instance_id=HERE.id,
    act_until=NEXT_TIME,
    attaching=True,
    retry_after=90.0,
    comes_to="data: attachments; again in 90 s",
)


# --- with a job's place -----------------------------------------------------------------------------------------------


def taken(*volumes: Volume, early: bool = False, at: Any = HERE) -> Decided:
    draft = Draft(NOW)
    claim_volumes(draft, volumes, TRAIN, at, early=early)
    return NounsSnapshot(NOW, (*volumes, at)), draft.plan()


def given_up(*volumes: Volume, jobs: Any = (TRAIN.id,)) -> Decided:
    draft = Draft(NOW)
    for each in volumes:
        give_up_early(draft, each, jobs, HERE.id)
    return NounsSnapshot(NOW, volumes), draft.plan()


BESIDE = disk(ATTACHED, OTHER, device=DEVICE, name="vol-data", message="m", act_until=NEXT_TIME, shows_by=NEXT_TIME)
situation("disk: taken beside another job", taken, BESIDE)
situation(
    "disk: a place that isn't to be", given_up, disk(ATTACHING, TRAIN, OTHER, early=True), comes_to="data: attachments"
)
situation("disk: the place of another", given_up, disk(ATTACHING, OTHER, early=True), comes_to="nothing")
