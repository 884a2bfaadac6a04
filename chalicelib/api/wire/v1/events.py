"""Events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from chalicelib.domain.events import Event
from chalicelib.domain.instants import iso
from chalicelib.domain.tenants import Project

if TYPE_CHECKING:
    from chalicelib import contract


def event_json(event: Event, projects: Mapping[str, Project]) -> contract.V1Event:
    project = projects.get(event.project_id)
    return {
        "id": event.id,
        "at": iso(event.at),
        "text": event.message,
        "type": None if event.type is None else event.type.value,
        "before": event.before,
        "after": event.after,
        "reason": event.reason,
        "detail": event.detail,
        "project": None if project is None else project.name,
        "user": event.actor_name,
        "token": event.actor_token,
        "targets": [{"type": each.type, "id": each.id, "name": each.name} for each in event.targets],
    }
