"""History over HTTP, across the projects that the caller may see."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from chalicelib.api.requests import At, Id, Request
from chalicelib.api.table import Access, Call, Route
from chalicelib.api.wire.events import event_json
from chalicelib.usecases import events
from chalicelib.usecases.projects import visible

Ids = Annotated[list[Id], Field(min_length=1, max_length=16)] | None
TargetType = Literal[
    "project", "user", "fleet", "instance", "run", "job", "volume", "gateway", "gateway-replica", "secret", "preset"
]


class List(Request):
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
    within_projects: Ids = None
    within_fleets: Ids = None
    within_runs: Ids = None
    within_gateways: Ids = None
    include_target_types: Annotated[list[TargetType], Field(min_length=1, max_length=16)] | None = None
    actors: Annotated[list[Id | None], Field(min_length=1, max_length=16)] | None = None
    prev_recorded_at: At | None = None
    prev_id: Id | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 100
    ascending: bool = False

    def filter(self) -> events.Filter:
        named = [getattr(self, name) for name in type(self).model_fields if name.startswith("target_")]
        targets = None if all(ids is None for ids in named) else frozenset(id_ for ids in named for id_ in ids or ())
        return events.Filter(
            targets=targets,
            target_runs=frozenset(self.target_runs or ()),
            target_fleets=frozenset(self.target_fleets or ()),
            within_projects=_set(self.within_projects),
            within_runs=_set(self.within_runs),
            within_fleets=_set(self.within_fleets),
            target_types=None if self.include_target_types is None else frozenset(self.include_target_types),
            actors=None if self.actors is None else frozenset(self.actors),
            prev_at=self.prev_recorded_at,
            prev_id=self.prev_id,
            limit=self.limit,
            ascending=self.ascending,
        )


def _set(ids: list[str] | None) -> frozenset[str] | None:
    return None if ids is None else frozenset(ids)


def list_events(call: Call) -> Any:
    asked = call.parse(List)
    if asked.within_gateways is not None:
        return []  # there are no gateways, so nothing happened within one
    projects = {project.id: project for project in visible(call.plane.store, call.actor, not_joined=True)}
    found = events.list_events(call.plane.store, call.actor, projects, asked.filter())
    return [event_json(event, projects) for event in found]


ROUTES: tuple[Route, ...] = (Route("POST", "/api/events/list", Access.user, list_events),)
