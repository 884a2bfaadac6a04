"""Gateways on the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import orjson

from chalicelib.domain.gateways import Gateway, GatewayReplica
from chalicelib.domain.instants import iso
from chalicelib.usecases.services.certificates import GIVEN, LETS_ENCRYPT, HostCertificate
from chalicelib.usecases.services.gateway_plans import GatewayPlan, shown

if TYPE_CHECKING:
    from chalicelib import contract


def gateway_json(gateway: Gateway, project_name: str, *, default: bool) -> contract.Gateway:
    hosts = [each.hostname for each in gateway.running or gateway.replicas if each.hostname]
    return {
        "id": gateway.id,
        "name": gateway.name,
        "project_name": project_name,
        "configuration": _certified(_placed(orjson.loads(shown(gateway))["configuration"])),
        "created_at": iso(gateway.created_at),
        "status": _status(gateway),
        "status_message": gateway.message or None,
        "hostname": hosts[0] if hosts else None,
        "wildcard_domain": gateway.domain or None,
        "default": default,
        "replicas": [_replica(each, gateway) for each in gateway.replicas],
        "backend": gateway.backend or "remote",
        "region": gateway.region or gateway.fleet,
        "ip_address": None,
        "instance_id": None,
    }


def _placed(configuration: contract.Configuration) -> contract.Configuration:
    """The configuration with a backend and a region, which clients of this line require: for hosts, `remote` and the
    fleet."""
    if fleet := configuration.get("fleet"):
        return {**configuration, "backend": "remote", "region": fleet}
    return configuration


def _certified(configuration: contract.Configuration) -> contract.Configuration:
    """The configuration with a type of certificate that clients know. They can't parse a gateway with any other, so a
    given certificate is shown as a requested one."""
    if (configuration.get("certificate") or {}).get("type") == GIVEN:
        return {**configuration, "certificate": {"type": LETS_ENCRYPT}}
    return configuration


def _status(gateway: Gateway) -> contract.GatewayStatus:
    """The status. Clients know none for a gateway that is being deleted, so it keeps the one that it had."""
    status: contract.GatewayStatus | Literal["deleting", "deleted"] = gateway.status.value
    if status == "deleting" or status == "deleted":  # noqa: PLR1714 - the type checker follows no `in`
        return "submitted" if gateway.running_at is None else "running"
    return status


def _replica(replica: GatewayReplica, gateway: Gateway) -> contract.GatewayReplica:
    return {
        "hostname": replica.hostname or None,
        "replica_num": replica.num,
        "backend": gateway.backend or "remote",
        "region": gateway.region or gateway.fleet,
        "created_at": iso(replica.created_at),
        "status": replica.state.value,
        "status_message": replica.message or None,
        "instance_name": replica.instance_name,
    }


def certificate_json(host: HostCertificate) -> contract.HostCertificate:
    return {
        "host": host.host,
        "state": host.state,
        "until": None if host.until is None else iso(host.until),
        "message": host.message or None,
        "next_attempt_at": None if host.next_attempt_at is None else iso(host.next_attempt_at),
    }


def gateway_plan_json(plan: GatewayPlan, project_name: str, user_name: str, *, default: bool) -> contract.GatewayPlan:
    spec: contract.GatewaySpec = orjson.loads(plan.spec)
    return {
        "project_name": project_name,
        "user": user_name,
        "spec": spec,
        "effective_spec": {**spec, "configuration": _placed(spec["configuration"])},
        "current_resource": None if plan.current is None else gateway_json(plan.current, project_name, default=default),
        "action": plan.action,
        "changes": list(plan.changes),
        "remarks": list(plan.remarks),
    }
