"""Costs over time: of a project for who manages it, of all for global admins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import ConfigDict

from chalicelib.api.requests import At, RequestBody
from chalicelib.api.route import Answer, Call, asks
from chalicelib.api.v1 import answers
from chalicelib.api.wire.v1.costs import costs_csv, costs_json
from chalicelib.domain.instants import DAY, HOUR
from chalicelib.usecases.operator import cost_history
from chalicelib.usecases.operator.cost_history import CostView, CostWindow
from chalicelib.usecases.people.visible_projects import projects_seen

if TYPE_CHECKING:
    from chalicelib import contract

CSV = "text/csv"


class TimeQuery(RequestBody):
    model_config = ConfigDict(extra="forbid")

    since: At | None = None
    until: At | None = None
    step: Literal["day", "hour"] = "day"


class CostQuery(TimeQuery):
    by: Literal["user", "fleet", "gpu"] = "user"


class AllCostQuery(TimeQuery):
    by: Literal["user", "project", "fleet", "gpu"] = "project"


@asks(CostQuery)
def list_project(call: Call, query: CostQuery) -> Annotated[Answer, contract.V1Costs]:
    """What the project's machines cost, by user, fleet or GPU: in the last 30 days, day by day, unless the query says
    otherwise. `since` and `until` count as whole days. Up to 400 days are kept, and hours are shown for 8 at once."""
    return answers.resource(call, costs_json(_of_project(call, query)))


@asks(CostQuery)
def list_project_csv(call: Call, query: CostQuery) -> Annotated[Answer, CSV]:
    """The same for a spreadsheet: a line for each name and day, or hour."""
    return _csv(costs_csv(_of_project(call, query)), call.tenant.name)


@asks(AllCostQuery)
def list_all(call: Call, query: AllCostQuery) -> Annotated[Answer, contract.V1Costs]:
    """What the machines of all projects cost, likewise; also by project."""
    return answers.resource(call, costs_json(_of_all(call, query)))


@asks(AllCostQuery)
def list_all_csv(call: Call, query: AllCostQuery) -> Annotated[Answer, CSV]:
    """The same for a spreadsheet."""
    return _csv(costs_csv(_of_all(call, query)), "all")


def _of_project(call: Call, query: CostQuery) -> CostView:
    return cost_history.of_project(call.plane, call.tenant, _window(call, query), query.by)


def _of_all(call: Call, query: AllCostQuery) -> CostView:
    projects = projects_seen(call.plane.store, call.actor, None, call.token)
    return cost_history.of_all(call.plane, projects, _window(call, query), query.by)


def _window(call: Call, query: TimeQuery) -> CostWindow:
    step = DAY if query.step == "day" else HOUR
    return cost_history.window(call.plane.clock.now(), query.since, query.until, step)


def _csv(body: bytes, name: str) -> Answer:
    return Answer(
        body,
        content_type=f"{CSV}; charset=utf-8",
        headers={
            "Content-Disposition": f'attachment; filename="costs-{name}.csv"',
            "Cache-Control": "private, no-cache",
        },
    )
