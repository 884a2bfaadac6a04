"""What machines and volumes cost over time."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from chalicelib.contract.values import Date


class V1CostStep(TypedDict):
    """A day, or an hour."""

    at: Date
    """Its beginning."""
    usd: float
    idle_usd: float
    """Those of the dollars for which no job had the machines."""
    gpu_hours: float
    idle_gpu_hours: float


class V1CostSeries(TypedDict):
    """What is grouped under one name."""

    name: str | None
    """Null: no user, for idle time; or no GPU. Volumes are together in the place of a fleet, as `(volumes)`."""
    usd: float
    idle_usd: float
    gpu_hours: float
    idle_gpu_hours: float
    steps: list[V1CostStep]
    """Without those in which it has nothing."""


class V1CostsOfMonth(TypedDict):
    """This month, in UTC."""

    since: Date
    until: Date
    """The beginning of the next one."""
    usd: float
    """Until now."""
    forecast_usd: float
    """At its end, if the rest costs what the last seven days did."""


class V1Costs(TypedDict):
    since: Date
    until: Date
    by: Literal["user", "project", "fleet", "gpu"]
    step: Literal["day", "hour"]
    usd: float
    idle_usd: float
    gpu_hours: float
    idle_gpu_hours: float
    items: list[V1CostSeries]
    """The most expensive first."""
    month: V1CostsOfMonth
    budget_usd_per_day: float | None
    """The project's quota of dollars a day, if it has one."""
    unpriced_volumes: int
    """Volumes that are there now and whose price isn't known, so their cost is in none of these figures."""
