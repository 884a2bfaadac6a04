"""Attaching a volume to the machines of its jobs, and detaching it when they end.

A job gets its volumes in the commit that gives it its place: each volume gets an attachment for it, and the machine
lists the volume among its disks. From then on the decisions here apply: the disk is attached once the machine exists,
and detached once no job there uses it. An attempt is committed before it is made, only its committer makes it, and the
next one waits until the effect must be visible at the provider. So a disk is attached to a machine only after its
provider has shown it detached from all others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from chalicelib.domain.events import EventType
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import SECOND, Micros, spoken
from chalicelib.domain.jobs import Job, Mounted
from chalicelib.domain.specs.mounts import MountPoint, VolumeMountPoint
from chalicelib.domain.volumes import Attachment, AttachmentState, Device, Volume, VolumeStatus
from chalicelib.machines.volume import CHECK_ATTACHED_EVERY, CHECK_WAITING_EVERY, MOVE_EVERY, TO_ATTACH
from chalicelib.planning.kernel import purchases
from chalicelib.planning.kernel.failures import meaning
from chalicelib.planning.kernel.plan import Effect, Failed, Outcome
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.volumes.mounts import named_volumes
from chalicelib.planning.volumes.sites import choose, site_of
from chalicelib.planning.volumes.snapshot import VolumeSnapshot

if TYPE_CHECKING:
    from chalicelib.contract import agent as contract

_THERE = (InstanceStatus.provisioning, InstanceStatus.idle, InstanceStatus.busy)


@dataclass(frozen=True)
class AttachVolume(Effect):
    """Attach the disk to this machine, and check whether it is attached."""

    instance_id: str = ""


@dataclass(frozen=True)
class DetachVolume(Effect):
    """Detach the disk from this machine, and check whether it is detached."""

    instance_id: str = ""


@dataclass(frozen=True)
class DiskAt(Outcome):
    """An attempt to attach (`attaching`) or to detach was made. `there`: the provider shows the disk at this
    machine."""

    instance_id: str
    act_until: Micros
    attaching: bool
    there: bool
    device: Device | None = None


@dataclass(frozen=True)
class DiskNotMoved(Failed):
    """An attempt to attach or to detach failed."""

    instance_id: str = ""
    act_until: Micros = 0
    attaching: bool = True


# --- with a job's place ----------------------------------------------------------------------------------------------


def mounted(mounts: Sequence[MountPoint], chosen: Sequence[Volume]) -> tuple[Mounted, ...]:
    paths = [mount.path for mount in mounts if isinstance(mount, VolumeMountPoint)]
    return tuple(Mounted(id=v.id, name=v.name, path=path) for v, path in zip(chosen, paths, strict=True))


def held_early(
    mounts: Sequence[MountPoint], volumes: Iterable[Volume], job_id: str, instance_id: str
) -> list[Volume] | None:
    """The volumes that one of several nodes got with its place, in the order of its mounts; None: one of them is
    gone."""
    names = named_volumes(mounts)
    own = [volume for volume in volumes if attached_for(volume, job_id, instance_id)] if names else []
    if not own:
        return None if names else []
    return choose([[volume for volume in own if volume.name in each] for each in names], site_of(own[0]))


def claim_volumes(
    draft: Draft, chosen: Sequence[Volume], job: Job, instance: Instance, *, early: bool = False
) -> tuple[list[Volume], Instance]:
    """Add attachments for the job to the volumes, and the volumes to the machine's disks, in the commit of the job's
    place."""
    taken = []
    for volume in chosen:
        others = [each for each in volume.attachments if (each.job_id, each.instance_id) != (job.id, instance.id)]
        beside = next((each for each in volume.attachments if each.instance_id == instance.id), None)
        own = _attachment(job, instance, draft.now, early=early)
        if beside is not None:
            own = own.with_(**_shared(beside))
        taken.append(volume.with_(attachments=(*others, own), last_processed_at=draft.now, due_at=draft.now))
        draft.save(taken[-1])
        draft.wake(volume.unit)
    disks = tuple(dict.fromkeys((*instance.disks, *(volume.id for volume in taken))))
    if disks != instance.disks:
        instance = instance.with_(disks=disks, last_processed_at=draft.now)
        draft.save(instance)
    return taken, instance


def _attachment(job: Job, instance: Instance, now: Micros, *, early: bool) -> Attachment:
    return Attachment(
        instance_id=instance.id,
        instance_name=instance.name,
        instance_num=instance.num,
        fleet_id=instance.fleet_id,
        fleet_name=instance.fleet_name,
        job_id=job.id,
        run_id=job.run_id,
        run_name=job.run_name,
        replica_num=job.replica_num,
        job_num=job.job_num,
        submission_num=job.submission_num,
        early=early,
        since=now,
    )


def _shared(attachment: Attachment) -> dict[str, Any]:
    """The fields of an attachment that are the same for every job on its machine."""
    names = ("state", "device", "name", "message", "error", "deadline", "act_until", "shows_by")
    return {name: getattr(attachment, name) for name in names}


def attached_for(volume: Volume, job_id: str, instance_id: str) -> Attachment | None:
    """The attachment for a job at a machine. There may be another one where the job had its place before."""
    here = (each for each in volume.attachments if each.instance_id == instance_id)
    return next((each for each in here if each.job_id == job_id), None)


def with_hold(volume: Volume, job: Job, why: str) -> Volume:
    """The volume with the reason `why` the job's machine can't unmount it yet; empty: it can."""
    attachments = (each.with_(held=why) if each.job_id == job.id else each for each in volume.attachments)
    return volume.with_(attachments=tuple(attachments))


def give_up_early(draft: Draft, volume: Volume, jobs: Collection[str], instance_id: str) -> Volume:
    """Let the volume leave this machine, because these jobs won't get their places there."""
    after = tuple(
        each.with_(early=False) if each.instance_id == instance_id and each.job_id in jobs else each
        for each in volume.attachments
    )
    if after != volume.attachments:
        volume = volume.with_(attachments=after, last_processed_at=draft.now, due_at=draft.now)
        draft.save(volume)
        draft.wake(volume.unit)
    return volume


