"""Instances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from chalicelib.api.requests import Id
from chalicelib.api.route import Answer, Call, asks
from chalicelib.api.v1 import answers
from chalicelib.api.v1.answers import PageQuery
from chalicelib.api.wire.v1.machines import instance_json
from chalicelib.domain.tenants import Project
from chalicelib.usecases.machines import instances
from chalicelib.usecases.people.visible_projects import projects_seen

if TYPE_CHECKING:
    from chalicelib import contract


class InstanceQuery(PageQuery):
    fleet_id: Id | None = None


@asks(InstanceQuery)
def list_all(call: Call, query: InstanceQuery) -> Annotated[Answer, contract.V1InstancePage]:
    """Machines of the projects that the caller is in, newest first."""
    return _list(call, projects_seen(call.plane.store, call.actor, None, call.token), query)


@asks(InstanceQuery)
def list_project(call: Call, query: InstanceQuery) -> Annotated[Answer, contract.V1InstancePage]:
    """Machines of the project, newest first."""
    return _list(call, [call.tenant], query)


def _list(call: Call, projects: Sequence[Project], query: InstanceQuery) -> Answer:
    of = None if query.fleet_id is None else frozenset({query.fleet_id})
    rows = instances.list_rows(
        call.plane, projects, instances.InstanceFilter(of, query.limit, False, *query.after(call))
    )
    key = lambda row: (row[1].created_at, row[1].id)  # noqa: E731
    return answers.page(call, query, rows, key, lambda row: instance_json(row[1], row[0]))


def get(call: Call) -> Annotated[Answer, contract.V1Instance]:
    """The machine with this id, also when it is gone."""
    found = instances.get(call.plane, call.tenant, call.params["instance_id"])
    return answers.resource(call, instance_json(found, call.tenant.name))
