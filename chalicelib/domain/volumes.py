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
    """How the agent finds the disk on its machine: by identity, never by guess. At least one is set."""

    serial: str = ""  # of the block device (NVMe, SCSI, virtio), as the kernel shows it
    by_id: str = ""  # name under /dev/disk/by-id
    backing_file: str = ""  # of a loop device: the simulated cloud's
    folder: str = ""  # instead of a disk: the simulated cloud's, where the kernel refuses loop devices
    read_only: bool = False  # attached so that nothing on the machine can write it


class ProviderDisk(Value):
    """A volume as its provider describes it."""

    handle: Handle
    state: Literal["creating", "available", "in_use", "deleting", "failed"]
    zone: str = ""
    size_gib: int
    price: float | None = None  # a month
    multi_attach: bool = False
    attached_to: tuple[tuple[str, Device | None], ...] = ()  # ids of machines, as their handles have them
    offered_to: tuple[str, ...] = ()  # names of projects that may register it, as its owner says there
    attaching_to: tuple[str, ...] = ()  # so too: it will be there soon, so it isn't free


class AttachmentState(StrEnum):
    attaching = "attaching"
    attached = "attached"
    detaching = "detaching"


class Attachment(Value):
    """A machine that has the volume, and the job that it is attached for."""

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
    name: str = ""  # what the wire calls device_name
    early: bool = False  # of a node that isn't placed yet: the volumes of all are attached before the first starts
    message: str = ""  # what went wrong at the last attempt
    error: str = ""  # attaching failed for good: the job ends with volume_error
    held: str = ""  # its job has ended, but the machine can't unmount it yet: who uses it
    since: Micros
    deadline: Micros | None = None  # attaching: from the first attempt on, when we give up
    act_until: Micros | None = None  # a committed attempt may be under way until then
    shows_by: Micros | None = None  # what the last attempt did shows at the provider by then


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
    used_at: Micros | None = None  # its last attachment's end, or when a run was last seen waiting; None: never
    deleted_at: Micros | None = None
    missing_since: Micros | None = None  # external: when its provider was first found not to know it
    remains: bool = False  # it failed while it was being created: what there may be of it is being removed
    asked: int = 0  # how often the provider was asked to delete it
    act_until: Micros | None = None  # until then a committed effect may be in flight, and only its committer acts
    deadline: Micros | None = None  # submitted, provisioning: when we give up
    due_at: Micros | None = None

    @property
    def unit(self) -> str:
        return f"volume/{self.id}"

    @property
    def external(self) -> bool:
        return bool(self.external_id)

    @property
    def shareable(self) -> bool:
        """May several machines have it at once? Its file system is one that only a single machine may write, whatever
        the provider allows; two that write lose it."""
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
