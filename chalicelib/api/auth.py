"""Authentication and authorisation of callers.

This takes two reads of two or three records each: the token and the project's name, then the records that they point
to. The targets of recent names are cached as hints, with which the second read is enough: the user's record contains
the hash of their token, and the project's record its name and whether it exists. If these don't match, the names are
read again. So nothing that grants access is cached: revoking a token, deactivating a user or removing a member takes
effect at once.

An access token contains the id of its user, so it needs no more reads than a user's own token: its record is read
together with the user's. If its claims aren't enough for the route, nothing is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from chalicelib.api.route import Access, Route
from chalicelib.domain import access_tokens, keys
from chalicelib.domain.access_tokens import AccessToken, TokenClaims
from chalicelib.domain.keys import Key
from chalicelib.domain.tenants import GlobalRole, Member, Permissions, Project, ProjectRole, User, hash_token
from chalicelib.engine.bootstrap_tokens import keyed
from chalicelib.engine.ports import Clock
from chalicelib.errors import Forbidden, ProjectNotFound, Unauthenticated
from chalicelib.store import nouns
from chalicelib.store.cache import Lru
from chalicelib.store.port import Record, Store
from chalicelib.usecases.people import rights_revision

FIRST_MESSAGE = 256 * 1024  # bytes: it contains facts and texts, but no output
_ENOUGH = {
    Access.visitor: frozenset(ProjectRole),
    Access.member: frozenset(ProjectRole),
    Access.manager: frozenset({ProjectRole.manager, ProjectRole.admin}),
    Access.project_admin: frozenset({ProjectRole.admin}),
}
_BAD_TOKEN = "Invalid token"  # noqa: S105 - no token
_UNKNOWN_CALLER = "Not authenticated: send the token as `Authorization: Bearer <token>`"


@dataclass(frozen=True)
class Caller:
    user: User | None = None
    project: Project | None = None
    role: ProjectRole | None = None
    token: AccessToken | None = None  # unless it is the user's own, or a sign-on's


class DoorPorts(Protocol):
    """What authorisation needs. `name_hints`: recent targets of the names of tokens and projects."""

    @property
    def store(self) -> Store: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def permissions(self) -> Permissions: ...

    @property
    def name_hints(self) -> Lru[str]: ...

    @property
    def install_key(self) -> bytes: ...


def bearer(headers: Mapping[str, str]) -> str:
    """The token of the Authorization header, or an empty string."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def authorise(plane: DoorPorts, route: Route, headers: Mapping[str, str], project_name: str | None) -> Caller:
    """The caller of a route, or Forbidden. A project that the caller may not see gets the same answer as one that
    doesn't exist, so nobody can probe for names; only admins, who see all, get ProjectNotFound."""
    access, token = route.access, bearer(headers)
    if access is not Access.public and not token:
        raise Unauthenticated(_UNKNOWN_CALLER)
    if access in (Access.public, Access.agent):
        return Caller()
    if access is Access.directory:
        from chalicelib.usecases.people import directory_tokens  # most calls are people's

        return Caller(directory_tokens.caller(plane.store, token))
    hashed = hash_token(token)
    entry: AccessToken | None = None
    if access_tokens.FORM.fullmatch(token):
        claims = _enough_claims(plane, token, route, project_name)
        user, entry, where = _by_access_token(plane, claims, hashed, project_name)
    else:
        names = [keys.token(hashed)] if project_name is None else [keys.token(hashed), keys.project_name(project_name)]
        user_record, *where = _by_hints(plane.store, plane.name_hints, names) or _by_names(
            plane.store, plane.name_hints, names
        )
        user = _user(plane.store, user_record, hashed, plane.clock)
    if access is Access.admin and user.role is not GlobalRole.admin:
        raise Forbidden("Only a global admin may do this")
    if project_name is None:
        return Caller(user, token=entry)
    try:
        caller = _within(user, where, project_name, entry)
    except (Forbidden, ProjectNotFound):
        ended = _ended_by(plane, user, headers, project_name) if route.ends_project else None
        if ended is None:
            raise
        return Caller(user, ended, None, entry)
    if not _enough(caller, access, plane.permissions):
        raise Forbidden("Access denied: your role in this project doesn't allow this")
    return caller


