"""Fleets, their instances, and offers."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from chalicelib.contract.instances import HealthStatus, InstanceReason, InstanceStatus
from chalicelib.contract.offers import Availability
from chalicelib.contract.values import Configuration, Date, Id


class V1Gpus(TypedDict):
    """GPUs of one kind."""

    name: str
    count: int
    memory_gb: float


class V1Resources(TypedDict):
    """What a machine has."""

    cpus: int
    cpu_arch: str | None
    memory_gb: float
    disk_gb: float
    gpus: list[V1Gpus]


class V1Claim(TypedDict):
    """What a job has of a machine."""

    run_id: Id
    job_id: Id
    replica: int
    node: int
    blocks: list[int]
    """Which of its blocks, from 0."""


class V1Instance(TypedDict):
    """A machine of a fleet."""

    id: Id
    name: str
    project: str
    url: str
    fleet: str | None
    num: int
    status: InstanceStatus
    reason: InstanceReason | None
    why: str | None
    unreachable: bool
    health: HealthStatus
    health_why: str | None
    hostname: str | None
    backend: str
    region: str
    zone: str | None
    type: str
    resources: V1Resources
    spot: bool
    price_per_hour_usd: float
    blocks: int
    """How many jobs can share it."""
    busy_blocks: int
    claims: list[V1Claim]
    """The jobs that are on it."""
    created_at: Date
    started_at: Date | None
    """When its agent reported first."""
    idle_since: Date | None
    finished_at: Date | None


class V1InstancePage(TypedDict):
    items: list[V1Instance]
    next: str | None


class V1Trouble(TypedDict):
    since: Date
    status: Literal["warning", "failure"]
    why: str


class V1HealthCheck(TypedDict):
    """A machine's health as its agent reported it."""

    at: Date
    status: HealthStatus
    troubles: list[V1Trouble]


class V1Health(TypedDict):
    items: list[V1HealthCheck]
    """Newest first."""


class V1FleetSummary(TypedDict):
    """A fleet in a list."""

    id: Id
    name: str
    project: str
    url: str
    status: Literal["submitted", "active", "terminating", "terminated", "failed"]
    why: str | None
    revision: int
    """How often its spec was changed."""
    instance_count: int
    gpus: int
    """Of its machines together."""
    busy_gpus: float
    """Those that jobs have: a machine's GPUs are spread evenly over its blocks."""
    price_per_hour_usd: float
    """Of its machines together."""
    created_at: Date


class V1Fleet(V1FleetSummary):
    spec: Configuration
    instances: list[V1Instance]


class V1FleetPage(TypedDict):
    items: list[V1FleetSummary]
    next: str | None


class V1FleetPlan(TypedDict):
    """What applying a fleet's configuration would do. Nothing was changed."""

    action: Literal["none", "create", "change"]
    """`none`: everything is so already."""
    machines: V1PlannedMachines | None
    """Null for a fleet of hosts of one's own."""


class V1PlannedMachines(TypedDict):
    """Machines that a fleet may have, and what one of them costs."""

    at_once: int
    """How many there are without waiting for a run."""
    most: int | None
    """Null: as many as runs need."""
    offers: int
    """How many could be taken."""
    cheapest_per_hour_usd: float | None
    dearest_per_hour_usd: float | None
    best: list[V1Offer]
    """The first five that would be tried."""


class V1Offer(TypedDict):
    """A machine that could be had."""

    backend: str
    region: str
    type: str
    resources: V1Resources
    spot: bool
    price_per_hour_usd: float
    availability: Availability


class V1Offers(TypedDict):
    items: list[V1Offer]
    """The best, in the order in which a run would take them."""
    total: int
