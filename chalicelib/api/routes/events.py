"""History over HTTP, across the projects that the caller may see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, get_args

from pydantic import Field

from chalicelib.api.requests import At, Id, RequestBody
from chalicelib.api.route import Call, takes
from chalicelib.api.wire.events import OurTarget, TheirTarget, change_json, event_json
from chalicelib.domain import pages
from chalicelib.domain.state_changes import of
from chalicelib.domain.tenants import GlobalRole
from chalicelib.usecases.operator import events
from chalicelib.usecases.people.projects import visible

if TYPE_CHECKING:
    from chalicelib import contract

Ids = Annotated[list[Id], Field(min_length=1, max_length=16)] | None
TargetType = Literal[TheirTarget, OurTarget]


_TARGETS = {kind: f"target_{kind.replace('-', '_')}s" for kind in get_args(TargetType)}


class ListEventsBody(RequestBody):
    target_projects: Ids = None
    target_users: Ids = None
    target_fleets: Ids = None
    target_instances: Ids = None
    target_runs: Ids = None
    target_jobs: Ids = None
    target_volumes: Ids = None
    target_gateways: Ids = None
    target_gateway_replicas: Ids = None
    target_secrets: Ids = None
    target_presets: Ids = None
    target_workflows: Ids = None
    target_gangs: Ids = None
    target_backends: Ids = None
    target_automations: Ids = None
    target_certificates: Ids = None
    within_projects: Ids = None
    within_fleets: Ids = None
    within_runs: Ids = None
    within_gateways: Ids = None
    include_target_types: (
        Annotated[list[TargetType], Field(min_length=1, max_length=len(get_args(TargetType)))] | None
    ) = None
    actors: Annotated[list[Id | None], Field(min_length=1, max_length=16)] | None = None
    prev_recorded_at: At | None = None
    prev_id: Id | None = None
    limit: Annotated[int, Field(ge=1, le=pages.EVENTS)] = pages.EVENTS
    ascending: bool = False

    def filter(self) -> events.EventFilter:
        named = {kind: ids for kind, field in _TARGETS.items() if (ids := getattr(self, field)) is not None}
        targets = frozenset((kind, id_) for kind, ids in named.items() for id_ in ids) if named else None
        return events.EventFilter(
            targets=targets,
            within_projects=_set(self.within_projects),
            within_runs=_set(self.within_runs),
            within_fleets=_set(self.within_fleets),
            within_gateways=_set(self.within_gateways),
            target_types=None if self.include_target_types is None else frozenset(self.include_target_types),
            actors=None if self.actors is None else frozenset(self.actors),
            prev_at=self.prev_recorded_at,
            prev_id=self.prev_id,
            limit=self.limit,
            ascending=self.ascending,
        )


class ChangesBody(RequestBody):
    prev_recorded_at: At
    prev_id: Id | None = None
    limit: Annotated[int, Field(ge=1, le=pages.EVENTS)] = pages.EVENTS


@takes(ChangesBody)
def list_changes(call: Call, body: ChangesBody) -> list[contract.StateChange]:
    """The project's state changes after the given one, oldest first, in the form in which webhooks send them."""
    project = call.tenant
    wanted = events.EventFilter(
        within_projects=frozenset({project.id}),
        prev_at=body.prev_recorded_at,
        prev_id=body.prev_id,
        limit=body.limit,
        ascending=True,
    )
    found = events.list_events(call.plane.store, call.actor, {project.id: project}, wanted)
    return [change_json(of(event, project.name)) for event in found]


def _set(ids: list[str] | None) -> frozenset[str] | None:
    return None if ids is None else frozenset(ids)


@takes(ListEventsBody)
def list_events(call: Call, body: ListEventsBody) -> list[contract.Event]:
    """Events that the caller may see, newest first unless `ascending`."""
    # An admin sees everything; others see the history of their own projects, but not of those that are merely public.
    every = call.actor.role is GlobalRole.admin
    seen = call.narrowed(visible(call.plane.store, call.actor, not_joined=every))
    projects = {project.id: project for project in seen}
    everywhere = call.token is None or not call.token.projects
    found = events.list_events(call.plane.store, call.actor, projects, body.filter(), everywhere=everywhere)
    deleted = events.deleted_actors(call.plane.store, found)
    return [event_json(event, projects, deleted) for event in found]