def disks_of(job: Job, volumes: Mapping[str, Volume], install: str) -> list[contract.TaskDisk] | None:
    """The job's volumes in the agent protocol; None: they aren't all attached yet. `install`: the id of this
    install."""
    found: list[contract.TaskDisk] = []
    if job.assignment is None:
        return found
    for each in job.assignment.volumes:
        volume = volumes.get(each.id)
        attachment = None if volume is None else attached_for(volume, job.id, job.assignment.instance_id)
        if volume is None or attachment is None or attachment.state is not AttachmentState.attached:
            return None
        found.append(
            {
                "kind": "disk",
                "volume": volume.id,
                "name": volume.name,
                "path": each.path,
                "device": _device(attachment.device),
                "format": volume.blank,
                "install": install,
                "read_only": volume.read_only,
            }
        )
    return found


def _device(device: Device | None) -> contract.DiskDevice:
    return {} if device is None else cast("contract.DiskDevice", device.model_dump(exclude_defaults=True))


# --- from then on ----------------------------------------------------------------------------------------------------


def may_move(volume: Volume, effect: AttachVolume | DetachVolume, facts: BackendFacts, now: Micros) -> bool:
    """Is this the committed attempt, and is there time for it before others may act?"""
    state = AttachmentState.attaching if isinstance(effect, AttachVolume) else AttachmentState.detaching
    intended = any(
        (each.instance_id, each.state, each.act_until) == (effect.instance_id, state, effect.act_until)
        for each in volume.attachments
    )
    return intended and now <= effect.act_until - facts.visibility_lag - facts.create_timeout // 2


def tend(snapshot: VolumeSnapshot, draft: Draft, volume: Volume) -> tuple[Volume, Micros | None]:
    """Take the next step at each of its machines; also returns when the next check is due."""
    this = _AttachmentPass(snapshot, draft, volume)
    for instance_id in dict.fromkeys(each.instance_id for each in volume.attachments):
        this.at(instance_id)
    return this.volume, min(this.checks, default=None)