def check_agent(store: Store, headers: Mapping[str, str], size: int) -> None:
    """Raises Forbidden for a credential that no instance has. A bootstrap token can be checked only with its message,
    which names the instance, so it passes if the message is no larger than a first one."""
    from chalicelib.domain.instances import Presence
    from chalicelib.usecases.agents.credentials import holds, instance_of

    credential = bearer(headers)
    instance_id = instance_of(credential)
    if instance_id == credential and size <= FIRST_MESSAGE:
        return
    presence = nouns.find(store, Presence, keys.presence(instance_id)) if instance_id else None
    if presence is None or not holds(presence, credential):
        raise Forbidden("This credential doesn't belong to an instance")


def _by_hints(store: Store, name_hints: Lru[str], names: Sequence[Key]) -> list[Record | None]:
    """The records of the user, the project and the membership if the hints still hold; otherwise an empty list."""
    ids = [name_hints.peek(name) for name in names]
    if ids[0] is None or None in ids:
        return []
    found = store.get_many([keys.user(ids[0]), *_in_project(ids[0], *ids[1:])])
    user = None if found[0] is None else nouns.read(User, found[0])
    if user is None or keys.token(user.token_hash) != names[0]:
        return []
    if len(names) == 1:
        return found
    return found if _is_project(found[1], names[1]) else []


def _by_names(store: Store, name_hints: Lru[str], names: Sequence[Key]) -> list[Record | None]:
    """The same records, found by their names. Of tokens only a user's own gets a hint: the user's record verifies
    it."""
    ids = [None if record is None else nouns.pointed(record) for record in store.get_many(names)]
    if ids[0] is None:
        raise Unauthenticated(_BAD_TOKEN)
    found = store.get_many([keys.user(ids[0]), *_in_project(ids[0], *ids[1:])])
    if found[0] is not None and keys.token(nouns.read(User, found[0]).token_hash) == names[0]:
        for name, target in zip(names, ids, strict=True):
            if target is not None:
                name_hints.put(name, target)
    return found


def _in_project(user_id: str, project_id: str | None = None) -> list[Key]:
    """The keys in a project that are read together with the user, because each read is a call to the table."""
    return [] if project_id is None else [keys.project(project_id), keys.member(project_id, user_id)]


def _enough_claims(plane: DoorPorts, token: str, route: Route, project_name: str | None) -> TokenClaims:
    """The claims of an access token. Raises Forbidden, before anything is read, if they aren't enough for the route."""
    claims = access_tokens.claims_of(keyed(plane.install_key, access_tokens.SIGNING), token)
    if claims is None:
        raise Unauthenticated(_BAD_TOKEN)
    if ended := access_tokens.ended(claims, plane.clock.now()):
        raise Unauthenticated(ended)
    if refused := access_tokens.refusal(claims, route.verb, project_name, narrowed=route.narrowed):
        raise Forbidden(refused)
    return claims


def _by_access_token(
    plane: DoorPorts, claims: TokenClaims, hashed: str, project_name: str | None
) -> tuple[User, AccessToken, Sequence[Record | None]]:
    """The token's user, the token, and the records of the project and the membership. Raises Forbidden."""
    entry_record, user_record, *where = _token_records(plane, claims, hashed, project_name)
    entry = None if entry_record is None else nouns.read(AccessToken, entry_record)
    user = None if user_record is None else nouns.read(User, user_record)
    if entry is None or user is None or (entry.user_id, entry.token_hash) != (user.id, hashed):
        raise Unauthenticated("This access token was revoked")
    if entry.signed_off(user.signed_off_at):
        raise Unauthenticated("The sign-on with which this access token was made was ended")
    if not rights_revision.lasts(plane.store, user, entry):
        made_with = "The token with which this one was made was revoked or replaced"
        raise Unauthenticated(made_with if entry.made_with else "The run of this access token has ended")
    if not user.active:
        raise Forbidden(f"The user {user.name} is deactivated")
    return rights_revision.acting(user, entry), entry, where


