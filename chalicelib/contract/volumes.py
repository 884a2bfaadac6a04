"""Volumes."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from chalicelib.contract.values import Configuration, Date, Id

VolumeStatus = Literal["submitted", "provisioning", "active", "failed"]


class VolumeProvisioningData(TypedDict):
    """The disk at the provider."""

    backend: str
    volume_id: str
    size_gb: int
    availability_zone: str | None
    price: float | None
    """Dollars a month."""
    attachable: bool
    detachable: bool
    backend_data: None


class AttachedInstance(TypedDict):
    name: str
    fleet_name: str | None
    instance_num: int
    instance_id: str


class AttachmentData(TypedDict):
    device_name: str


class VolumeAttachment(TypedDict):
    """A machine that has the volume."""

    instance: AttachedInstance
    attachment_data: AttachmentData | None


class Volume(TypedDict):
    """A volume, what it costs, and where it is attached."""

    id: Id
    name: str
    user: str
    project_name: str
    configuration: Configuration
    external: bool
    """It existed before, and is never deleted at the provider."""
    created_at: Date
    last_processed_at: Date
    status: VolumeStatus
    """Of one that is being deleted, the last that it had."""
    status_message: str | None
    deleted: bool
    deleted_at: Date | None
    volume_id: str | None
    """The provider's."""
    provisioning_data: VolumeProvisioningData | None
    cost: float
    """Dollars, until now."""
    attachments: list[VolumeAttachment]
    attachment_data: None
