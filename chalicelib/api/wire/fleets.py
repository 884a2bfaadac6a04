"""Fleets and fleet plans on the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chalicelib.api.wire.instances import instance_json
from chalicelib.api.wire.offers import offers_json
from chalicelib.api.wire.specs import fleet_spec_json
from chalicelib.api.wire.spliced import spliced
from chalicelib.domain.instants import iso
from chalicelib.engine.read import FleetRow
from chalicelib.usecases.machines.fleet_plans import FleetPlan

if TYPE_CHECKING:
    from chalicelib import contract


def fleet_json(row: FleetRow, project_name: str, *, env: bool = True) -> contract.Fleet:
    """A fleet. Without `env` the environment variables have no values."""
    fleet = row.fleet
    return {
        "id": fleet.id,
        "name": fleet.name,
        "project_name": project_name,
        "spec": fleet_spec_json(row.spec, env=env),
        "created_at": iso(fleet.created_at),
        "status": fleet.status.value,
        "status_message": fleet.message or None,
        "instances": [instance_json(instance, project_name) for instance in row.instances],
    }


def fleet_plan_json(plan: FleetPlan, project_name: str, user_name: str) -> contract.FleetPlan:
    return {
        "project_name": project_name,
        "user": user_name,
        "spec": spliced(plan.spec),
        "effective_spec": fleet_spec_json(plan.spec),
        "current_resource": None if plan.current is None else fleet_json(plan.current, project_name),
        "offers": offers_json(plan.offers),
        "total_offers": plan.total_offers,
        "max_offer_price": plan.max_price,
        "action": plan.action,
        "remarks": list(plan.remarks),
    }
