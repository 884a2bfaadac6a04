"""Gateways."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from chalicelib.contract.values import Configuration, Date, Id

GatewayStatus = Literal["submitted", "provisioning", "running", "failed"]
GatewayReplicaStatus = Literal["submitted", "provisioning", "running", "terminating"]


class GatewayReplica(TypedDict):
    """A machine that takes the requests of a gateway's services."""

    hostname: str | None
    replica_num: int
    backend: str
    region: str
    created_at: Date
    status: GatewayReplicaStatus
    status_message: str | None
    instance_name: str


class Gateway(TypedDict):
    """A gateway, its domain, and the machines that carry its replicas."""

    id: Id
    name: str
    project_name: str
    configuration: Configuration
    created_at: Date
    status: GatewayStatus
    """Of one that is being deleted, the last that it had."""
    status_message: str | None
    hostname: str | None
    wildcard_domain: str | None
    default: bool
    replicas: list[GatewayReplica]
    backend: str
    """`remote`: it runs on hosts of the fleet that `region` names."""
    region: str
    ip_address: None
    instance_id: None


class HostCertificate(TypedDict):
    """The certificate of one host of a gateway's services."""

    host: str
    state: Literal["issued", "requested", "failed", "expired", "given"]
    until: Date | None
    message: str | None
    """Why it can't be issued or renewed."""
    next_attempt_at: Date | None


class GatewayWithCertificates(Gateway):
    """A gateway, with the certificates of its services' hosts."""

    certificates: list[HostCertificate]
