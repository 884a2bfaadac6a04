"""Quotas: how many GPUs and CPUs a project may have at once, in a region and in all of them.

In nearly every new project the quotas of GPUs are zero, so a plan marks offers that can't be launched. Newer GPUs have
quotas that the API of Compute Engine doesn't show. What isn't shown counts as unknown, never as too small.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from chalicelib.domain.offers import Availability

Limits = Mapping[str, float]  # by metric

_CARDS: Mapping[str, str] = {
    "nvidia-a100-80gb": "NVIDIA_A100_80GB_GPUS",
    "nvidia-l4": "NVIDIA_L4_GPUS",
    "nvidia-tesla-a100": "NVIDIA_A100_GPUS",
    "nvidia-tesla-t4": "NVIDIA_T4_GPUS",
}
_SPOT_CARDS: Mapping[str, str] = {
    **{name: f"PREEMPTIBLE_{metric}" for name, metric in _CARDS.items()},
    "nvidia-h100-80gb": "PREEMPTIBLE_NVIDIA_H100_GPUS",
}
_CPUS: Mapping[str, str] = {
    "a2": "A2_CPUS",
    "c3": "C3_CPUS",
    "e2": "CPUS",
    "n1": "CPUS",
    "n2": "N2_CPUS",
    "n2d": "N2D_CPUS",
}


def availability(
    region: Limits, project: Limits, type_name: str, cpus: int, accelerator: str, cards: int, *, spot: bool
) -> Availability:
    """Whether one machine fits into the quotas. That a zone lists a type doesn't mean that it has one."""
    needed = list(_needed(region, type_name, cpus, accelerator, cards, spot=spot))
    short = any(metric in region and region[metric] < amount for metric, amount in needed)
    everywhere = {"GPUS_ALL_REGIONS": cards, "CPUS_ALL_REGIONS": cpus}
    short |= any(metric in project and project[metric] < amount for metric, amount in everywhere.items())
    return Availability.no_quota if short else Availability.unknown


def _needed(
    region: Limits, type_name: str, cpus: int, accelerator: str, cards: int, *, spot: bool
) -> Iterator[tuple[str, int]]:
    family = type_name.partition("-")[0]
    if accelerator:
        metric = (_SPOT_CARDS if spot else _CARDS).get(accelerator)
        if metric:
            yield metric, cards
    if family in _CPUS:
        of_spot = spot and region.get("PREEMPTIBLE_CPUS", 0) > 0  # without one of its own, spot has the usual one
        yield "PREEMPTIBLE_CPUS" if of_spot else _CPUS[family], cpus