def _token_records(plane: DoorPorts, claims: TokenClaims, hashed: str, project_name: str | None) -> list[Record | None]:
    """The records of the token, the user, the project and the membership: with one read if the project has a hint."""
    user_id, store = claims.user_id, plane.store
    own = [keys.run_access(claims.run_id) if claims.run_id else keys.access_token(hashed), keys.user(user_id)]
    if project_name is None:
        return store.get_many(own)
    name = keys.project_name(project_name)
    hint = plane.name_hints.peek(name)
    if hint is not None:
        found = store.get_many([*own, *_in_project(user_id, hint)])
        if _is_project(found[2], name):
            return found
    *found, target = store.get_many([*own, name])
    if target is None:
        return found
    plane.name_hints.put(name, nouns.pointed(target))
    return [*found, *store.get_many(_in_project(user_id, nouns.pointed(target)))]


def _is_project(record: Record | None, name: Key) -> bool:
    project = None if record is None else nouns.read(Project, record)
    return project is not None and not project.deleted and keys.project_name(project.name) == name


def _user(store: Store, record: Record | None, hashed: str, clock: Clock) -> User:
    user = None if record is None else nouns.read(User, record)
    if user is None or not rights_revision.good(store, user, hashed, clock.now()):
        raise Unauthenticated(_BAD_TOKEN)
    if not user.active:
        raise Forbidden(f"The user {user.name} is deactivated")
    return user


def _within(user: User, records: Sequence[Record | None], name: str, entry: AccessToken | None) -> Caller:
    """The user in a project. `records`: the project's and the membership's; None for a name that doesn't exist.
    `entry`: the access token, if it is one."""
    project = nouns.read(Project, records[0]) if records and records[0] is not None else None
    if project is not None and entry is not None and not entry.includes(project.id):
        raise Forbidden(f"This access token is for an earlier project {name[:80]}, which was deleted")
    if project is not None and not project.deleted:
        given = None if records[1] is None else nouns.read(Member, records[1]).role
        role = rights_revision.acting_role(given, entry)
        if role is not None or project.is_public or user.role is GlobalRole.admin:
            return Caller(user, project, role, entry)
    if user.role is GlobalRole.admin:
        raise ProjectNotFound(f"There is no project {name[:80]}")
    raise Forbidden(f"There is no project {name[:80]}, or you aren't a member of it")


def _ended_by(plane: DoorPorts, user: User, headers: Mapping[str, str], name: str) -> Project | None:
    """The project of this name that the user deleted with a request of this `Idempotency-Key`, which is repeated."""
    from chalicelib.domain.keyed_requests import KEY, KeyedRequest, key_hash

    if KEY not in headers:
        return None
    known = nouns.find(plane.store, KeyedRequest, keys.keyed_request(user.id, key_hash(headers[KEY])))
    if known is None or not known.project_id or plane.clock.now() >= known.ends_at:
        return None
    project = nouns.find(plane.store, Project, keys.project(known.project_id))
    return project if project is not None and project.deleted and project.name == name else None


def _enough(caller: Caller, access: Access, permissions: Permissions) -> bool:
    user, project = caller.user, caller.project
    assert user is not None and project is not None, "asked of a caller in a project"
    if access is Access.user or (access is Access.visitor and project.is_public):
        return True
    if access is Access.keeper:
        return permissions.manage_secrets(user, caller.role)
    return user.role is GlobalRole.admin or caller.role in _ENOUGH[access]
