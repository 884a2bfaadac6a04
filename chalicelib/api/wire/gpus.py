"""Groups of GPUs on the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chalicelib.domain.offers import Availability
from chalicelib.planning.matching.gpu_groups import GpuGroup

if TYPE_CHECKING:
    from chalicelib import contract


def gpus_json(groups: list[GpuGroup]) -> list[contract.GpuGroup]:
    return [_group(group) for group in groups]


def _group(group: GpuGroup) -> contract.GpuGroup:
    shown: contract.GpuGroup = {
        "name": group.gpu.name,
        "memory_mib": group.gpu.memory_mib,
        "vendor": group.gpu.vendor or "nvidia",
        "availability": [Availability(each).value for each in group.availability],
        "spot": list(group.markets),
        "count": {"min": min(group.counts), "max": max(group.counts)},
        "price": {"min": round(min(group.prices), 6), "max": round(max(group.prices), 6)},
        "offer_price": {"min": min(group.offer_prices), "max": max(group.offer_prices)},
    }
    if group.backend is None:
        shown["backends"] = list(group.backends)
        return shown
    shown["backend"] = group.backend
    if group.region is None:
        shown["regions"] = list(group.regions)
    else:
        shown["region"] = group.region
    return shown
