"""Fleets, their instances, and offers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from chalicelib.api.wire.v1.specs import configuration_of
from chalicelib.domain.instances import Claim, Instance, InstanceStatus
from chalicelib.domain.instants import iso
from chalicelib.domain.offers import Gpu, Offer, Resources
from chalicelib.domain.specs.fleets import FleetSpec
from chalicelib.engine.read import FleetRow
from chalicelib.usecases.machines.fleet_plans import FleetPlan
from chalicelib.usecases.machines.health import HealthCheck

if TYPE_CHECKING:
    from chalicelib import contract

BEST = 5  # offers of a plan


def fleet_path(project_name: str, name: str) -> str:
    return f"/api/v1/projects/{project_name}/fleets/{name}"


def fleet_summary_json(row: FleetRow, project_name: str) -> contract.V1FleetSummary:
    fleet = row.fleet
    return {
        "id": fleet.id,
        "name": fleet.name,
        "project": project_name,
        "url": fleet_path(project_name, fleet.name),
        "status": fleet.status.value,
        "why": fleet.message or None,
        "revision": fleet.spec_num,
        "instance_count": len(row.instances),
        **_use_json(row.instances),
        "created_at": iso(fleet.created_at),
    }


def fleet_plan_json(action: Any, plan: FleetPlan) -> contract.V1FleetPlan:
    nodes = plan.nodes
    if nodes is None:
        return {"action": action, "machines": None}
    machines: contract.V1PlannedMachines = {
        "at_once": max(nodes.min, nodes.target),
        "most": nodes.max,
        "offers": plan.total_offers,
        "cheapest_per_hour_usd": min((offer.price for offer in plan.offers), default=None),
        "dearest_per_hour_usd": plan.max_price,
        "best": [offer_json(offer) for offer in plan.offers[:BEST]],
    }
    return {"action": action, "machines": machines}


class _Use(TypedDict):
    gpus: int
    busy_gpus: float
    price_per_hour_usd: float


def _use_json(instances: Sequence[Instance]) -> _Use:
    """What a fleet's machines have and cost together. A machine's GPUs are spread evenly over its blocks."""
    there = [each for each in instances if each.status is not InstanceStatus.terminated]
    gpus = [(len(each.offer.instance.resources.gpus), each) for each in there]
    busy = sum(number * each.busy_blocks / each.total_blocks for number, each in gpus)
    return {
        "gpus": sum(number for number, _ in gpus),
        "busy_gpus": round(busy, 2),
        "price_per_hour_usd": round(sum(each.offer.price for each in there), 6),
    }


def fleet_json(row: FleetRow, project_name: str, *, env: bool) -> contract.V1Fleet:
    """A fleet with its spec and machines. Without `env` the environment variables have no values."""
    return {
        **fleet_summary_json(row, project_name),
        "spec": fleet_spec_json(row, env=env),
        "instances": [instance_json(each, project_name) for each in row.instances],
    }


def fleet_spec_json(row: FleetRow, *, env: bool) -> contract.Configuration:
    return configuration_of(FleetSpec, row.spec, env=env)


def instance_json(instance: Instance, project_name: str) -> contract.V1Instance:
    offer = instance.offer
    return {
        "id": instance.id,
        "name": instance.name,
        "project": project_name,
        "url": f"/api/v1/projects/{project_name}/instances/{instance.id}",
        "fleet": instance.fleet_name or None,
        "num": instance.num,
        "status": instance.status.value,
        "reason": None if instance.reason is None else instance.reason.value,
        "why": instance.message or None,
        "unreachable": instance.unreachable,
        "health": instance.health,
        "health_why": instance.health_message or None,
        "hostname": instance.hostname or None,
        "backend": offer.backend,
        "region": offer.region,
        "zone": instance.zone or None,
        "type": offer.instance.name,
        "resources": _resources_json(offer.instance.resources),
        "spot": offer.instance.resources.spot,
        "price_per_hour_usd": offer.price,
        "blocks": instance.total_blocks,
        "busy_blocks": instance.busy_blocks,
        "claims": [_claim_json(claim) for claim in instance.claims],
        "started_at": None if instance.started_at is None else iso(instance.started_at),
        "idle_since": None if instance.idle_since is None else iso(instance.idle_since),
        "created_at": iso(instance.created_at),
        "finished_at": None if instance.finished_at is None else iso(instance.finished_at),
    }


def _claim_json(claim: Claim) -> contract.V1Claim:
    return {
        "run_id": claim.run_id,
        "job_id": claim.job_id,
        "replica": claim.replica_num,
        "node": claim.job_num,
        "blocks": list(claim.blocks),
    }


def health_json(checks: Sequence[HealthCheck]) -> contract.V1Health:
    items: list[contract.V1HealthCheck] = [
        {
            "at": iso(check.at),
            "status": check.health.status,
            "troubles": [
                {"since": iso(each.since), "status": each.status, "why": each.message} for each in check.health.troubles
            ],
        }
        for check in checks
    ]
    return {"items": items}


def offer_json(offer: Offer) -> contract.V1Offer:
    return {
        "backend": offer.backend,
        "region": offer.region,
        "type": offer.instance.name,
        "resources": _resources_json(offer.instance.resources),
        "spot": offer.instance.resources.spot,
        "price_per_hour_usd": offer.price,
        "availability": offer.availability.value,
    }


def gpus_json(gpus: Sequence[Gpu]) -> list[contract.V1Gpus]:
    kinds = Counter((gpu.name, gpu.memory_mib) for gpu in gpus)
    return [{"name": name, "count": count, "memory_gb": _gb(size)} for (name, size), count in kinds.items()]


def _resources_json(has: Resources) -> contract.V1Resources:
    return {
        "cpus": has.cpus,
        "cpu_arch": has.cpu_arch,
        "memory_gb": _gb(has.memory_mib),
        "disk_gb": _gb(has.disk.size_mib),
        "gpus": gpus_json(has.gpus),
    }


def _gb(mebibytes: int) -> float:
    return round(mebibytes / 1024, 2)
