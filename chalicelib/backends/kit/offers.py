"""Offers of machines, with the disk that they have at least."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chalicelib.domain.offers import Disk, DiskTerms, Gpu, InstanceType, Offer, Resources

GIB = 1024  # MiB
HOURS = 730  # of a month


def machine(
    backend: str,
    name: str,
    region: str,
    price: float,
    *,
    cpus: int,
    memory_mib: int,
    gpus: Sequence[Gpu] = (),
    spot: bool = False,
    disk_gib: float,
    cpu_arch: str = "x86",
    **more: Any,
) -> Offer:
    """`price`: dollars an hour for all of it. `more`: other fields of the offer."""
    has = Resources(
        cpus=cpus,
        memory_mib=memory_mib,
        gpus=tuple(gpus),
        spot=spot,
        disk=Disk(size_mib=round(disk_gib * GIB)),
        cpu_arch=cpu_arch,
    )
    kind = InstanceType(name=name, resources=has)
    return Offer(backend=backend, instance=kind, region=region, price=round(price, 6), **more)


def made_to_order(most_gib: int, gib_hour: float) -> DiskTerms:
    """A disk as large as one wants."""
    return DiskTerms(most_gib=most_gib, gib_hour=round(gib_hour, 9))
