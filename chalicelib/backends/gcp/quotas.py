"""Quotas: how many GPUs and CPUs a project may have at once, in a region and in all of them.

In nearly every new project the quotas of GPUs are zero, so a plan marks offers that can't be launched. Newer GPUs have
quotas that the API of Compute Engine doesn't show. What isn't shown counts as unknown, never as too small.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from chalicelib.backends.gcp.prices import MachineParts
from chalicelib.backends.kit.tables import table
from chalicelib.domain.offers import Availability

Limits = Mapping[str, float]  # by metric

_OF: Mapping[str, Mapping[str, str]] = table("gcp/quotas.toml")


def availability(region: Limits, project: Limits, machine: MachineParts, *, spot: bool) -> Availability:
    """Whether one machine fits into the quotas. That a zone lists a type doesn't mean that it has one."""
    needed = list(_needed(region, machine, spot=spot))
    short = any(metric in region and region[metric] < amount for metric, amount in needed)
    everywhere = {"GPUS_ALL_REGIONS": machine.cards, "CPUS_ALL_REGIONS": machine.cpus}
    short |= any(metric in project and project[metric] < amount for metric, amount in everywhere.items())
    return Availability.no_quota if short else Availability.unknown


def _needed(region: Limits, machine: MachineParts, *, spot: bool) -> Iterator[tuple[str, int]]:
    family = machine.type.partition("-")[0]
    if metric := _OF["spot cards" if spot else "cards"].get(machine.accelerator):
        yield metric, machine.cards
    if usual := _OF["cpus"].get(family):
        of_spot = spot and region.get("PREEMPTIBLE_CPUS", 0) > 0  # without one of its own, spot has the usual one
        yield "PREEMPTIBLE_CPUS" if of_spot else usual, machine.cpus
