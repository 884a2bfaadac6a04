"""Machines that could be bought, what they have, and how old the lists of them are."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import Required, TypedDict

from chalicelib.contract.values import Date

Availability = Literal["unknown", "available", "not_available", "no_quota", "no_balance", "idle", "busy"]


class Gpu(TypedDict):
    """One device."""

    name: str
    memory_mib: int
    vendor: str | None


class Disk(TypedDict):
    size_mib: int


class Resources(TypedDict):
    """What a machine has."""

    cpus: int
    memory_mib: int
    gpus: list[Gpu]
    """An entry for each device."""
    spot: bool
    disk: Disk
    cpu_arch: str | None
    description: str


class InstanceType(TypedDict):
    """A machine type: its name at the backend, and its resources."""

    name: str
    resources: Resources


class Offer(TypedDict):
    """An available machine."""

    backend_data: dict[str, Any]
    """Always empty: what a backend notes there is its own."""
    backend: str
    instance: InstanceType
    region: str
    price: float
    """Dollars an hour, for the whole machine."""
    availability: Availability
    availability_zones: list[str] | None
    instance_runtime: Literal["shim", "runner"]
    """`shim`: a machine; `runner`: a container, which ends with its job."""
    blocks: int
    total_blocks: int


class OffersAge(TypedDict):
    """How old a backend's offers are."""

    backend: str
    taken_at: Date | None
    error: str | None
    """Why the last refresh failed."""
    prices: str | None
    """Where prices are from, if not from the provider."""
    outlived: str | None
    """For how long the offers are older than they should be."""


class OffersAsked(TypedDict):
    """What a backend without a list of offers was asked for."""

    backend: str
    request: str
    """In words."""
    asked_at: Date
    seconds: float | None
    offers: int
    error: str | None
    lacking: str | None
    """What the backend lacks of what was requested."""


class IntRange(TypedDict):
    min: int
    max: int


class FloatRange(TypedDict):
    min: float
    max: float


class GpuGroup(TypedDict, total=False):
    """One kind of GPU. `backends` and `regions` are lists, or `backend` and `region` the one that it is grouped by."""

    name: Required[str]
    memory_mib: Required[int]
    vendor: Required[str]
    availability: Required[list[Availability]]
    spot: Required[list[Literal["spot", "on-demand"]]]
    count: Required[IntRange]
    price: Required[FloatRange]
    """Dollars an hour for one GPU."""
    offer_price: Required[FloatRange]
    """Dollars an hour for the whole machine."""
    backends: list[str]
    backend: str
    regions: list[str]
    region: str


class GpuList(TypedDict):
    gpus: list[GpuGroup]
    offers_as_of: list[OffersAge]
    offers_asked: list[OffersAsked]
