"""The sizes of machines that are offered, by their names: Azure's own list counts GPUs and doesn't say which.

Of those with InfiniBand, NCCL and the like must know some things. The image describes the topology of some sizes in a
file, without which NCCL is a fifth slower; of newer ones it has none.

Left out are sizes with shares of a GPU, and those that the image has no driver for: A10 (NV v5), AMD's cards, and ARM.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from chalicelib.backends.azure.places import Body, region_named
from chalicelib.backends.kit.gpus import gpu
from chalicelib.backends.kit.tables import table
from chalicelib.domain.offers import Gpu, Interconnect

FOLDER = "/opt/microsoft"  # of the files about topologies
_TABLE = table("azure/sizes.toml")
_CARDS = [(re.compile(pattern), str(name), int(gib) * 1024) for pattern, (name, gib) in _TABLE["cards"].items()]
_WITHOUT_GPU = re.compile(_TABLE["without"])


@dataclass(frozen=True)
class AzureSize:
    """One size in one region."""

    name: str
    family: str  # the name of its quota
    vcpus: int
    memory_mib: int
    zones: tuple[str, ...]  # their numbers; none: it is there, in no zone of its own
    gpus: tuple[Gpu, ...] = ()
    spot: bool = False
    rdma: bool = False  # has InfiniBand
    accelerated: bool = False


def size_of(body: Body, region: str) -> AzureSize | None:
    """None for what isn't offered: another kind of machine, or one that this subscription can't have there."""
    name = str(body.get("name", ""))
    card = next(((card, memory) for pattern, card, memory in _CARDS if pattern.fullmatch(name)), None)
    if body.get("resourceType") != "virtualMachines" or (card is None and not _WITHOUT_GPU.fullmatch(name)):
        return None
    can = {str(each["name"]): str(each["value"]) for each in body.get("capabilities") or ()}
    if can.get("CpuArchitectureType", "x64") != "x64" or "V2" not in can.get("HyperVGenerations", "V1,V2"):
        return None
    zones = _zones(body, region)
    if zones is None:
        return None
    found = gpu(*card, "nvidia") if card else None
    return AzureSize(
        name,
        str(body.get("family", "")),
        int(can["vCPUs"]),
        round(float(can["MemoryGB"]) * 1024),
        zones,
        (found,) * int(can.get("GPUs", "0")) if found else (),
        can.get("LowPriorityCapable") == "True",
        can.get("RdmaEnabled") == "True",
        can.get("AcceleratedNetworkingEnabled") == "True",
    )


def _zones(body: Body, region: str) -> tuple[str, ...] | None:
    """The zones where the subscription can have it; None: it can't have it in the region at all."""
    zones: Sequence[str] | None = None
    for place in body.get("locationInfo") or ():
        if region_named(str(place.get("location", ""))) == region:
            zones = sorted(map(str, place.get("zones") or ()))
    if zones is None:
        return None
    barred: set[str] = set()
    for each in body.get("restrictions") or ():
        if each.get("type") == "Location":
            return None
        barred |= set(map(str, (each.get("restrictionInfo") or {}).get("zones") or each.get("values") or ()))
    left = tuple(zone for zone in zones if zone not in barred)
    return None if zones and not left else left


def by_name(listed: Sequence[Body], region: str) -> Mapping[str, AzureSize]:
    found = (size_of(body, region) for body in listed)
    return {size.name: size for size in found if size is not None}


def interconnect(size: str) -> Interconnect:
    """Of a size that has InfiniBand."""
    topology = _TABLE["topologies"].get(size)
    file = {"NCCL_TOPO_FILE": f"{FOLDER}/{topology}"} if topology else {}
    return Interconnect(name="InfiniBand", env={**_TABLE["infiniband"], **file}, folders=(FOLDER,) if topology else ())
