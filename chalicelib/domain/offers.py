"""Offers: what a backend, or an existing instance, could provide to a job, and at what price.

Field names are the wire's, because offers are sent to clients unchanged. Prices are dollars an hour for the whole
instance; memory and disk are MiB.

What decisions must know of an offer besides are its `terms`. They never reach clients. What only its own backend reads,
when it creates the machine, is among them in storage and `backend_data` here.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from math import ceil, inf
from typing import Any

from pydantic import AliasChoices, ConfigDict, Field

from chalicelib.domain.bounds import Amount, Blocks, Cores, Dollars, Gibibytes, Instant, Mebibytes
from chalicelib.domain.noun import Value

MACHINE, CONTAINER = "shim", "runner"  # what is sold, in the wire's words for its `instance_runtime`


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


class DiskTerms(Value):
    """Of a disk that is made to order."""

    most_gib: Gibibytes
    gib_hour: Dollars  # the price of a GiB an hour; the price of the offer includes the disk that it shows


class ClusterLimit(Value):
    """How many machines of this offer may be in one cluster."""

    most: Amount
    why: str
    hint: str


class Sidecar(Value):
    """A container that runs beside such a job, on the machine itself: privileged, with its network and all GPUs."""

    image: str
    entrypoint: str = ""  # the image's unless given
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    mounts: dict[str, str] = {}  # folders of the machine, and where the container has them
    installs: bool = False  # it ends before the job starts; others end after the job
    ready: str = ""  # what it prints before the job can start


class Interconnect(Value):
    """The fast network between the machines of a cluster, and what a job on several of them needs to use it."""

    name: str  # as people know it: InfiniBand
    env: dict[str, str] = {}  # what NCCL and the like must know; what a user sets wins
    folders: tuple[str, ...] = ()  # of the machine: libraries and topology files, which containers see, read-only
    devices: tuple[str, ...] = ()  # likewise, to use
    rank_variable: str = ""  # the variable for the node's rank,
    addresses_variable: str = ""  # and the one for the addresses of all nodes, with commas
    writable: tuple[str, ...] = ()  # folders of the machine, to write in
    libraries: str = ""  # the first folder in which programs look for shared libraries
    sidecars: tuple[Sidecar, ...] = ()  # started in this order


class OfferTerms(Value):
    """Stored as `backend_data`, where earlier versions look for them, beside what is private to the backend."""

    model_config = ConfigDict(extra="allow")

    reservation: str = ""  # the reserved capacity that its machine uses; empty if it is bought like any other
    starts_at: Instant | None = None  # when that reserved capacity is there at last; None: it is
    ends_at: Instant | None = None  # when its provider takes the machine back; None: not by any calendar. It may be put
    # off, and who has bought the machine has the time of that day
    disk: DiskTerms | None = None
    no_volumes: str = ""  # why no volume can be attached to its machines; empty if they can be
    no_volumes_in_clusters: str = ""  # likewise of its machines in a cluster, where volumes have zones
    cluster: ClusterLimit | None = None
    interconnect: Interconnect | None = None
    bundle: Amount = 0  # how many machines are bought at once, and end together (`bundles`); they can't have volumes.
    # 0: each by itself
    grants: tuple[str, ...] = ()  # what its containers can have beyond what all can (`planning/matching/containers.py`)
    listing: str = ""  # of a market: the machine that this offer is, which can be bought once
    order: str = ""  # of a provider that gives what is requested and no more: what that was. Offers of one type differ
    prices: str = ""  # where its price is from, if not from the provider


NO_TERMS = OfferTerms.model_construct()


class Offer(Value):
    # Under the stored name wherever it is written: each version reads what its neighbours write.
    model_config = ConfigDict(serialize_by_alias=True)

    backend: str
    instance: InstanceType
    region: str
    price: Dollars
    terms: OfferTerms = Field(
        default=NO_TERMS, validation_alias=AliasChoices("backend_data", "terms"), serialization_alias="backend_data"
    )
    availability: Availability = Availability.unknown
    availability_zones: tuple[str, ...] | None = None
    instance_runtime: str = MACHINE
    blocks: Blocks = 1
    total_blocks: Blocks = 1

    @property
    def is_container(self) -> bool:
        """Is it a container, which is created for one job and ends with it?"""
        return self.instance_runtime == CONTAINER

    @property
    def grants(self) -> frozenset[str] | None:
        """What its container can have beyond what all can; None: it is a machine, which can have anything."""
        return frozenset(self.terms.grants) if self.is_container else None

    @property
    def key(self) -> str:
        """Identifies a tried offer: backend, region, type and market, or reservation; of one machine, its listing; of
        what is made to order, the order."""
        market = self.reservation or ("spot" if self.instance.resources.spot else "on-demand")
        one = "".join(f"/{each}" for each in (self.terms.listing, self.terms.order) if each)
        return f"{self.backend}/{self.region}/{self.instance.name}/{market}{one}"

    @property
    def reservation(self) -> str:
        return self.terms.reservation

    @property
    def backend_data(self) -> Mapping[str, Any]:
        """What its backend put there for itself."""
        return self.terms.model_extra or {}

    @property
    def bundle(self) -> int:
        """How many machines are bought at once."""
        return self.terms.bundle or 1

    @property
    def most_nodes(self) -> float:
        """How many of its machines may be in one cluster."""
        if self.terms.listing:
            return 1
        return inf if self.terms.cluster is None else self.terms.cluster.most

    @property
    def elastic(self) -> bool:
        """Is its disk made as large as one wants?"""
        return self.terms.disk is not None

    @property
    def most_disk(self) -> float:
        """The GiB of the largest that can be made; 0: it is what it is."""
        return 0.0 if self.terms.disk is None else self.terms.disk.most_gib

    def sized(self, gib: float) -> Offer:
        """With the smallest disk of at least this size; as it is, if it has that, or can't."""
        if not self._grows(gib):
            return self
        has = self.instance.resources.with_(disk=Disk(size_mib=ceil(gib) * 1024))
        return self.with_(instance=self.instance.with_(resources=has), price=self.price_sized(gib))

    def price_sized(self, gib: float) -> float:
        """What it costs then."""
        if self.terms.disk is None or not self._grows(gib):
            return self.price
        more = ceil(gib) - self.instance.resources.disk.size_mib / 1024
        return round(self.price + more * self.terms.disk.gib_hour, 6)

    def _grows(self, gib: float) -> bool:
        return self.instance.resources.disk.size_mib / 1024 < gib <= self.most_disk
