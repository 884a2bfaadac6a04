"""A volume's decisions: create or register it, keep it, and make sure that it is deleted when it isn't needed any more.

A volume is created the way a machine is bought: the intent is committed with its `act_until`, only its committer acts
until then, and the call is idempotent. Whatever a failed creation may have left is removed, and a deletion is repeated
until the provider says that nothing is left. The record of an external volume is deleted, but never its disk. Nothing
here deletes a volume that is attached.
"""

from __future__ import annotations

from dataclasses import dataclass

from chalicelib.domain.events import EventType
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import MINUTE, SECOND, Micros, spoken
from chalicelib.domain.volumes import ProviderDisk, Volume, VolumeReason, VolumeStatus
from chalicelib.errors import Bug
from chalicelib.machines.volume import CHECK_ACTIVE_EVERY, DELETE_EVERY, DELETE_SELDOM, POLL_EVERY, TO_CREATE, VOLUME
from chalicelib.planning.kernel import purchases
from chalicelib.planning.kernel.failures import meaning
from chalicelib.planning.kernel.plan import Effect, Failed, Outcome, Plan
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.volumes.attachments import DiskAt, DiskNotMoved, conclude_move, tend
from chalicelib.planning.volumes.snapshot import VolumeSnapshot

WAIT_UNUSED: Micros = MINUTE  # the shortest `auto_cleanup_duration`: the next run must have time to claim the volume
WAIT_DETACHED: Micros = MINUTE  # the end of an attachment wakes its volume; this is for wake-ups that are lost


@dataclass(frozen=True)
class CreateVolume(Effect):
    """Create a committed `submitted` volume. Idempotent by its token."""


@dataclass(frozen=True)
class RegisterVolume(Effect):
    """Look up the external volume of a committed `submitted` one."""


@dataclass(frozen=True)
class DescribeVolume(Effect):
    """Ask what the provider knows about the volume."""


@dataclass(frozen=True)
class DeleteVolume(Effect):
    """Delete everything that the provider has of the volume. Repeated until nothing is left."""


@dataclass(frozen=True)
class VolumeCreated(Outcome):
    """The provider accepted the creation."""

    epoch: int
    act_until: Micros
    handle: Handle


@dataclass(frozen=True)
class VolumeNotCreated(Failed):
    """The volume wasn't created, or wasn't found. The fields identify the attempt."""

    epoch: int = 0
    act_until: Micros = 0


@dataclass(frozen=True)
class DiskSeen(Outcome):
    """The disk as the provider describes it; None: it knows no such disk, or not yet."""

    epoch: int
    disk: ProviderDisk | None


@dataclass(frozen=True)
class DiskLeft(Outcome):
    """What is left after the deletion of everything known or listed was requested. `going` describes it; empty: nothing
    is left."""

    epoch: int
    began: Micros
    open_until: Micros | None = None  # `act_until` of a creation open at that time: it may have created something since
    going: str = ""


@dataclass(frozen=True)
class VolumeNotDone(Failed):
    """Describe or delete failed."""

    epoch: int = 0


def may_begin(volume: Volume, effect: Effect, facts: BackendFacts, now: Micros) -> bool:
    """Is the volume still wanted, and is there time for the call before others may act?"""
    if volume.status is not VolumeStatus.submitted or volume.act_until != effect.act_until:
        return False
    return now <= effect.act_until - facts.visibility_lag - facts.create_timeout // 2


def has_disk(volume: Volume) -> bool:
    """May the volume have a disk? A failed one has none, unless remains are still being removed."""
    return volume.status is not VolumeStatus.failed or volume.remains or bool(volume.attachments)


def is_disk_of(volume: Volume, handle: Handle, region: str) -> bool:
    """Is this the disk of the volume? While a registration has only begun, its claim on the disk's id decides."""
    known = volume.handle.id if volume.handle else volume.external_id
    begun = volume.status is not VolumeStatus.submitted
    return begun and known == handle.id and volume.region == region and has_disk(volume)


