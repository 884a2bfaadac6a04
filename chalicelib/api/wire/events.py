"""Events on the wire."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Literal, get_args

from chalicelib.api.wire.spliced import spliced
from chalicelib.domain.events import Event
from chalicelib.domain.instants import iso
from chalicelib.domain.state_changes import StateChange
from chalicelib.domain.tenants import Project

if TYPE_CHECKING:
    from chalicelib import contract

# Types of targets that clients of this line don't know; their events have another target that clients do know.
OurTarget = Literal["workflow", "gang", "backend", "automation", "certificate"]
TheirTarget = Literal[
    "project", "user", "fleet", "instance", "run", "job", "volume", "gateway", "gateway-replica", "secret", "preset"
]
_THEIRS: Mapping[str, TheirTarget] = {kind: kind for kind in get_args(TheirTarget)}


def change_json(change: StateChange) -> contract.StateChange:
    shown: contract.StateChange = spliced(change.__pydantic_serializer__.to_json(change))
    return shown


def event_json(event: Event, projects: Mapping[str, Project], deleted: Set[str]) -> contract.Event:
    """`deleted`: the ids of actors that have been deleted."""
    project = projects.get(event.project_id)
    project_id, project_name, gone = (
        (None, None, None) if project is None else (project.id, project.name, project.deleted)
    )
    return {
        "id": event.id,
        "message": event.message,
        "recorded_at": iso(event.at),
        "actor_user_id": event.actor_id,
        "actor_user": event.actor_name,
        "actor_token": event.actor_token,
        "is_actor_user_deleted": None if event.actor_id is None else event.actor_id in deleted,
        "targets": [
            {
                "type": kind,
                "project_id": project_id,
                "project_name": project_name,
                "is_project_deleted": gone,
                "id": target.id,
                "name": target.name,
            }
            for target in event.targets
            if (kind := _THEIRS.get(target.type)) is not None
        ],
    }
