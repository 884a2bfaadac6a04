"""Slices of TPUs that are one host: what each has.

The API lists a zone's types, but not what they have. A slice of several hosts is one purchase of several machines, for
which the protocol of backends has no form, so such types aren't offered. A `v5litepod` or `v6e` is called by its number
of chips, and the others by their number of cores, of which a chip has two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
    units: int  # that is billed of that

    def resources(self, name: str, *, spot: bool) -> Resources:
        return Resources(
            cpus=self.cpus,
            memory_mib=self.memory_gib * GIB,
            gpus=(Gpu(name=name, memory_mib=self.chip_gib * GIB, vendor="google"),) * self.chips,
            spot=spot,
            disk=Disk(size_mib=DISK_GIB * GIB),
            cpu_arch="x86",
        )


TYPES: Mapping[str, TpuType] = {
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


def is_tpu(offer: Offer) -> bool:
    gpus = offer.instance.resources.gpus
    return bool(gpus) and gpus[0].vendor == "google"


def of_tpu(handle: Handle) -> bool:
    """Is it of a slice, rather than of a machine of Compute Engine?"""
    return "tpu" in handle.data
