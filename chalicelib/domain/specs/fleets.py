"""Fleet configurations and the fleet spec that carries one."""

from __future__ import annotations

from typing import Any, Literal

from chalicelib.domain.noun import Value
from chalicelib.domain.specs.profiles import Profile, ProfileRetry
from chalicelib.domain.specs.resources import ResourcesSpec


class FleetNodesSpec(Value):
    min: int
    target: int
    max: int | None = None


class FleetConfiguration(Value):
    type: Literal["fleet"] = "fleet"
    name: str | None = None
    placement: Literal["any", "cluster"] | None = None
    blocks: Literal["auto"] | int = 1
    nodes: FleetNodesSpec | None = None
    reservation: str | None = None
    resources: ResourcesSpec | None = None
    backends: tuple[str, ...] | None = None
    regions: tuple[str, ...] | None = None
    availability_zones: tuple[str, ...] | None = None
    instance_types: tuple[str, ...] | None = None
    spot_policy: Literal["spot", "on-demand", "auto"] | None = None
    retry: ProfileRetry | bool | None = None
    max_price: float | None = None
    idle_duration: int | None = None
    tags: dict[str, str] | None = None
    backend_options: tuple[Any, ...] | None = None
    ssh_config: Any | None = None
    env: dict[str, str] = {}


class FleetSpec(Value):
    configuration: FleetConfiguration
    configuration_path: str | None = None
    profile: Profile = Profile()
    autocreated: bool = False
