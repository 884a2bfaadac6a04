"""Gateways."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from chalicelib.contract.gateways import GatewayReplicaStatus
from chalicelib.contract.values import Configuration, Date, Id


class V1GatewayReplica(TypedDict):
    num: int
    status: GatewayReplicaStatus
    why: str | None
    hostname: str | None
    instance: str
    created_at: Date


class V1Certificate(TypedDict):
    """That of one host of the gateway's services."""

    host: str
    status: Literal["issued", "requested", "failed", "expired", "given"]
    why: str | None
    expires_at: Date | None
    next_attempt_at: Date | None


class V1GatewaySummary(TypedDict):
    """A gateway in a list."""

    id: Id
    name: str
    project: str
    url: str
    status: Literal["submitted", "provisioning", "running", "failed", "deleting", "deleted"]
    why: str | None
    default: bool
    domain: str | None
    hostname: str | None
    backend: str | None
    """Null: it is on hosts of `fleet`."""
    region: str | None
    fleet: str | None
    certificates: list[V1Certificate]
    created_at: Date


class V1Gateway(V1GatewaySummary):
    spec: Configuration
    replicas: list[V1GatewayReplica]


class V1GatewayPage(TypedDict):
    items: list[V1GatewaySummary]
    next: str | None