def unused_lifetime(volume: Volume) -> Micros | None:
    """How long a volume is kept while no job uses it; None: for ever."""
    return None if volume.auto_cleanup_seconds is None else max(WAIT_UNUSED, volume.auto_cleanup_seconds * SECOND)


def unused_until(volume: Volume) -> Micros | None:
    """When the volume will be deleted unless a job uses it before; None: never."""
    stays = unused_lifetime(volume)
    if volume.status is not VolumeStatus.active or stays is None or volume.attachments:
        return None
    return max(volume.active_at or 0, volume.used_at or 0) + stays


def decide_volume(snapshot: VolumeSnapshot) -> Plan:
    """The next step of one volume."""
    this = VolumePass(snapshot)
    this.tend()
    if this.volume.status is VolumeStatus.submitted:
        this.submitted()
    elif this.volume.status is VolumeStatus.provisioning:
        this.provisioning()
    elif this.volume.status is VolumeStatus.active:
        this.active()
    if this.volume.status is VolumeStatus.deleting:
        this.deleting()
    elif this.volume.status is VolumeStatus.failed:
        this.failed()
    return this.plan()


def decide_disk(snapshot: VolumeSnapshot, outcome: Outcome) -> Plan:
    """Apply the outcome of an effect on the volume. One that comes too late has no consequences."""
    this = _VolumeOutcome(snapshot)
    if isinstance(outcome, DiskAt | DiskNotMoved):
        this.volume = conclude_move(snapshot, this.draft, this.volume, outcome)
    elif isinstance(outcome, VolumeCreated | VolumeNotCreated):
        same = (outcome.epoch, outcome.act_until) == (this.volume.epoch, this.volume.act_until)
        if same:
            this.created(outcome.handle) if isinstance(outcome, VolumeCreated) else this.not_created(outcome)
    elif isinstance(outcome, DiskSeen | DiskLeft | VolumeNotDone):
        if outcome.epoch == this.volume.epoch:
            this.conclude(outcome)
    else:
        raise Bug(f"{outcome} is no outcome of an effect on a volume")
    return this.plan()


