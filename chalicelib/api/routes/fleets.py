"""Fleets over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from chalicelib.api.requests import At, Id, Name, Names, Object, RequestBody
from chalicelib.api.route import Call, takes
from chalicelib.api.wire.fleets import fleet_json, fleet_plan_json
from chalicelib.domain.access_tokens import Verb
from chalicelib.domain.tenants import Project
from chalicelib.usecases.machines import fleet_plans, fleets
from chalicelib.usecases.people.visible_projects import projects_seen

if TYPE_CHECKING:
    from chalicelib import contract


class GetFleetPlanBody(RequestBody):
    spec: Object


class CurrentFleet(RequestBody):
    id: Id
    spec: Object


class FleetPlanBody(RequestBody):
    spec: Object
    current_resource: CurrentFleet | None = None


class ApplyFleetBody(RequestBody):
    plan: FleetPlanBody
    force: bool = False


class GetFleetBody(RequestBody):
    name: Name | None = None
    id: Id | None = None


class ListFleetsBody(RequestBody):
    project_name: Name | None = None
    only_active: bool = False  # those that are gone aren't listed anyway
    include_imported: bool = False
    prev_created_at: At | None = None
    prev_id: Id | None = None
    limit: Annotated[int, Field(ge=0, le=100)] = 100
    ascending: bool = False


class ProjectListBody(RequestBody):
    """Like `ListFleetsBody`, but by default complete and oldest first: clients of this line don't page here."""

    include_imported: bool = False
    prev_created_at: At | None = None
    prev_id: Id | None = None
    limit: Annotated[int, Field(ge=1, le=100)] | None = None
    ascending: bool = True


class DeleteFleetsBody(RequestBody):
    names: Names
    force: bool = False  # our own field: don't wait for unreachable hosts


class DeleteInstancesBody(RequestBody):
    name: Name
    instance_nums: list[Annotated[int, Field(ge=0, le=1_000_000)]] = Field(max_length=1000)
    force: bool = False  # our own field, as above


@takes(GetFleetPlanBody)
def get_plan(call: Call, body: GetFleetPlanBody) -> contract.FleetPlan:
    """What applying the fleet would do, and which offers it could have. Nothing is stored."""
    plan = fleet_plans.get_plan(call.plane, call.actor, call.tenant, body.spec)
    return fleet_plan_json(plan, call.tenant.name, call.actor.name)


@takes(ApplyFleetBody)
def apply(call: Call, body: ApplyFleetBody) -> contract.Fleet:
    """Creates the fleet, or changes the one of this name in place."""
    current = body.plan.current_resource
    seen = None if body.force or current is None else fleet_plans.SeenFleet(current.id, current.spec)
    row = fleet_plans.apply_plan(call.plane, call.actor, call.tenant, body.plan.spec, seen, role=call.role)
    return fleet_json(row, call.tenant.name)


@takes(GetFleetBody)
def get(call: Call, body: GetFleetBody) -> contract.Fleet:
    """A fleet, by its name or its id. `project/name` is one that is imported. An access token without the verb `fleets`
    sees no values of environment variables."""
    if body.id is None and body.name is not None and "/" in body.name:
        owner, row = fleets.get_imported(call.plane, call.tenant, body.name)
        return fleet_json(row, owner, env=False)
    row = fleets.get(call.plane, call.tenant, name=body.name, fleet_id=body.id)
    return fleet_json(row, call.tenant.name, env=call.may(Verb.fleets))


@takes(ProjectListBody)
def list_project(call: Call, body: ProjectListBody) -> list[contract.Fleet]:
    """The project's fleets. All of them, oldest first, unless `limit` asks for a page."""
    if body.limit is None:
        own = [fleet_json(row, call.tenant.name, env=False) for row in fleets.list_all(call.plane, call.tenant)]
        return [*own, *_imported(call, [call.tenant])] if body.include_imported else own
    return _page(call, body, [call.tenant], limit=body.limit)


@takes(ListFleetsBody)
def list_fleets(call: Call, body: ListFleetsBody) -> list[contract.Fleet]:
    """Fleets of the projects that the caller is in, newest first."""
    names = None if body.project_name is None else (body.project_name,)
    return _page(call, body, projects_seen(call.plane.store, call.actor, names, call.token), limit=body.limit)


def _page(
    call: Call, body: ListFleetsBody | ProjectListBody, projects: Sequence[Project], *, limit: int
) -> list[contract.Fleet]:
    wanted = fleets.FleetFilter(
        limit=limit,
        ascending=body.ascending,
        prev_created_at=body.prev_created_at,
        prev_id=body.prev_id,
    )
    rows = fleets.list_rows(call.plane, projects, wanted)
    own = [fleet_json(row, project.name, env=False) for project, row in rows]
    if not body.include_imported:
        return own
    both = [*own, *_imported(call, projects, wanted)]
    return sorted(both, key=lambda row: (row["created_at"], row["id"]), reverse=not body.ascending)[:limit]


def _imported(
    call: Call, projects: Sequence[Project], wanted: fleets.FleetFilter | None = None
) -> list[contract.Fleet]:
    """Fleets imported from other projects, without the values of their environment variables."""
    return [fleet_json(row, name, env=False) for name, row in fleets.imported(call.plane, projects, wanted)]


@takes(DeleteFleetsBody)
def delete(call: Call, body: DeleteFleetsBody) -> None:
    """Deletes fleets with their machines. `force` waits for no host that is out of reach."""
    fleets.delete(call.plane, call.actor, call.tenant, body.names, role=call.role, force=body.force)


@takes(DeleteInstancesBody)
def delete_instances(call: Call, body: DeleteInstancesBody) -> None:
    """Deletes some machines of a fleet, by their numbers."""
    fleets.delete_instances(
        call.plane, call.actor, call.tenant, body.name, body.instance_nums, role=call.role, force=body.force
    )
