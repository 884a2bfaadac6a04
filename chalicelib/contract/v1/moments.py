"""What a project looked like at an instant."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from chalicelib.contract.v1.history import V1Target
from chalicelib.contract.values import Date, Id


class V1JobThen(TypedDict):
    name: str
    status: str
    reason: str | None
    instance: str | None
    """The name of its machine, while it had one."""
    price_per_hour_usd: float


class V1RunThen(TypedDict):
    id: Id
    name: str
    user: str
    status: str
    reason: str | None
    submitted_at: Date
    finished_at: Date | None
    price_per_hour_usd: float
    jobs: list[V1JobThen]


class V1FleetThen(TypedDict):
    id: Id
    name: str
    status: str


class V1InstanceThen(TypedDict):
    id: Id
    name: str
    fleet: str | None
    status: str
    health: str
    unreachable: bool
    backend: str
    """Empty for a host that had only just joined."""
    region: str
    type: str
    spot: bool
    gpus: int
    gpu: str | None
    price_per_hour_usd: float
    created_at: Date


class V1State(TypedDict):
    """A project's runs, fleets and machines. Runs that had ended are there for a day."""

    at: Date
    final: bool
    """False: it is so new that it may still change a little."""
    runs: list[V1RunThen]
    fleets: list[V1FleetThen]
    instances: list[V1InstanceThen]


class V1Mark(TypedDict):
    """Something that happened."""

    at: Date
    kind: Literal["failure", "interruption", "deployment", "scaling"]
    target: V1Target
    text: str


class V1Marks(TypedDict):
    items: list[V1Mark]
    """Oldest first."""
    next_until: Date | None
    """Where it is set, earlier ones weren't looked for: ask again with this as `until`."""
