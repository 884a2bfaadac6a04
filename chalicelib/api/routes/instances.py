"""Instances over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from chalicelib.api.requests import At, Id, Name, RequestBody
from chalicelib.api.route import Call, takes
from chalicelib.api.wire.instances import health_checks_json, instance_json
from chalicelib.usecases.machines import health, instances
from chalicelib.usecases.people.visible_projects import projects_seen

if TYPE_CHECKING:
    from chalicelib import contract


class GetInstanceBody(RequestBody):
    id: Id


class ListInstancesBody(RequestBody):
    project_names: Annotated[list[Name], Field(max_length=1000)] | None = None
    fleet_ids: Annotated[list[Id], Field(max_length=1000)] | None = None
    only_active: bool = False  # those that are gone aren't listed anyway
    include_imported: bool = False
    prev_created_at: At | None = None
    prev_id: Id | None = None
    limit: Annotated[int, Field(ge=0, le=1000)] = 1000
    ascending: bool = False


class HealthBody(RequestBody):
    fleet_name: Name
    instance_num: Annotated[int, Field(ge=0, le=999_999)]
    after: At | None = None
    before: At | None = None
    limit: Annotated[int, Field(ge=1, le=100_000)] | None = None


@takes(GetInstanceBody)
def get(call: Call, body: GetInstanceBody) -> contract.Instance:
    return instance_json(instances.get(call.plane, call.tenant, body.id), call.tenant.name)


@takes(HealthBody)
def get_health_checks(call: Call, body: HealthBody) -> contract.HealthChecks:
    """A machine's health as its agent reported it, newest first."""
    wanted = health.WantedChecks(body.fleet_name, body.instance_num, body.after, body.before, body.limit)
    return health_checks_json(health.list_checks(call.plane, call.tenant, wanted))


@takes(ListInstancesBody)
def list_instances(call: Call, body: ListInstancesBody) -> list[contract.Instance]:
    """Machines of the projects that the caller is in, newest first."""
    names = None if body.project_names is None else tuple(body.project_names)
    wanted = instances.InstanceFilter(
        fleet_ids=None if body.fleet_ids is None else frozenset(body.fleet_ids),
        limit=body.limit,
        ascending=body.ascending,
        prev_created_at=body.prev_created_at,
        prev_id=body.prev_id,
        imported=body.include_imported,
    )
    rows = instances.list_rows(call.plane, projects_seen(call.plane.store, call.actor, names, call.token), wanted)
    return [instance_json(instance, project_name) for project_name, instance in rows]
