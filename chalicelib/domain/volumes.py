"""A volume: a disk in a cloud that outlives the runs that mount it, and the machines that they ran on.

A volume that the control plane created is *managed*: it is deleted at the provider with its record. An *external* one
existed before; it is only registered, and the provider's copy is never touched.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar, Literal

import orjson

from chalicelib.domain import keys
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import Micros
from chalicelib.domain.noun import Noun, Value


class VolumeStatus(StrEnum):
    submitted = "submitted"
    provisioning = "provisioning"
    active = "active"
    deleting = "deleting"
    deleted = "deleted"
    failed = "failed"


class VolumeReason(StrEnum):
    """Why a volume failed."""

    refused = "refused"  # by the provider
    not_found = "not_found"  # an external one
    timeout = "timeout"
    lost = "lost"  # the provider doesn't know it any more


class Device(Value):
    """How the agent identifies the disk on its machine. At least one field is set."""

    serial: str = ""  # of the block device (NVMe, SCSI, virtio), as the kernel shows it
    by_id: str = ""  # name under /dev/disk/by-id
    link: str = ""  # path under /dev/disk, of links that tell where a disk is on its controller
    backing_file: str = ""  # of a loop device, in the simulated cloud
    folder: str = ""  # instead of a disk, in the simulated cloud where the kernel refuses loop devices
    read_only: bool = False  # attached so that nothing on the machine can write it


class ProviderDisk(Value):
    """A volume as its provider describes it."""

    handle: Handle
    state: Literal["creating", "available", "in_use", "deleting", "failed"]
    zone: str = ""
    size_gib: int
    price: float | None = None  # a month
    multi_attach: bool = False
    writable: bool = True
    attached_to: tuple[tuple[str, Device | None], ...] = ()  # ids of machines, as in their handles
    offered_to: tuple[str, ...] = ()  # names of projects that may register it, as its owner's tag lists them
    attaching_to: tuple[str, ...] = ()  # ids of machines that it is being attached to, so it isn't free


class AttachmentState(StrEnum):
    attaching = "attaching"
    attached = "attached"
    detaching = "detaching"


class Attachment(Value):
    """A machine that has the volume, and the job for which it is attached."""

    instance_id: str
    instance_name: str
    instance_num: int
    fleet_id: str
    fleet_name: str
    job_id: str
    run_id: str
    run_name: str
    replica_num: int = 0
    job_num: int = 0
    submission_num: int = 0
    state: AttachmentState = AttachmentState.attaching
    device: Device | None = None
    name: str = ""  # `device_name` on the wire
    early: bool = False  # for a node that isn't placed yet: volumes are attached before the first node starts
    message: str = ""  # the error of the last attempt
    error: str = ""  # why attaching failed for good: the job ends with volume_error
    held: str = ""  # which processes keep the machine from unmounting it after the job's end
    since: Micros
    deadline: Micros | None = None  # attaching: when attempts end, counted from the first
    act_until: Micros | None = None  # until then a committed attempt may be under way
    shows_by: Micros | None = None  # when the effect of the last attempt must be visible at the provider


class Volume(Noun):
    kind: ClassVar[str] = "volume"

    id: str
    project_id: str
    name: str
    user_name: str = ""
    configuration: str  # as the user wrote it, as JSON text
    backend: str
    region: str = ""
    zone: str = ""  # empty: any, until it is created
    size_gib: int | None = None
    external_id: str = ""  # the provider's id of an external volume
    tags: dict[str, str] = {}
    auto_cleanup_seconds: int | None = None
    status: VolumeStatus = VolumeStatus.submitted
    reason: VolumeReason | None = None
    message: str = ""
    handle: Handle | None = None
    price: float | None = None  # a month, of the whole volume
    multi_attach: bool = False
    read_only: bool = False
    blank: bool = False  # we created it and nothing has mounted it, so it may be formatted
    attachments: tuple[Attachment, ...] = ()
    epoch: int = 0
    created_at: Micros
    last_processed_at: Micros
    active_at: Micros | None = None
    used_at: Micros | None = None  # the end of its last attachment, or when a run last waited for it; None: never
    deleted_at: Micros | None = None
    missing_since: Micros | None = None  # external: when its provider was first found not to know it
    remains: bool = False  # its creation failed, and what it may have left is being removed
    asked: int = 0  # how often its deletion was requested
    act_until: Micros | None = None  # until then a committed effect may be in flight, and only its committer acts
    deadline: Micros | None = None  # submitted, provisioning: when waiting ends
    due_at: Micros | None = None

    @property
    def unit(self) -> str:
        return f"volume/{self.id}"

    @property
    def external(self) -> bool:
        return bool(self.external_id)

    @property
    def shareable(self) -> bool:
        """May several machines have it at once? Only read-only volumes may, whatever the provider allows: two machines
        that write to its file system would destroy it."""
        return self.multi_attach and self.read_only and not self.blank

    @property
    def deleted(self) -> bool:
        return self.status is VolumeStatus.deleted

    @property
    def written(self) -> dict[str, Any]:
        """The configuration, as the wire shows it."""
        found: dict[str, Any] = orjson.loads(self.configuration)
        return found

    def place(self) -> keys.Place:
        listed = keys.by_time(keys.volumes_of(self.project_id), self.created_at, self.id)  # until it is erased
        over = keys.by_time(keys.ENDED_VOLUMES, self.deleted_at or self.last_processed_at, self.id)
        due = keys.due(self.unit, self.due_at)
        return keys.Place(keys.volume(self.id), listed, over if self.deleted else None, due)
