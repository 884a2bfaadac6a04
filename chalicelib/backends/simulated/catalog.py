"""What the simulated cloud sells: a dozen types in three regions, on demand and spot, at fixed prices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chalicelib.backends.simulated import WIRE_NAME
from chalicelib.domain.offers import (
    CONTAINER,
    Availability,
    Disk,
    Gpu,
    InstanceType,
    Interconnect,
    Offer,
    OfferTerms,
    Resources,
)

GIB = 1024
VOLUME_PRICE = 0.08  # dollars a month for a GiB
SPOT_SHARE = 0.35  # of the on-demand price

# Region → price factor and zones.
REGIONS: dict[str, tuple[float, tuple[str, ...]]] = {
    "sim-east": (1.0, ("sim-east-a", "sim-east-b")),
    "sim-north": (0.92, ("sim-north-a",)),
    "sim-west": (1.1, ("sim-west-a", "sim-west-b")),
}

CONTAINERS = "sim-pods"  # the region that sells containers in place of machines, where the cloud has it
PLACES = {**REGIONS, CONTAINERS: (0.8, ("sim-pods-a",))}
GRANTS = (
    "multinode",
    "network",
    "nodes_login",
    "nodes_volumes",
    "shm_size",
    "user",
    "volumes",
)  # what its containers can have

MULTI_ATTACH = frozenset({"sim-north"})  # where several machines may have one volume

# Name, CPUs, memory in GiB, GPUs (count, name, GiB, vendor), architecture, dollars an hour.
_GPUS = tuple[int, str, int, str]
_TYPES: tuple[tuple[str, int, int, _GPUS | None, str, float], ...] = (
    ("sim.2cpu", 2, 8, None, "x86", 0.05),
    ("sim.2cpu-x4", 2, 8, None, "x86", 0.06),
    ("sim.4cpu", 4, 16, None, "x86", 0.10),
    ("sim.4cpu-arm", 4, 16, None, "arm", 0.08),
    ("sim.8cpu", 8, 32, None, "x86", 0.20),
    ("sim.32cpu", 32, 128, None, "x86", 0.80),
    ("sim.t4", 8, 32, (1, "T4", 16, "nvidia"), "x86", 0.50),
    ("sim.l4", 8, 32, (1, "L4", 24, "nvidia"), "x86", 0.70),
    ("sim.a10x4", 48, 192, (4, "A10", 24, "nvidia"), "x86", 4.00),
    ("sim.a100", 12, 96, (1, "A100", 80, "nvidia"), "x86", 2.20),
    ("sim.a100x8", 96, 768, (8, "A100", 80, "nvidia"), "x86", 17.50),
    ("sim.h100", 24, 192, (1, "H100", 80, "nvidia"), "x86", 3.50),
    ("sim.h100x8", 192, 1536, (8, "H100", 80, "nvidia"), "x86", 28.00),
    ("sim.mi300x8", 192, 1536, (8, "MI300X", 192, "amd"), "x86", 24.00),
)

TYPES = {row[0]: row for row in _TYPES}
BUNDLES = {"sim.2cpu-x4": 4}  # machines that are bought together, where the cloud has such


def resources(name: str, *, spot: bool) -> Resources:
    _, cpus, memory, gpus, arch, _ = TYPES[name]
    devices = () if gpus is None else (Gpu(name=gpus[1], memory_mib=gpus[2] * GIB, vendor=gpus[3]),) * gpus[0]
    return Resources(
        cpus=cpus,
        memory_mib=memory * GIB,
        gpus=devices,
        spot=spot,
        disk=Disk(size_mib=100 * GIB),
        cpu_arch=arch,
        description="simulated",
    )


def price(region: str, name: str, *, spot: bool) -> float:
    return round(TYPES[name][5] * PLACES[region][0] * (SPOT_SHARE if spot else 1.0), 6)


def volume_price(region: str, size_gib: int) -> float:
    return round(VOLUME_PRICE * size_gib * PLACES[region][0], 6)


def _bundle(size: int) -> OfferTerms:
    network = Interconnect(name="simulated", rank_variable="SIM_RANK", addresses_variable="SIM_ADDRESSES")
    return OfferTerms(bundle=size, no_volumes="no disk can be attached to one of several", interconnect=network)


def offers(backend: str = WIRE_NAME, *, containers: bool = False, bundles: bool = False) -> Iterator[Offer]:
    """As the cloud called `backend` sells them."""
    for region, (_, zones) in (PLACES if containers else REGIONS).items():
        pods: dict[str, Any] = {"instance_runtime": CONTAINER, "terms": OfferTerms(grants=GRANTS)}
        for name in TYPES:
            size = BUNDLES.get(name, 1)
            if size > 1 and (region == CONTAINERS or not bundles):
                continue
            bundle: dict[str, Any] = {"terms": _bundle(size)} if size > 1 else {}
            sold_as = pods if region == CONTAINERS else bundle
            for spot in (False, True):
                yield Offer(
                    backend=backend,
                    instance=InstanceType(name=name, resources=resources(name, spot=spot)),
                    region=region,
                    price=price(region, name, spot=spot),
                    availability=Availability.available,
                    availability_zones=zones,
                    **sold_as,
                )
