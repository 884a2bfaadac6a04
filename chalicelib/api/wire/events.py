"""Events on the wire."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any, Literal, get_args

from chalicelib.domain.events import Event
from chalicelib.domain.instants import iso
from chalicelib.domain.tenants import Project

# Types of targets that clients of this line don't know; their events have another target that clients do know.
OurTarget = Literal["workflow", "gang", "backend", "automation", "certificate"]
_OURS = get_args(OurTarget)


def event_json(event: Event, projects: Mapping[str, Project], deleted: Set[str]) -> dict[str, Any]:
    """`deleted`: the ids of actors that have been deleted."""
    project = projects.get(event.project_id)
    within = {
        "project_id": None if project is None else project.id,
        "project_name": None if project is None else project.name,
        "is_project_deleted": None if project is None else project.deleted,
    }
    return {
        "id": event.id,
        "message": event.message,
        "recorded_at": iso(event.at),
        "actor_user_id": event.actor_id,
        "actor_user": event.actor_name,
        "is_actor_user_deleted": None if event.actor_id is None else event.actor_id in deleted,
        "targets": [
            {"type": t.type, **within, "id": t.id, "name": t.name} for t in event.targets if t.type not in _OURS
        ],
    }
