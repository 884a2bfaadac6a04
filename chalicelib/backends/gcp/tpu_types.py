"""Slices of TPUs: the hosts of each, and what they have.

The API lists a zone's types, but not what their hosts have. A `v5litepod` or `v6e` is called by its number of chips,
and the others by their number of cores, of which a chip has two. A slice of several hosts has four chips on each of
them, and is a bundle: one purchase of several machines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod

from chalicelib.domain.instances import Handle
from chalicelib.domain.offers import Disk, Gpu, Offer, Resources

GIB = 1024
DISK_GIB = 100  # of every host; no other can be had
BASE, V5E, V5P, V6E = "tpu-ubuntu2204-base", "v2-alpha-tpuv5-lite", "v2-alpha-tpuv5", "v2-alpha-tpuv6e"


@dataclass(frozen=True)
class TpuType:
    chips: int
    chip_gib: int
    cpus: int
    memory_gib: int
    runtime: str  # the image
    sold_as: str  # in `prices.py`
    units: int  # that is billed of that for a host
    hosts: int = 1

    def resources(self, name: str, *, spot: bool) -> Resources:
        return Resources(
            cpus=self.cpus,
            memory_mib=self.memory_gib * GIB,
            gpus=(Gpu(name=name, memory_mib=self.chip_gib * GIB, vendor="google"),) * self.chips,
            spot=spot,
            disk=Disk(size_mib=DISK_GIB * GIB),
            cpu_arch="x86",
        )


_SINGLE: Mapping[str, TpuType] = {
    "v2-8": TpuType(4, 16, 96, 334, BASE, "tpu-v2", 1),
    "v3-8": TpuType(4, 32, 96, 334, BASE, "tpu-v3", 1),
    "v5litepod-1": TpuType(1, 16, 24, 48, V5E, "tpu-v5e", 1),
    "v5litepod-4": TpuType(4, 16, 112, 192, V5E, "tpu-v5e", 4),
    "v5litepod-8": TpuType(8, 16, 224, 384, V5E, "tpu-v5e", 8),
    "v5p-8": TpuType(4, 95, 208, 448, V5P, "tpu-v5p", 4),
    "v6e-1": TpuType(1, 32, 44, 176, V6E, "tpu-v6e", 1),
    "v6e-4": TpuType(4, 32, 180, 720, V6E, "tpu-v6e", 4),
    "v6e-8": TpuType(8, 32, 180, 1440, V6E, "tpu-v6e", 8),
}


_HOST: Mapping[str, str] = {  # of a slice of several: as in this one
    "v2": "v2-8",
    "v3": "v3-8",
    "v5litepod": "v5litepod-4",
    "v5p": "v5p-8",
    "v6e": "v6e-4",
}
_PODS: Mapping[str, str] = {"tpu-v2": "tpu-v2-pod", "tpu-v3": "tpu-v3-pod"}  # which have a price of their own
MOST_HOSTS = 64
_TOPOLOGY = re.compile(r"\d{1,3}(x\d{1,3}){1,2}")


def tpu_type(name: str, topologies: Iterable[str] = ()) -> TpuType | None:
    """None: it isn't sold, or the `topologies` that the API names for it aren't what it should have."""
    family, _, number = name.partition("-")
    host = _SINGLE.get(_HOST.get(family, ""))
    if host is None or not number.isdecimal():
        return None
    found = _SINGLE.get(name) or _of_several(host, int(number) // (2 if family in ("v2", "v3", "v5p") else 1))
    known = [topology for topology in topologies if _TOPOLOGY.fullmatch(topology)]
    if found is None or (known and found.chips * found.hosts not in {prod(map(int, t.split("x"))) for t in known}):
        return None
    return found


def _of_several(host: TpuType, chips: int) -> TpuType | None:
    hosts, rest = divmod(chips, host.chips)
    if rest or not 1 < hosts <= MOST_HOSTS:
        return None
    return replace(host, hosts=hosts, sold_as=_PODS.get(host.sold_as, host.sold_as))


def is_tpu(offer: Offer) -> bool:
    gpus = offer.instance.resources.gpus
    return bool(gpus) and gpus[0].vendor == "google"


def of_tpu(handle: Handle) -> bool:
    """Is it of a slice, rather than of a machine of Compute Engine?"""
    return "tpu" in handle.data


def runtime_of(name: str) -> str:
    kind = tpu_type(name)
    return kind.runtime if kind is not None else ""


def hosts_of(handle: Handle) -> int:
    """How many its slice has."""
    kind = tpu_type(handle.data["tpu"])
    return kind.hosts if kind is not None else 1