class VolumePass:
    """One pass over a volume: the noun so far, and the draft of the step."""

    def __init__(self, snapshot: VolumeSnapshot) -> None:
        self.snapshot, self.now, self.volume = snapshot, snapshot.now, snapshot.volume
        self.facts = snapshot.facts or BackendFacts(name=snapshot.volume.backend)
        self.draft = Draft(snapshot.now)

    def plan(self) -> Plan:
        return Plan(() if self.draft.empty else (self.draft.step(),), next_wake=self.volume.due_at)

    def _update(self, **changes: object) -> None:
        self.volume = self.volume.with_(**changes)
        self.draft.save(self.volume)

    def _move(self, event: str, note: str = "", **changes: object) -> None:
        self.volume = self.draft.move(VOLUME, self.volume, event, note=note, **changes)

    def _check_by(self, due_at: Micros) -> None:
        """Move the due time; writes only if the current one has passed or is too late."""
        current = self.volume.due_at
        if current is None or current <= self.now or current > due_at:
            self._update(due_at=due_at)

    def _due(self) -> bool:
        return self.volume.due_at is None or self.volume.due_at <= self.now

    def _act(self, effect: type[Effect], until: Micros) -> None:
        self.draft.act(effect(self.volume.unit, self.volume.backend, until, self.volume.project_id))

    def tend(self) -> None:
        """Take the next step of each attachment."""
        self.volume, check_at = tend(self.snapshot, self.draft, self.volume)
        if check_at is not None:
            self._check_by(check_at)

    # --- until it is there -------------------------------------------------------------------------------------------

    def submitted(self) -> None:
        if self._overdue():
            return
        if self.volume.act_until is not None and self.volume.act_until > self.now:
            self._check_by(self.volume.act_until)
            return
        until = purchases.act_until(self.now, self.facts)
        self._update(act_until=until, due_at=until)
        self._act(RegisterVolume if self.volume.external else CreateVolume, until)

    def provisioning(self) -> None:
        if self._overdue() or not self._due():
            return
        self.describe()

    def describe(self) -> None:
        self._update(due_at=self.now + POLL_EVERY)
        self._act(DescribeVolume, self.now + POLL_EVERY + purchases.PATIENCE)

    def _overdue(self) -> bool:
        if self.volume.deadline is None or self.now < self.volume.deadline:
            return False
        why = f": {self.volume.message}" if self.volume.message else ""
        self._fail(VolumeReason.timeout, f"it wasn't available within {spoken(TO_CREATE)}{why}")
        return True

    def _fail(self, reason: VolumeReason, message: str) -> None:
        """Mark it as failed. What its creation may have left is removed; an external disk isn't touched."""
        remains = not self.volume.external
        due_at = self.now if remains else None
        self._move("failed", reason=reason, message=message[:500], remains=remains, deadline=None, due_at=due_at)
        self.draft.wake(self.volume.unit, f"queue/{self.volume.project_id}")

    # --- in use, or not ----------------------------------------------------------------------------------------------

    def active(self) -> None:
        unused, stays = unused_until(self.volume), unused_lifetime(self.volume) or 0
        if unused is not None and unused <= self.now and self.snapshot.wanted:
            check_at = self.now + min(stays, CHECK_ACTIVE_EVERY)
            self._update(used_at=self.now, due_at=check_at)  # the run that names it needs its data
        elif unused is not None and unused <= self.now:
            self._move("delete", note=f"unused for {spoken(stays)}", due_at=self.now)
        elif self.volume.external and self._due():  # the sweep's listings don't show it
            self._update(due_at=self.now + CHECK_ACTIVE_EVERY)
            self._act(DescribeVolume, self.now + CHECK_ACTIVE_EVERY)
        else:
            self._check_by(
                self.now + CHECK_ACTIVE_EVERY if unused is None else min(unused, self.now + CHECK_ACTIVE_EVERY)
            )

    # --- until nothing is left ---------------------------------------------------------------------------------------

    def deleting(self) -> None:
        if self.volume.attachments:
            self._check_by(self.now + WAIT_DETACHED)
        elif self.volume.external:
            self._gone()
        elif self._due():
            self.delete()

    def failed(self) -> None:
        if self.volume.remains and not self.volume.attachments and self._due():
            self.delete()

    def delete(self) -> None:
        pause = min(DELETE_EVERY << min(self.volume.asked, 10), DELETE_SELDOM)
        self._update(asked=self.volume.asked + 1, due_at=self.now + pause)
        self._act(DeleteVolume, self.now + pause + purchases.PATIENCE)

    def _gone(self) -> None:
        self._move("gone", deleted_at=self.now, remains=False, message="", act_until=None, deadline=None, due_at=None)


