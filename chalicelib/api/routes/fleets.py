"""Fleets over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from chalicelib.api.requests import At, Id, Name, Object, Request
from chalicelib.api.table import Access, Call, Route
from chalicelib.api.wire.fleets import fleet_json, fleet_plan_json
from chalicelib.domain.tenants import Project
from chalicelib.usecases import fleet_plans, fleets
from chalicelib.usecases.projects_seen import projects_seen


class GetPlan(Request):
    spec: Object


class CurrentFleet(Request):
    id: Id
    spec: Object


class Plan(Request):
    spec: Object
    current_resource: CurrentFleet | None = None


class Apply(Request):
    plan: Plan
    force: bool = False


class Get(Request):
    name: Name | None = None
    id: Id | None = None


class List(Request):
    project_name: Name | None = None
    only_active: bool = False  # those that are gone aren't listed anyway
    include_imported: bool = False  # nothing can be imported, so there is nothing to add
    prev_created_at: At | None = None
    prev_id: Id | None = None
    limit: Annotated[int, Field(ge=0, le=100)] = 100
    ascending: bool = False


class ProjectList(Request):
    """As `List`, but whole and oldest first where nothing is said: clients of this line don't page here."""

    prev_created_at: At | None = None
    prev_id: Id | None = None
    limit: Annotated[int, Field(ge=1, le=100)] | None = None
    ascending: bool = True


class Delete(Request):
    names: list[Name] = Field(max_length=100)


class DeleteInstances(Request):
    name: Name
    instance_nums: list[Annotated[int, Field(ge=0, le=1_000_000)]] = Field(max_length=1000)


def get_plan(call: Call) -> Any:
    plan = fleet_plans.get_plan(call.plane, call.tenant, call.parse(GetPlan).spec)
    return fleet_plan_json(plan, call.tenant.name, call.actor.name)


def apply(call: Call) -> Any:
    asked = call.parse(Apply)
    current = asked.plan.current_resource
    seen = None if current is None else fleet_plans.Seen(current.id, current.spec)
    row = fleet_plans.apply_plan(
        call.plane, call.actor, call.tenant, asked.plan.spec, seen, force=asked.force, role=call.role
    )
    return fleet_json(row, call.tenant.name)


def get(call: Call) -> Any:
    asked = call.parse(Get)
    return fleet_json(fleets.get(call.plane, call.tenant, name=asked.name, fleet_id=asked.id), call.tenant.name)


def list_project(call: Call) -> Any:
    asked = call.parse(ProjectList)
    if asked.limit is None:
        return [fleet_json(row, call.tenant.name) for row in fleets.list_all(call.plane, call.tenant)]
    return _page(call, asked, [call.tenant], limit=asked.limit)


def list_fleets(call: Call) -> Any:
    asked = call.parse(List)
    names = None if asked.project_name is None else (asked.project_name,)
    return _page(call, asked, projects_seen(call.plane.store, call.actor, names), limit=asked.limit)


def _page(call: Call, asked: List | ProjectList, projects: Sequence[Project], *, limit: int) -> Any:
    wanted = fleets.Filter(
        limit=limit,
        ascending=asked.ascending,
        prev_created_at=asked.prev_created_at,
        prev_id=asked.prev_id,
    )
    return [fleet_json(row, project.name) for project, row in fleets.list_rows(call.plane, projects, wanted)]


def delete(call: Call) -> None:
    fleets.delete(call.plane, call.actor, call.tenant, call.parse(Delete).names, role=call.role)


def delete_instances(call: Call) -> None:
    asked = call.parse(DeleteInstances)
    fleets.delete_instances(call.plane, call.actor, call.tenant, asked.name, asked.instance_nums, role=call.role)


_FLEETS = "/api/project/{project_name}/fleets"

ROUTES: tuple[Route, ...] = (
    Route("POST", "/api/fleets/list", Access.user, list_fleets),
    Route("POST", f"{_FLEETS}/list", Access.member, list_project),
    Route("POST", f"{_FLEETS}/get", Access.member, get),
    Route("POST", f"{_FLEETS}/get_plan", Access.member, get_plan),
    Route("POST", f"{_FLEETS}/apply", Access.member, apply),
    Route("POST", f"{_FLEETS}/delete", Access.member, delete),
    Route("POST", f"{_FLEETS}/delete_instances", Access.member, delete_instances),
)
