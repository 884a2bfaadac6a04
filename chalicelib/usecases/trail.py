"""Events as the use cases write them: who did what to which things, in the commit of the deed itself."""

from __future__ import annotations

from chalicelib.domain.events import Event, Target
from chalicelib.domain.ids import derive
from chalicelib.domain.instants import Micros
from chalicelib.domain.tenants import Project, Secret, User

EVERYWHERE = ""  # the project of what belongs to none: users are the installation's


def told(
    message: str,
    at: Micros,
    *targets: Target,
    project_id: str,
    seed: str,
    actor: User | None = None,
    run_id: str | None = None,
    fleet_id: str | None = None,
) -> Event:
    """One event. `seed` names the deed (a noun's id and version), so that a repeated commit tells of it once."""
    return Event(
        id=derive(seed, "event", message),
        project_id=project_id,
        at=at,
        message=message,
        actor_id=actor.id if actor else None,
        actor_name=actor.name if actor else None,
        targets=targets,
        run_id=run_id,
        fleet_id=fleet_id,
    )


def user_target(user: User) -> Target:
    return Target(type="user", id=user.id, name=user.name)


def project_target(project: Project) -> Target:
    return Target(type="project", id=project.id, name=project.name)


def secret_target(secret: Secret) -> Target:
    return Target(type="secret", id=secret.id, name=secret.name)
