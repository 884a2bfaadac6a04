"""Instances on the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chalicelib.api.wire.offers import instance_type_json
from chalicelib.domain.instances import Instance
from chalicelib.domain.instants import iso
from chalicelib.usecases.machines.health import HealthCheck

if TYPE_CHECKING:
    from chalicelib import contract


def instance_json(instance: Instance, project_name: str, job_name: str | None = None) -> contract.Instance:
    offer = instance.offer
    return {
        "id": instance.id,
        "project_name": project_name,
        "backend": offer.backend,
        "instance_type": instance_type_json(offer.instance),
        "name": instance.name,
        "fleet_id": instance.fleet_id,
        "fleet_name": instance.fleet_name,
        "instance_num": instance.num,
        "job_name": job_name,
        "hostname": instance.hostname or None,
        "status": instance.status.value,
        "unreachable": instance.unreachable,
        "health_status": instance.health,
        "health_message": instance.health_message or None,  # for clients that show it
        "termination_reason": None if instance.reason is None else instance.reason.value,
        "termination_reason_message": instance.message or None,
        "created": iso(instance.created_at),
        "finished_at": None if instance.finished_at is None else iso(instance.finished_at),
        "region": offer.region,
        "availability_zone": instance.zone or None,
        "price": offer.price,
        "total_blocks": instance.total_blocks,
        "busy_blocks": instance.busy_blocks,
        "gpu_driver": None,
    }


def health_checks_json(checks: list[HealthCheck]) -> contract.HealthChecks:
    return {
        "health_checks": [
            {
                "collected_at": iso(check.at),
                "status": check.health.status,
                "events": [
                    {"timestamp": iso(trouble.since), "status": trouble.status, "message": trouble.message}
                    for trouble in check.health.troubles
                ],
            }
            for check in checks
        ]
    }
