"""Audit events of use cases: who did what to which objects, written in the same commit as the change."""

from __future__ import annotations

from typing import Any

from chalicelib.domain.backends import Configured
from chalicelib.domain.events import Event, EventType, Target
from chalicelib.domain.ids import derive
from chalicelib.domain.instants import Micros
from chalicelib.domain.tenants import Project, Secret, User


def audit_event(
    type: EventType,
    at: Micros,
    *targets: Target,
    project_id: str,
    seed: str,
    actor: User | None = None,
    **data: Any,
) -> Event:
    """One event. `seed` identifies the change (a noun's id and version), so that a repeated commit records it once."""
    return Event(
        id=derive(seed, "event", type.value),
        project_id=project_id,
        at=at,
        type=type,
        actor_id=actor.id if actor else None,
        actor_name=actor.name if actor else None,
        actor_token=(actor.by_token or None) if actor else None,
        targets=targets,
        **data,
    )


def user_target(user: User) -> Target:
    return Target(type="user", id=user.id, name=user.name)


def project_target(project: Project) -> Target:
    return Target(type="project", id=project.id, name=project.name)


def secret_target(secret: Secret) -> Target:
    return Target(type="secret", id=secret.id, name=secret.name)


def backend_target(backend: Configured) -> Target:
    return Target(type="backend", id=backend.id, name=backend.type)
