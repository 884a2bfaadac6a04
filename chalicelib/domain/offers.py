"""Offers: what a backend, or an existing instance, could provide to a job, and at what price.

Field names are the wire's, because offers are sent to clients unchanged. Prices are dollars an hour for the whole
instance; memory and disk are MiB.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field

from chalicelib.domain.bounds import Blocks, Cores, Dollars, Mebibytes
from chalicelib.domain.noun import Value


class Availability(StrEnum):
    unknown = "unknown"
    available = "available"
    not_available = "not_available"
    no_quota = "no_quota"
    no_balance = "no_balance"
    idle = "idle"
    busy = "busy"

    @property
    def usable(self) -> bool:
        return self in (Availability.unknown, Availability.available, Availability.idle)


class Gpu(Value):
    name: str
    memory_mib: Mebibytes
    vendor: str | None = None  # nvidia, amd, google, intel, tenstorrent


class Disk(Value):
    size_mib: Mebibytes


class Resources(Value):
    """What a machine has; `gpus` has one entry per device."""

    cpus: Cores
    memory_mib: Mebibytes
    gpus: tuple[Gpu, ...] = ()
    spot: bool = False
    disk: Disk = Disk.model_construct(size_mib=102_400)  # unchecked, so that importing this builds no model
    cpu_arch: str | None = None  # x86, arm
    description: str = ""


class InstanceType(Value):
    name: str
    resources: Resources


class Offer(Value):
    backend: str
    instance: InstanceType
    region: str
    price: Dollars
    backend_data: dict[str, Any] = Field(default_factory=dict)  # a plain default would be copied deeply
    availability: Availability = Availability.unknown
    availability_zones: tuple[str, ...] | None = None
    instance_runtime: str = "shim"
    blocks: Blocks = 1
    total_blocks: Blocks = 1

    @property
    def key(self) -> str:
        """Identifies a tried offer: backend, region, type and market."""
        market = "spot" if self.instance.resources.spot else "on-demand"
        return f"{self.backend}/{self.region}/{self.instance.name}/{market}"