class _VolumeOutcome(VolumePass):
    def created(self, handle: Handle) -> None:
        if self.volume.status is VolumeStatus.submitted:
            self._move("accepted", note="its provider is creating it", message="", handle=handle, act_until=None)
            self.describe()
        elif self.volume.status in (VolumeStatus.deleting, VolumeStatus.failed):  # nobody wants it any more
            remains = self.volume.status is VolumeStatus.failed
            self._update(handle=handle, remains=remains, act_until=None, due_at=self.now)
            self.draft.wake(self.volume.unit)

    def not_created(self, failed: VolumeNotCreated) -> None:
        if self.volume.status is VolumeStatus.deleting:
            self._update(act_until=None if meaning(failed.error).settled else self.volume.act_until, due_at=self.now)
            self.draft.wake(self.volume.unit)
        if self.volume.status is not VolumeStatus.submitted:
            return
        means, unknown = meaning(failed.error), self.volume.external and failed.error == "Gone"
        if not means.repeat or unknown:
            self._fail(VolumeReason.not_found if unknown else VolumeReason.refused, failed.message)
            return
        pause = means.retry_after if failed.retry_after is None else failed.retry_after
        check_at = self.now + round(max(pause, 1.0) * SECOND)
        until = max(check_at, self.now + (0 if means.settled else self.facts.visibility_lag))
        self._update(message=failed.message, act_until=until, due_at=until)
        self.draft.record(EventType.failed, self.volume, reason=failed.error, detail=failed.message[:500])

    def conclude(self, outcome: DiskSeen | DiskLeft | VolumeNotDone) -> None:
        if isinstance(outcome, DiskSeen):
            self.seen(outcome.disk)
        elif isinstance(outcome, DiskLeft):
            self.left(outcome)
        else:
            self.call_failed(outcome)

    def seen(self, disk: ProviderDisk | None) -> None:
        if self.volume.status is VolumeStatus.active:
            self._confirm_existence(disk)
            return
        if self.volume.status not in (VolumeStatus.submitted, VolumeStatus.provisioning) or disk is None:
            return
        if disk.state in ("failed", "deleting"):
            self._fail(VolumeReason.refused, f"its provider says that it is {disk.state}")
        elif disk.state == "creating":
            self._creating(disk)
        else:
            self._ready(disk)

    def _confirm_existence(self, disk: ProviderDisk | None) -> None:
        """Record whether an active volume still exists. A managed one is described only by the sweep, after two
        listings without it; an external one must be missing twice."""
        since = self.volume.missing_since
        if disk is not None:
            if since is not None:
                self._update(missing_since=None)
        elif self.volume.external and since is None:
            self._update(missing_since=self.now, due_at=self.now + purchases.confirmation_delay(self.facts))
        elif not self.volume.external or self.now >= (since or 0) + purchases.confirmation_delay(self.facts):
            due_at = self.now if self.volume.attachments else None
            self._move("lost", reason=VolumeReason.lost, message="its provider no longer knows it", due_at=due_at)

    def _creating(self, disk: ProviderDisk) -> None:
        if self.volume.status is VolumeStatus.submitted:
            self._move("accepted", note="its provider is creating it", handle=disk.handle, act_until=None)
            self._update(due_at=self.now + POLL_EVERY)

    def _ready(self, disk: ProviderDisk) -> None:
        stays = unused_lifetime(self.volume)
        self._move(
            "ready",
            handle=disk.handle,
            zone=disk.zone or self.volume.zone,
            size_gib=disk.size_gib,
            price=disk.price,
            multi_attach=disk.multi_attach,
            message="",
            active_at=self.now,
            act_until=None,
            deadline=None,
            due_at=self.now + (CHECK_ACTIVE_EVERY if stays is None else min(CHECK_ACTIVE_EVERY, stays)),
        )
        self.draft.wake(f"queue/{self.volume.project_id}")

    def left(self, left: DiskLeft) -> None:
        """Finish the deletion only if nothing is left and no unanswered creation can still add something."""
        if self.volume.status is not VolumeStatus.deleting and not self.volume.remains:
            return
        if left.going:
            return
        if left.open_until is not None and left.open_until > left.began:
            self._update(due_at=left.open_until)
        elif self.volume.status is VolumeStatus.deleting:
            self._gone()
        else:
            self._update(remains=False, act_until=None, due_at=None)

    def call_failed(self, failed: VolumeNotDone) -> None:
        """Record the failure once; the call is repeated when the volume is due."""
        if self.volume.deleted or failed.message == self.volume.message or self.volume.status is VolumeStatus.failed:
            return
        self._update(message=failed.message)
        self.draft.record(EventType.failed, self.volume, reason=failed.error, detail=failed.message[:500])
