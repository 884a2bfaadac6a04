"""Machines of fleets, and their health."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from chalicelib.contract.offers import InstanceType
from chalicelib.contract.values import Date, Id

InstanceStatus = Literal["pending", "provisioning", "idle", "busy", "terminating", "terminated"]
HealthStatus = Literal["healthy", "warning", "failure"]
InstanceReason = Literal[
    "terminated_by_user",
    "idle_timeout",
    "provisioning_timeout",
    "error",
    "job_finished",
    "unreachable",
    "no_offers",
    "master_failed",
    "max_instances_limit",
    "fleet_spec_mismatch",
    "no_balance",
]


class Instance(TypedDict):
    """A machine of a fleet."""

    id: Id
    project_name: str
    backend: str
    instance_type: InstanceType
    name: str
    fleet_id: Id | None
    fleet_name: str | None
    instance_num: int
    job_name: str | None
    hostname: str | None
    status: InstanceStatus
    unreachable: bool
    health_status: HealthStatus
    health_message: str | None
    termination_reason: InstanceReason | None
    termination_reason_message: str | None
    created: Date
    finished_at: Date | None
    region: str
    availability_zone: str | None
    price: float
    """Dollars an hour."""
    total_blocks: int
    busy_blocks: int
    gpu_driver: None


class HealthEvent(TypedDict):
    timestamp: Date
    status: Literal["warning", "failure"]
    message: str


class HealthCheck(TypedDict):
    """A machine's health as its agent reported it."""

    collected_at: Date
    status: HealthStatus
    events: list[HealthEvent]


class HealthChecks(TypedDict):
    health_checks: list[HealthCheck]
