"""Events: who did what, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from chalicelib.api.requests import At, Id, Name
from chalicelib.api.route import Answer, Call, asks
from chalicelib.api.v1 import answers
from chalicelib.api.v1.answers import PageQuery
from chalicelib.api.wire.v1.events import event_json
from chalicelib.domain.tenants import GlobalRole, Project
from chalicelib.usecases.operator import events
from chalicelib.usecases.people.projects import visible

if TYPE_CHECKING:
    from chalicelib import contract


class EventQuery(PageQuery):
    run_id: Id | None = None
    fleet_id: Id | None = None
    gateway_id: Id | None = None
    actor_id: Id | None = None
    target_type: Annotated[str, Field(max_length=40)] | None = None
    target: Annotated[str, Field(pattern=r"^[a-z-]{1,40}/.{1,200}$")] | None = None  # a type and a name
    user: Name | None = None
    by: Literal["people", "system"] | None = None
    until: At | None = None


@asks(EventQuery)
def list_all(call: Call, query: EventQuery) -> Annotated[Answer, contract.V1EventPage]:
    """Events of the caller's projects, and those about the caller, newest first. Global admins see all. `target` is the
    type and the name of a thing, such as `run/train`, and `user` the name of who acted; `by` tells people from the
    control plane itself; `until` leaves out later ones."""
    every = call.actor.role is GlobalRole.admin
    projects = call.narrowed(visible(call.plane.store, call.actor, not_joined=every))
    return _list(call, {project.id: project for project in projects}, None, query)


@asks(EventQuery)
def list_project(call: Call, query: EventQuery) -> Annotated[Answer, contract.V1EventPage]:
    """Events of the project, newest first, with the same filters."""
    project = call.tenant
    return _list(call, {project.id: project}, frozenset({project.id}), query)


def _list(call: Call, projects: Mapping[str, Project], within: frozenset[str] | None, query: EventQuery) -> Answer:
    at, event_id = (query.until, None) if query.cursor is None else query.after(call)
    kind, _, name = (query.target or "").partition("/")
    wanted = events.EventFilter(
        within_projects=within,
        within_runs=_only(query.run_id),
        within_fleets=_only(query.fleet_id),
        within_gateways=_only(query.gateway_id),
        target_types=_only(query.target_type),
        actors=_only(query.actor_id),
        named=(kind, name) if query.target else None,
        user_name=query.user,
        by_people=None if query.by is None else query.by == "people",
        prev_at=at,
        prev_id=event_id,
        limit=query.limit,
    )
    everywhere = call.token is None or not call.token.projects
    rows = events.list_events(call.plane.store, call.actor, projects, wanted, everywhere=everywhere)
    return answers.page(
        call, query, rows, lambda event: (event.at, event.id), lambda event: event_json(event, projects)
    )


def _only(value: str | None) -> frozenset[str] | None:
    return None if value is None else frozenset({value})
