"""Volumes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chalicelib.api.wire.volumes import volume_message
from chalicelib.billing.usage import volume_cost
from chalicelib.domain.instants import Micros, iso
from chalicelib.domain.volumes import Volume

if TYPE_CHECKING:
    from chalicelib import contract


def volume_path(project_name: str, name: str) -> str:
    return f"/api/v1/projects/{project_name}/volumes/{name}"


def volume_json(volume: Volume, project_name: str, now: Micros) -> contract.V1Volume:
    handle = volume.handle
    attached = {each.instance_id: each for each in volume.attachments}.values()
    return {
        "id": volume.id,
        "name": volume.name,
        "project": project_name,
        "user": volume.user_name,
        "url": volume_path(project_name, volume.name),
        "status": volume.status.value,
        "why": volume_message(volume) or None,
        "backend": volume.backend,
        "region": volume.region,
        "zone": volume.zone or None,
        "size_gb": volume.size_gib,
        "external": volume.external,
        "disk_id": None if handle is None or volume.active_at is None else handle.id,
        "created_at": iso(volume.created_at),
        "deleted_at": None if volume.deleted_at is None else iso(volume.deleted_at),
        "price_per_month_usd": volume.price,
        "cost_usd": volume_cost(volume, now),
        "attachments": [
            {
                "instance": each.instance_name,
                "instance_id": each.instance_id,
                "fleet": each.fleet_name,
                "run": each.run_name,
            }
            for each in attached
        ],
        "spec": volume.written,
    }
