"""The first start of a control plane creates an admin, who can log in, and a project to work in.

It may run at every start: what exists is left alone, even if another process created it a moment ago. If the given
admin token differs from the stored one, it replaces that, because this is how a lost token is replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from chalicelib.domain import keys
from chalicelib.domain.events import EVERYWHERE, EventType
from chalicelib.domain.keys import Key
from chalicelib.domain.noun import Noun
from chalicelib.domain.tenants import GlobalRole, Member, Project, ProjectRole, User, hash_token
from chalicelib.errors import Bug, Conflict, Invalid
from chalicelib.store import nouns
from chalicelib.store.port import Change, Store
from chalicelib.usecases.audit_events import audit_event, project_target, user_target
from chalicelib.usecases.context import TRIES
from chalicelib.usecases.people import rights_revision
from chalicelib.usecases.people.users import make_user, move_token
from chalicelib.usecases.ports import AccountPorts

N = TypeVar("N", bound=Noun)

ADMIN = "admin"
MAIN = "main"


def first_start(plane: AccountPorts, token: str | None = None) -> tuple[str | None, Project]:
    """The admin's token if this start created or changed it (it can't be read back later), and project `main`."""
    if token is not None and (not token or not token.isascii() or any(c.isspace() for c in token)):
        raise Invalid("The admin token is empty, or contains a space or a non-ASCII character.", hint="Choose another.")
    for _ in range(TRIES):
        try:
            return _ensure(plane, token)
        except Conflict:
            continue  # another process was faster: try again with its result
    raise Bug("the admin and its project keep changing while this server starts")


def _ensure(plane: AccountPorts, token: str | None) -> tuple[str | None, Project]:
    store, now = plane.store, plane.clock.now()
    changes: list[Change] = []
    shown: str | None = None
    admin = _named(store, User, keys.user_name(ADMIN), keys.user)
    if admin is None:
        shown = token or plane.random_token()
        admin, created = make_user(plane.seal, plane.random_id(), ADMIN, GlobalRole.admin, token=shown, now=now)
        changes += [*created, *rights_revision.admins_after(store, admin)]
    elif token is not None and hash_token(token) != admin.token_hash:
        shown = token
        changes += move_token(admin, token)
        seed = f"{admin.id}/{admin.version}"
        event = audit_event(
            EventType.token_replaced, now, user_target(admin), project_id=EVERYWHERE, seed=seed, detail="at start"
        )
        changes.append(nouns.put(event))
    project = _named(store, Project, keys.project_name(MAIN), keys.project)
    if project is None:
        project = Project(id=plane.random_id(), name=MAIN, owner_id=admin.id, created_at=now)
        member = Member(project_id=project.id, user_id=admin.id, role=ProjectRole.admin)
        event = audit_event(EventType.created, now, project_target(project), project_id=project.id, seed=project.id)
        changes += [nouns.put(project), nouns.pointer(keys.project_name(MAIN), project.id)]
        changes += [nouns.put(member), nouns.put(event)]
    if changes:
        store.commit(changes)
    return shown, project


def _named(store: Store, kind: type[N], name: Key, key: Callable[[str], Key]) -> N | None:
    found = nouns.find_target(store, name)
    return None if found is None else nouns.find(store, kind, key(found[0]))
