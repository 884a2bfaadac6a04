"""Groups of GPUs on the wire."""

from __future__ import annotations

from typing import Any

from chalicelib.planning.matching.gpu_groups import GpuGroup


def gpus_json(groups: list[GpuGroup]) -> dict[str, Any]:
    return {"gpus": [_group(group) for group in groups]}


def _group(group: GpuGroup) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "name": group.gpu.name,
        "memory_mib": group.gpu.memory_mib,
        "vendor": group.gpu.vendor or "nvidia",
        "availability": list(group.availability),
        "spot": list(group.markets),
        "count": _range(group.counts),
        "price": _range([round(price, 6) for price in group.prices]),
        "offer_price": _range(group.offer_prices),
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


def _range(values: list[Any]) -> dict[str, Any]:
    return {"min": min(values), "max": max(values)}
