"""Projects with their members, secrets, quotas and backends; users."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chalicelib.domain.access_tokens import AccessToken
from chalicelib.domain.backends import Configured
from chalicelib.domain.instants import iso
from chalicelib.domain.tenants import Project, ProjectRole, Secret, User
from chalicelib.usecases.operator.backends import shown

if TYPE_CHECKING:
    from chalicelib import contract


def project_path(name: str) -> str:
    return f"/api/v1/projects/{name}"


def user_path(name: str) -> str:
    return f"/api/v1/users/{name}"


def project_json(project: Project, owner: User) -> contract.V1Project:
    return {
        "id": project.id,
        "name": project.name,
        "url": project_path(project.name),
        "owner": owner.name,
        "public": project.is_public,
        "created_at": iso(project.created_at),
    }


def member_json(user_name: str, role: ProjectRole, project_name: str) -> contract.V1Member:
    return {"user": user_name, "role": role.value, "url": f"{project_path(project_name)}/members/{user_name}"}


def secret_json(secret: Secret, project_name: str) -> contract.V1SecretSummary:
    return {
        "name": secret.name,
        "url": f"{project_path(project_name)}/secrets/{secret.name}",
        "updated_at": iso(secret.updated_at),
    }


def backend_json(backend: Configured, project_name: str) -> contract.V1Backend:
    return {
        "type": backend.type,
        "url": f"{project_path(project_name)}/backends/{backend.type}",
        "source": "file" if backend.from_file else "api",
        "config": shown(backend),
        "changed_at": iso(backend.changed_at),
    }


def caller_json(user: User, token: AccessToken | None) -> contract.V1Caller:
    held: contract.V1CallerToken | None = None
    if token is not None:
        held = {"verbs": [verb.value for verb in token.verbs], "projects": [each.name for each in token.projects]}
    return {**user_json(user), "token": held}


def user_json(user: User) -> contract.V1User:
    return {
        "id": user.id,
        "name": user.name,
        "url": user_path(user.name),
        "role": user.role.value,
        "email": user.email,
        "active": user.active,
        "created_at": iso(user.created_at),
    }
