"""Volumes on the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from chalicelib.billing.usage import volume_cost
from chalicelib.domain.instants import Micros, iso
from chalicelib.domain.volumes import Attachment, AttachmentState, Volume

if TYPE_CHECKING:
    from chalicelib import contract

_INSTEAD = "a folder instead of a disk: this computer's kernel refuses loop devices"


def volume_json(volume: Volume, project_name: str, now: Micros) -> contract.Volume:
    handle = volume.handle
    provider_id = None if handle is None or volume.active_at is None else handle.id
    return {
        "id": volume.id,
        "name": volume.name,
        "user": volume.user_name,
        "project_name": project_name,
        "configuration": volume.written,
        "external": volume.external,
        "created_at": iso(volume.created_at),
        "last_processed_at": iso(volume.last_processed_at),
        "status": _status(volume),
        "status_message": volume_message(volume) or None,
        "deleted": volume.deleted,
        "deleted_at": None if volume.deleted_at is None else iso(volume.deleted_at),
        "volume_id": provider_id,
        "provisioning_data": None if provider_id is None else _provisioned(volume, provider_id),
        "cost": volume_cost(volume, now),
        "attachments": [_attachment(each) for each in {one.instance_id: one for one in volume.attachments}.values()],
        "attachment_data": None,
    }


def _status(volume: Volume) -> contract.VolumeStatus:
    """The status. Clients know none for a volume that is being deleted, so it keeps the one that it had."""
    status: contract.VolumeStatus | Literal["deleting", "deleted"] = volume.status.value
    if status == "deleting" or status == "deleted":  # noqa: PLR1714 - the type checker follows no `in`
        ended = volume.reason is not None
        return "failed" if ended else "active" if volume.active_at is not None else "submitted"
    return status


def volume_message(volume: Volume) -> str:
    """The problems of a volume, including those of its attachments: one that can't be detached, or that was
    replaced."""
    attached = [each for each in volume.attachments if each.state is AttachmentState.attached]
    replaced = [_INSTEAD for each in attached if each.device is not None and each.device.folder]
    return "; ".join(filter(None, dict.fromkeys((volume.message, *replaced, *(each.held for each in attached)))))


def _provisioned(volume: Volume, provider_id: str) -> contract.VolumeProvisioningData:
    return {
        "backend": volume.backend,
        "volume_id": provider_id,
        "size_gb": volume.size_gib or 0,
        "availability_zone": volume.zone or None,
        "price": volume.price,
        "attachable": True,
        "detachable": True,
        "backend_data": None,
    }


def _attachment(attachment: Attachment) -> contract.VolumeAttachment:
    return {
        "instance": {
            "name": attachment.instance_name,
            "fleet_name": attachment.fleet_name,
            "instance_num": attachment.instance_num,
            "instance_id": attachment.instance_id,
        },
        "attachment_data": {"device_name": attachment.name} if attachment.name else None,
    }
