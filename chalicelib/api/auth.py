"""Authentication and authorisation of callers.

Two reads of two or three records each: first the token and the project's name, then what they point at. Nothing is
cached, so revoking a token, deactivating a user or removing a member takes effect at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from chalicelib.api.route import Access
from chalicelib.domain import keys
from chalicelib.domain.tenants import GlobalRole, Member, Permissions, Project, ProjectRole, User, hash_token
from chalicelib.engine.ports import Clock
from chalicelib.errors import Forbidden, ProjectNotFound
from chalicelib.store import nouns
from chalicelib.store.port import Store
from chalicelib.usecases import rights

FIRST_MESSAGE = 256 * 1024  # bytes: facts and texts, no output
_ENOUGH = {
    Access.visitor: frozenset(ProjectRole),
    Access.member: frozenset(ProjectRole),
    Access.manager: frozenset({ProjectRole.manager, ProjectRole.admin}),
    Access.project_admin: frozenset({ProjectRole.admin}),
}
_UNKNOWN_CALLER = "Not authenticated: send the token as `Authorization: Bearer <token>`"


@dataclass(frozen=True)
class Caller:
    user: User | None = None
    project: Project | None = None
    role: ProjectRole | None = None


def bearer(headers: Mapping[str, str]) -> str:
    """The token of the Authorization header, or an empty string."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def authorise(
    store: Store,
    access: Access,
    headers: Mapping[str, str],
    project_name: str | None,
    permissions: Permissions,
    clock: Clock,
) -> Caller:
    """The caller of a route, or Forbidden. A project that the caller may not see gets the same answer as one that
    doesn't exist, so nobody can probe for names; only admins, who see all, get ProjectNotFound."""
    token = bearer(headers)
    if access is not Access.public and not token:
        raise Forbidden(_UNKNOWN_CALLER)
    if access in (Access.public, Access.agent):
        return Caller()
    hashed = hash_token(token)
    names = [keys.token(hashed)] if project_name is None else [keys.token(hashed), keys.project_name(project_name)]
    found = [None if record is None else nouns.pointed(record) for record in store.get_many(names)]
    user = _user(store, found[0], hashed, clock)
    if access is Access.admin and user.role is not GlobalRole.admin:
        raise Forbidden("Only a global admin may do this")
    if project_name is None:
        return Caller(user)
    caller = _within(store, user, found[1], project_name)
    if not _enough(caller, access, permissions):
        raise Forbidden("Access denied: your role in this project doesn't allow this")
    return caller


def check_agent(store: Store, headers: Mapping[str, str], size: int) -> None:
    """Raises Forbidden for a credential that no instance has. A bootstrap token can only be checked together with its
    message, which says whose it is; so it is let through, with a message of the size that a first one has."""
    from chalicelib.domain.instances import Presence
    from chalicelib.usecases.agent_credentials import holds, instance_of

    credential = bearer(headers)
    instance_id = instance_of(credential)
    if instance_id == credential and size <= FIRST_MESSAGE:
        return
    presence = nouns.find(store, Presence, keys.presence(instance_id)) if instance_id else None
    if presence is None or not holds(presence, credential):
        raise Forbidden("This credential doesn't belong to an instance")


def _user(store: Store, user_id: str | None, hashed: str, clock: Clock) -> User:
    user = nouns.find(store, User, keys.user(user_id)) if user_id else None
    if user is None or not rights.good(store, user, hashed, clock.now()):
        raise Forbidden("Invalid token")
    if not user.active:
        raise Forbidden(f"The user {user.name} is deactivated")
    return user


def _within(store: Store, user: User, project_id: str | None, name: str) -> Caller:
    records = [] if project_id is None else store.get_many([keys.project(project_id), keys.member(project_id, user.id)])
    project = nouns.read(Project, records[0]) if records and records[0] is not None else None
    if project is not None and not project.deleted:
        role = None if records[1] is None else nouns.read(Member, records[1]).role
        if role is not None or project.is_public or user.role is GlobalRole.admin:
            return Caller(user, project, role)
    if user.role is GlobalRole.admin:
        raise ProjectNotFound(f"There is no project {name[:80]}")
    raise Forbidden(f"There is no project {name[:80]}, or you aren't a member of it")


def _enough(caller: Caller, access: Access, permissions: Permissions) -> bool:
    user, project = caller.user, caller.project
    assert user is not None and project is not None, "asked of a caller in a project"
    if access is Access.user or (access is Access.visitor and project.is_public):
        return True
    if access is Access.keeper:
        return permissions.manage_secrets(user, caller.role)
    return user.role is GlobalRole.admin or caller.role in _ENOUGH[access]