def conclude_move(snapshot: VolumeSnapshot, draft: Draft, volume: Volume, outcome: DiskAt | DiskNotMoved) -> Volume:
    """Apply the outcome of an attempt. One that was superseded has no consequences."""
    this = _AttachmentPass(snapshot, draft, volume)
    here = this.entries(outcome.instance_id)
    if here and here[0].act_until == outcome.act_until:
        if isinstance(outcome, DiskAt):
            this.seen(here[0], outcome)
        else:
            this.not_moved(here[0], outcome)
        draft.wake(volume.unit)
    return this.volume


class _AttachmentPass:
    def __init__(self, snapshot: VolumeSnapshot, draft: Draft, volume: Volume) -> None:
        self.snapshot, self.now, self.draft, self.volume = snapshot, snapshot.now, draft, volume
        self.facts = snapshot.facts or BackendFacts(name=volume.backend)
        self.checks: list[Micros] = []

    def entries(self, instance_id: str) -> list[Attachment]:
        return [each for each in self.volume.attachments if each.instance_id == instance_id]

    def _change(self, instance_id: str, **changes: Any) -> None:
        """Change the attachments of all jobs at this machine."""
        after = [each.with_(**changes) if each.instance_id == instance_id else each for each in self.volume.attachments]
        self.volume = self.volume.with_(attachments=tuple(after), last_processed_at=self.now)
        self.draft.save(self.volume)

    # --- what is next ------------------------------------------------------------------------------------------------

    def at(self, instance_id: str) -> None:
        here = self.entries(instance_id)
        over = [each for each in here if self._over(each)]
        if over and here[0].state is not AttachmentState.detaching:
            if len(over) < len(here) or _untouched(here[0]):
                self._drop(instance_id, over)
            else:
                self._change(instance_id, state=AttachmentState.detaching)
        here = self.entries(instance_id)
        if here and (quiet := max(here[0].act_until or 0, here[0].shows_by or 0)) > self.now:
            if here[0].state is AttachmentState.attaching and (here[0].act_until or 0) <= self.now:
                self._attaching(here[0])  # an attempt to attach may be repeated before the last one shows
            else:
                self.checks.append(quiet)
        elif here and here[0].state is AttachmentState.attaching:
            self._attaching(here[0])
        elif here and here[0].state is AttachmentState.detaching:
            self._attempt(here[0], DetachVolume)
        elif here:
            self.checks.append(self.now + CHECK_ATTACHED_EVERY)

    def _over(self, attachment: Attachment) -> bool:
        """Has the attachment's job ended, or lost its place here?"""
        job = self.snapshot.jobs.get(attachment.job_id)
        if job is None or job.finished:
            return True
        if job.assignment is None:
            return not attachment.early
        return job.assignment.instance_id != attachment.instance_id

    def _attaching(self, attachment: Attachment) -> None:
        instance = self.snapshot.instances.get(attachment.instance_id)
        if attachment.error or instance is None or instance.status not in _THERE:
            self.checks.append(self.now + CHECK_WAITING_EVERY)
        elif self.volume.status is not VolumeStatus.active:
            self._give_up(attachment, f"it is {self.volume.status.value}")
        elif attachment.deadline is not None and self.now >= attachment.deadline:
            why = f": {attachment.message}" if attachment.message else ""
            self._give_up(
                attachment, f"it wasn't attached to {attachment.instance_name} within {spoken(TO_ATTACH)}{why}"
            )
        elif self.volume.due_at is not None and self.volume.due_at > self.now and attachment.deadline is not None:
            self.checks.append(self.volume.due_at)
        else:
            self._attempt(attachment, AttachVolume, deadline=attachment.deadline or self.now + TO_ATTACH)

    def _attempt(self, attachment: Attachment, effect: type[AttachVolume | DetachVolume], **changes: Any) -> None:
        until = purchases.act_until(self.now, self.facts)
        self._change(attachment.instance_id, act_until=until, **changes)
        self.checks.append(until)
        volume = self.volume
        self.draft.act(effect(volume.unit, volume.backend, until, volume.project_id, attachment.instance_id))

    def _give_up(self, attachment: Attachment, why: str) -> None:
        error = f"volume {self.volume.name}: {why}"[:500]
        self._change(attachment.instance_id, error=error, act_until=None)
        self.draft.record(EventType.failed, self.volume, reason="volume_error", detail=error)
        self.draft.wake(*(f"run/{each.run_id}" for each in self.entries(attachment.instance_id)))
        self.checks.append(self.now + CHECK_WAITING_EVERY)

    def _drop(self, instance_id: str, gone: Sequence[Attachment]) -> None:
        """Remove the attachments of these jobs, and the disk from the machine if no other job there uses it."""
        ids = {each.job_id for each in gone}
        left = [e for e in self.volume.attachments if not (e.instance_id == instance_id and e.job_id in ids)]
        self.volume = self.volume.with_(attachments=tuple(left), used_at=self.now, last_processed_at=self.now)
        self.draft.save(self.volume)
        self.draft.wake(f"queue/{self.volume.project_id}", self.volume.unit)
        instance = self.snapshot.instances.get(instance_id)
        if instance is not None and not self.entries(instance_id) and self.volume.id in instance.disks:
            disks = tuple(disk for disk in instance.disks if disk != self.volume.id)
            self.draft.save(instance.with_(disks=disks, last_processed_at=self.now))
            self.draft.wake(f"instance/{instance_id}")

    # --- outcomes ----------------------------------------------------------------------------------------------------

    def seen(self, attachment: Attachment, seen: DiskAt) -> None:
        if attachment.state is AttachmentState.detaching and not seen.attaching and not seen.there:
            self._drop(attachment.instance_id, self.entries(attachment.instance_id))
        elif attachment.state is AttachmentState.attaching and seen.attaching and seen.there:
            changes = {"state": AttachmentState.attached, "device": seen.device, "name": _device_name(seen.device)}
            self._change(attachment.instance_id, **changes, message="", act_until=None, shows_by=None)
            self.draft.wake(*(f"run/{each.run_id}" for each in self.entries(attachment.instance_id)))
        else:
            pause = max(MOVE_EVERY, self.facts.visibility_lag) if seen.attaching else MOVE_EVERY
            self._change(attachment.instance_id, act_until=None, shows_by=self.now + pause)
        self._soon(MOVE_EVERY)

    def not_moved(self, attachment: Attachment, failed: DiskNotMoved) -> None:
        if failed.error == "Gone" and not failed.attaching and self._confirmed_gone(attachment):
            self._drop(attachment.instance_id, self.entries(attachment.instance_id))
            self._soon(MOVE_EVERY)
            return
        means = meaning(failed.error)
        until = None if means.settled else attachment.act_until
        pause = means.retry_after if failed.retry_after is None else failed.retry_after
        wait = max(MOVE_EVERY, round(pause * SECOND))
        self._change(attachment.instance_id, message=failed.message[:500], act_until=until, shows_by=self.now + wait)
        if attachment.state is AttachmentState.attaching and not means.repeat:
            self._give_up(attachment, failed.message)
        self._soon(wait)

    def _confirmed_gone(self, attachment: Attachment) -> bool:
        """Is the disk really gone, if its provider doesn't know it? A single answer may be wrong, and an attached disk
        would then stay attached. If it is gone, the volume's record soon says so, or the machine ends."""
        instance = self.snapshot.instances.get(attachment.instance_id)
        ended = instance is None or instance.status is InstanceStatus.terminated
        return ended or self.volume.status is VolumeStatus.failed

    def _soon(self, pause: Micros) -> None:
        self.volume = self.volume.with_(due_at=self.now + pause)
        self.draft.save(self.volume)


def _untouched(attachment: Attachment) -> bool:
    """Was no attempt ever made at the provider?"""
    return attachment.state is AttachmentState.attaching and attachment.deadline is None


def _device_name(device: Device | None) -> str:
    return (
        "" if device is None else device.serial or device.by_id or device.link or device.backing_file or device.folder
    )
