"""Available GPUs, grouped by model and, if requested, by backend, region and count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from chalicelib.domain.tenants import Project, ProjectRole, User
from chalicelib.planning.matching.gpu_groups import GpuGroup, grouped
from chalicelib.usecases.ports import RunPlanPorts
from chalicelib.usecases.runs import plans
from chalicelib.usecases.runs.market_offers import AskedMarket


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
    wanted = plans.PlanView(limit=0, beyond_fleets=True, whole_machines=view.whole_machines, gpus=True)
    plan = plans.get_plan(plane, user, project, raw, wanted, role=role)
    groups = grouped((prices for job in plan.jobs[:1] for prices in job.gpus), view.by)
    return sorted(groups, key=lambda group: min(group.prices), reverse=view.reverse), plan.asked
