"""Gateways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from chalicelib.api.wire.v1.specs import configuration_of
from chalicelib.domain.gateways import Gateway, GatewayReplica
from chalicelib.domain.instants import iso
from chalicelib.domain.specs.gateways import GatewaySpec
from chalicelib.usecases.services.certificates import HostCertificate
from chalicelib.usecases.services.gateway_plans import shown

if TYPE_CHECKING:
    from chalicelib import contract


def gateway_path(project_name: str, name: str) -> str:
    return f"/api/v1/projects/{project_name}/gateways/{name}"


def gateway_summary_json(
    gateway: Gateway, project_name: str, certificates: Sequence[HostCertificate], *, default: bool
) -> contract.V1GatewaySummary:
    hosts = [each.hostname for each in gateway.running or gateway.replicas if each.hostname]
    return {
        "id": gateway.id,
        "name": gateway.name,
        "project": project_name,
        "url": gateway_path(project_name, gateway.name),
        "status": gateway.status.value,
        "why": gateway.message or None,
        "default": default,
        "domain": gateway.domain or None,
        "hostname": hosts[0] if hosts else None,
        "backend": gateway.backend or None,
        "region": gateway.region or None,
        "fleet": gateway.fleet or None,
        "certificates": [_certificate_json(each) for each in certificates],
        "created_at": iso(gateway.created_at),
    }


def gateway_json(
    gateway: Gateway, project_name: str, certificates: Sequence[HostCertificate], *, default: bool
) -> contract.V1Gateway:
    return {
        **gateway_summary_json(gateway, project_name, certificates, default=default),
        "spec": gateway_spec_json(gateway),
        "replicas": [_replica_json(each) for each in gateway.replicas],
    }


def gateway_spec_json(gateway: Gateway) -> contract.Configuration:
    return configuration_of(GatewaySpec, shown(gateway), env=True)


def _replica_json(replica: GatewayReplica) -> contract.V1GatewayReplica:
    return {
        "num": replica.num,
        "status": replica.state.value,
        "why": replica.message or None,
        "hostname": replica.hostname or None,
        "instance": replica.instance_name,
        "created_at": iso(replica.created_at),
    }


def _certificate_json(host: HostCertificate) -> contract.V1Certificate:
    return {
        "host": host.host,
        "status": host.state,
        "why": host.message or None,
        "expires_at": None if host.until is None else iso(host.until),
        "next_attempt_at": None if host.next_attempt_at is None else iso(host.next_attempt_at),
    }
