"""Groups of directories, and the rights that they give: those which the server's file gives to groups of this name at a
provider of accounts (`sign_on`), for as long as the user is in the group. What a person or a sign-on gave stays.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Protocol

from chalicelib.domain import keys
from chalicelib.domain.directory import GIVEN_BY, MOST_MEMBERS, DirectoryGroup, admins_given, roles_given
from chalicelib.domain.events import EVERYWHERE, EventType
from chalicelib.domain.tenants import GlobalRole, Project, User
from chalicelib.errors import AlreadyExists, NotFound, Refused, WrongScim
from chalicelib.store import nouns
from chalicelib.store.listing import every
from chalicelib.store.port import Change, Delete, Store
from chalicelib.usecases.audit_events import audit_event, user_target
from chalicelib.usecases.people import rights_revision
from chalicelib.usecases.people.projects import give_roles
from chalicelib.usecases.ports import AccountPorts, RecordPorts

if TYPE_CHECKING:
    from chalicelib.domain.specs.sign_on import SignOnGroup
    from chalicelib.usecases.context import SignsOn

log = logging.getLogger(__name__)


class GroupPorts(AccountPorts, Protocol):
    @property
    def sign_on(self) -> Mapping[str, SignsOn]: ...


def groups(store: Store) -> list[DirectoryGroup]:
    """All of them, oldest first."""
    found = [nouns.read(DirectoryGroup, record) for record in every(store, keys.DIRECTORY, "group/")]
    return sorted(found, key=lambda group: (group.created_at, group.id))


def group(store: Store, group_id: str) -> DirectoryGroup:
    found = nouns.find(store, DirectoryGroup, keys.directory_group(group_id))
    if found is None:
        raise NotFound(f"There is no group with the id {group_id[:80]!r}.")
    return found


def save(plane: GroupPorts, actor: User, wanted: DirectoryGroup) -> DirectoryGroup:
    """A new group, or a change of one, and the rights that follow."""
    known = groups(plane.store)
    before = next((each for each in known if each.id == wanted.id), None)
    if any(each.name == wanted.name and each.id != wanted.id for each in known):
        raise AlreadyExists(f"There is a group {wanted.name!r} already.")
    if len(wanted.members) > MOST_MEMBERS:
        raise WrongScim(f"A group has at most {MOST_MEMBERS} members.", "tooMany", hint="Split it into several.")
    _check(plane.store, set(wanted.members) - set(() if before is None else before.members))
    if wanted != before:
        plane.store.commit([nouns.put(wanted)])
    _settle(plane, actor, before, wanted)  # also if nothing changed: a request that was cut off comes again
    return wanted


def remove(plane: GroupPorts, actor: User, group_id: str) -> None:
    found = group(plane.store, group_id)
    plane.store.commit([nouns.put(found.with_(members=()))])
    _settle(plane, actor, found, None)  # before it is gone, so that a request that was cut off can come again
    plane.store.commit([Delete(keys.directory_group(group_id))])


def forget(plane: RecordPorts, user_id: str) -> None:
    """A user who is gone is in no group."""
    for each in groups(plane.store):
        if user_id in each.members:
            plane.store.commit([nouns.put(each.with_(members=tuple(one for one in each.members if one != user_id)))])


def _check(store: Store, added: Collection[str]) -> None:
    ids = sorted(added)
    found = store.get_many([keys.user(user_id) for user_id in ids])
    missing = [user_id for user_id, record in zip(ids, found, strict=True) if record is None]
    if missing:
        raise WrongScim(
            f"There is no user with the id {missing[0][:80]!r}.", "invalidValue", hint="Members are ids of `/Users`."
        )


# --- rights -----------------------------------------------------------------------------------------------------------


def _settle(plane: GroupPorts, actor: User, before: DirectoryGroup | None, after: DirectoryGroup | None) -> None:
    """Give everybody the roles that groups give now, wherever this group gives one."""
    rules = [rule for provider in plane.sign_on.values() for rule in provider.rules.groups]
    names = {each.name for each in (before, after) if each is not None}
    concerned = [rule for rule in rules if rule.name in names]
    if not concerned:
        return
    known = groups(plane.store)
    for name in {each.name for rule in concerned for each in rule.projects}:
        target = nouns.find_target(plane.store, keys.project_name(name))
        project = None if target is None else nouns.find(plane.store, Project, keys.project(target[0]))
        if project is None or project.deleted:
            log.warning("groups of a directory give a role in the project %s, which doesn't exist", name)
            continue
        roles = roles_given(known, rules, name)
        there = _existing(plane.store, roles)
        give_roles(plane, actor, project, {each: role for each, role in roles.items() if each in there}, GIVEN_BY)
    if any(rule.admin for rule in concerned):
        touched = {user_id for each in (before, after) if each is not None for user_id in each.members}
        _settle_admins(plane, actor, known, rules, touched)


def _existing(store: Store, ids: Collection[str]) -> dict[str, User]:
    found = nouns.find_many(store, User, [keys.user(user_id) for user_id in ids])
    return {user.id: user for user in found if user is not None}


def _settle_admins(
    plane: AccountPorts,
    actor: User,
    known: Collection[DirectoryGroup],
    rules: Collection[SignOnGroup],
    touched: Collection[str],
) -> None:
    wanted = admins_given(known, rules)
    for user in _existing(plane.store, {*wanted, *touched, *rights_revision.admins(plane.store).ids}).values():
        is_admin = user.role is GlobalRole.admin
        if user.id in wanted and not is_admin:
            _promote(plane, actor, user.with_(role=GlobalRole.admin, admin_by=GIVEN_BY))
        elif user.id not in wanted and is_admin and user.admin_by == GIVEN_BY:
            _promote(plane, actor, user.with_(role=GlobalRole.user, admin_by=""))


def _promote(plane: AccountPorts, actor: User, changed: User) -> None:
    target, seed = user_target(changed), f"{changed.id}/{changed.version}"
    detail = f"{changed.role}, as groups of a directory say"
    event = audit_event(
        EventType.changed, plane.clock.now(), target, project_id=EVERYWHERE, seed=seed, actor=actor, detail=detail
    )
    changes: list[Change] = [nouns.put(changed), nouns.put(event)]
    try:
        admins = rights_revision.admins_after(plane.store, changed)
    except Refused as refused:  # the last admin
        log.warning("%s stays an admin, although groups of a directory don't say so: %s", changed.name, refused)
        return
    rights_revision.commit(plane, [*changes, *admins])
