"""Profile parameters: where a run may go, for how long, at what price; inline on runs, or in `profiles.yml`."""

from __future__ import annotations

from typing import Any, Literal

from chalicelib.domain.noun import Value


class ProfileRetry(Value):
    on_events: tuple[Literal["no-capacity", "interruption", "error"], ...] | None = None
    duration: int | None = None  # seconds


class UtilizationPolicy(Value):
    min_gpu_utilization: int
    time_window: int


class Schedule(Value):
    cron: str | tuple[str, ...]


class ProfileParams(Value):
    backends: tuple[str, ...] | None = None
    regions: tuple[str, ...] | None = None
    availability_zones: tuple[str, ...] | None = None
    instance_types: tuple[str, ...] | None = None
    reservation: str | None = None
    spot_policy: Literal["spot", "on-demand", "auto"] | None = None
    retry: ProfileRetry | bool | None = None
    max_duration: Literal["off"] | int | None = None
    stop_duration: Literal["off"] | int | None = None
    max_price: float | None = None
    creation_policy: Literal["reuse", "reuse-or-create"] | None = None
    idle_duration: int | None = None  # -1: off
    utilization_policy: UtilizationPolicy | None = None
    startup_order: Literal["any", "master-first", "workers-first"] | None = None
    stop_criteria: Literal["all-done", "master-done"] | None = None
    schedule: Schedule | None = None
    fleets: tuple[Any, ...] | None = None
    instances: tuple[Any, ...] | None = None
    tags: dict[str, str] | None = None
    backend_options: tuple[Any, ...] | None = None


class Profile(ProfileParams):
    name: str = ""
    default: bool = False
