"""Available GPUs, grouped by model and, if requested, by backend, region and count."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from chalicelib.domain.offers import Gpu, Offer
from chalicelib.domain.tenants import Project, ProjectRole, User
from chalicelib.usecases.offer_lists import MANY_OFFERS
from chalicelib.usecases.ports import RunPlanPorts
from chalicelib.usecases.runs import plans
from chalicelib.usecases.runs.market_offers import AskedMarket


@dataclass
class GpuGroup:
    """One kind of GPU. Prices are dollars an hour: `prices` for one GPU, `offer_prices` for the instance."""

    gpu: Gpu
    backend: str | None = None
    region: str | None = None
    backends: dict[str, None] = field(default_factory=dict)
    regions: dict[str, None] = field(default_factory=dict)
    availability: dict[str, None] = field(default_factory=dict)
    markets: dict[str, None] = field(default_factory=dict)
    counts: list[int] = field(default_factory=list)
    prices: list[float] = field(default_factory=list)
    offer_prices: list[float] = field(default_factory=list)

    def add(self, offer: Offer) -> None:
        has = offer.instance.resources
        self.backends[offer.backend] = None
        self.regions[offer.region] = None
        self.availability[offer.availability.value] = None
        self.markets["spot" if has.spot else "on-demand"] = None
        self.counts.append(len(has.gpus))
        self.prices.append(round(offer.price / len(has.gpus), 6))
        self.offer_prices.append(offer.price)


@dataclass(frozen=True)
class GpuView:
    """How to group and show GPUs."""

    by: frozenset[str]  # besides the model: backend, region, count
    reverse: bool  # the most expensive first
    whole_machines: bool  # show existing machines whole, not the requested share of them


def list_gpus(
    plane: RunPlanPorts,
    user: User,
    project: Project,
    raw: dict[str, Any],
    view: GpuView,
    *,
    role: ProjectRole | None = None,
) -> tuple[list[GpuGroup], Sequence[AskedMarket]]:
    """The groups, and what backends without a list of offers were asked for them."""
    wanted = plans.PlanView(limit=MANY_OFFERS, beyond_fleets=True, whole_machines=view.whole_machines)
    plan = plans.get_plan(plane, user, project, raw, wanted, role=role)
    groups = grouped((offer for job in plan.jobs[:1] for offer in job.offers), view.by)
    return sorted(groups, key=lambda group: min(group.prices), reverse=view.reverse), plan.asked


def grouped(offers: Iterable[Offer], by: frozenset[str]) -> list[GpuGroup]:
    groups: dict[tuple[Any, ...], GpuGroup] = {}
    for offer in offers:
        gpus = offer.instance.resources.gpus
        if not gpus:
            continue
        backend = offer.backend if "backend" in by else None
        region = offer.region if "region" in by else None
        count = len(gpus) if "count" in by else None
        key = (gpus[0].name, gpus[0].memory_mib, gpus[0].vendor, backend, region, count)
        groups.setdefault(key, GpuGroup(gpus[0], backend, region)).add(offer)
    return list(groups.values())
