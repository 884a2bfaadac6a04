"""Offers: what a backend, or an existing instance, could provide to a job, and at what price.

Field names are the wire's, because offers are sent to clients unchanged. Prices are dollars an hour for the whole
instance; memory and disk are MiB.

Some of what a backend says of an offer is in `backend_data` under names that all backends share: the `reservation` that
its machine is launched into, when that `ends_at`, and, where a disk is made to order, its `disk`: the largest
(`most_gib`), and the price of a GiB an hour. The price of the offer includes the disk that it shows. `no_volumes` says
why its machines can have none. `cluster`: how many of its machines may be in one cluster (`most`), `why`, and a
`hint`, if that is limited.
"""

from __future__ import annotations

from enum import StrEnum
from math import ceil, inf
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
        """Identifies a tried offer: backend, region, type and market, or reservation."""
        market = self.reservation or ("spot" if self.instance.resources.spot else "on-demand")
        return f"{self.backend}/{self.region}/{self.instance.name}/{market}"

    @property
    def reservation(self) -> str:
        """The reserved capacity that its machine uses; empty if it is bought like any other."""
        return str(self.backend_data.get("reservation", ""))

    @property
    def ends_at(self) -> int | None:
        """When its provider takes the machine back, in microseconds since 1970; None: not by any calendar. It may be
        put off, and who has bought the machine has the time of that day."""
        return self.backend_data.get("ends_at")

    @property
    def no_volumes(self) -> str:
        """Why no volume can be attached to its machines; empty if they can be."""
        return str(self.backend_data.get("no_volumes", ""))

    @property
    def most_nodes(self) -> float:
        """How many of its machines may be in one cluster."""
        return float(self.backend_data["cluster"]["most"]) if "cluster" in self.backend_data else inf

    @property
    def elastic(self) -> bool:
        """Is its disk made as large as one wants?"""
        return "disk" in self.backend_data

    @property
    def most_disk(self) -> float:
        """The GiB of the largest that can be made; 0: it is what it is."""
        return float(self.backend_data["disk"]["most_gib"]) if self.elastic else 0.0

    def sized(self, gib: float) -> Offer:
        """With the smallest disk of at least this size; as it is, if it has that, or can't."""
        if not self._grows(gib):
            return self
        has = self.instance.resources.with_(disk=Disk(size_mib=ceil(gib) * 1024))
        return self.with_(instance=self.instance.with_(resources=has), price=self.price_sized(gib))

    def price_sized(self, gib: float) -> float:
        """What it costs then."""
        if not self._grows(gib):
            return self.price
        more = ceil(gib) - self.instance.resources.disk.size_mib / 1024
        return round(self.price + more * float(self.backend_data["disk"]["gib_hour"]), 6)

    def _grows(self, gib: float) -> bool:
        return self.instance.resources.disk.size_mib / 1024 < gib <= self.most_disk
