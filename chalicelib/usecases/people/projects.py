"""Projects and their members.

A membership is one record, so deleting it removes access with the next request.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import orjson

from chalicelib.domain import keys
from chalicelib.domain.closings import Closing
from chalicelib.domain.events import EventType
from chalicelib.domain.fleets import FleetStatus
from chalicelib.domain.instants import MINUTE
from chalicelib.domain.tenants import PROJECT_NAME, GlobalRole, Member, Project, ProjectRole, User
from chalicelib.errors import AlreadyExists, Conflict, Contended, Forbidden, Invalid, NotFound, Problem, Refused
from chalicelib.store import nouns
from chalicelib.store.listing import every
from chalicelib.store.port import MAX_CHANGES, Change, Check, Delete, Put, Record, Store
from chalicelib.usecases.audit_events import audit_event, project_target
from chalicelib.usecases.context import TRIES
from chalicelib.usecases.people import rights_revision
from chalicelib.usecases.people.users import find_user, memberships, named_user
from chalicelib.usecases.ports import AccountPorts, ChangePorts, RecordPorts

log = logging.getLogger(__name__)

MAX_OWNED = 10  # projects that a user who isn't an admin may own
MAX_MEMBERS = MAX_CHANGES // 2 - 1  # members that one request may change: each is a record and an event


@dataclass(frozen=True)
class ProjectView:
    project: Project
    owner: User
    members: tuple[tuple[Member, User], ...]


def view(store: Store, project: Project) -> ProjectView:
    members = _members(store, project.id)
    wanted = dict.fromkeys([project.owner_id, *(member.user_id for member in members)])
    found = nouns.find_many(store, User, [keys.user(user_id) for user_id in wanted])
    users = {user.id: user for user in found if user is not None}
    known = tuple((member, users[member.user_id]) for member in members if member.user_id in users)
    return ProjectView(project, users.get(project.owner_id) or _deleted_owner(project), known)


def listed(store: Store, projects: Sequence[Project], reader: User) -> list[ProjectView]:
    """Projects with their owners and without their members: one read for all owners but the reader, who is known."""
    ids = [each for each in dict.fromkeys(project.owner_id for project in projects) if each != reader.id]
    found = nouns.find_many(store, User, [keys.user(each) for each in ids]) if ids else []
    owners = {user.id: user for user in (reader, *found) if user}
    return [ProjectView(project, owners.get(project.owner_id) or _deleted_owner(project), ()) for project in projects]


def _deleted_owner(project: Project) -> User:
    """A stand-in for an owner who was deleted."""
    return User(id=project.owner_id, name="(deleted)", active=False, created_at=project.created_at, token_hash="")


def _members(store: Store, project_id: str) -> list[Member]:
    found = [nouns.read(Member, record) for record in every(store, f"project/{project_id}", "member/")]
    return sorted(found, key=lambda member: (member.num, member.user_id))


def visible(store: Store, user: User, *, not_joined: bool) -> list[Project]:
    """The user's projects; with `not_joined` the public ones too, and for an admin all. Newest first."""
    everything = user.role is GlobalRole.admin
    joined = set() if everything and not_joined else {member.project_id for member in memberships(store, user)}
    ids: Iterable[str] = joined
    if not_joined:
        named = [orjson.loads(record.body) for record in every(store, "projects", "name/")]
        ids = [each["id"] for each in named if everything or each["id"] in joined or each.get("public", True)]
    found = nouns.find_many(store, Project, [keys.project(project_id) for project_id in ids])
    shown = [
        project
        for project in found
        if project is not None and not project.deleted and (project.id in joined or project.is_public or everything)
    ]
    return sorted(shown, key=lambda project: (project.created_at, project.id), reverse=True)


def name_of(project: Project, version: int = 0) -> Put:
    """The record of the project's name. It says whether the project is public, so that only those projects are read
    that the caller may see; older records don't say it, so for them the project is read."""
    body = orjson.dumps({"id": project.id, "public": project.is_public})
    return Put(Record(keys.project_name(project.name), version + 1, body), expect=version)


def without_fleets(plane: RecordPorts, user: User) -> list[Project]:
    return [project for project in visible(plane.store, user, not_joined=False) if not _live_fleets(plane, project)]


def create_project(plane: ChangePorts, actor: User, name: str, *, is_public: bool = False, new: str = "") -> Project:
    """A new project. `new`: its id, if that is known before."""
    if not PROJECT_NAME.fullmatch(name):
        raise Invalid([Problem("a name has 1 to 50 letters, digits, - and _", path="project_name")])
    if not plane.permissions.create_projects(actor):
        raise Refused("Only global admins may create projects here.", hint="Ask one of them to create it.")
    now = plane.clock.now()
    project = Project(id=new or plane.random_id(), name=name, owner_id=actor.id, created_at=now, is_public=is_public)
    member = Member(project_id=project.id, user_id=actor.id, role=ProjectRole.admin)
    event = audit_event(
        EventType.created, now, project_target(project), project_id=project.id, seed=project.id, actor=actor
    )
    changes: list[Change] = [nouns.put(project), name_of(project), nouns.put(member), nouns.put(event)]
    for _ in range(TRIES):
        if nouns.find_target(plane.store, keys.project_name(name)) is not None:
            raise AlreadyExists(f"There is a project {name!r} already.", hint="Choose another name.")
        try:
            plane.store.commit([*changes, *_one_more(plane.store, actor)])
        except Conflict:
            continue  # the name was taken, or the same user created another project: try again
        return project
    raise Refused("You are creating many projects at once.", hint="Try again.")


def _one_more(store: Store, actor: User) -> list[Change]:
    """Refuses a user who already owns as many projects as allowed. The user's own record is written with the new
    project, so that two created at once are both counted."""
    if actor.role is GlobalRole.admin:
        return []
    owner = nouns.find(store, User, keys.user(actor.id))
    if owner is None:
        raise NotFound(f"There is no user {actor.name!r}.")
    owned = [project for project in visible(store, owner, not_joined=False) if project.owner_id == owner.id]
    if len(owned) >= MAX_OWNED:
        raise Refused(f"You own {len(owned)} projects, the maximum for one user.", hint="Delete one first.")
    return [nouns.put(owner)]


def delete_projects(plane: RecordPorts, actor: User, names: Sequence[str]) -> None:
    """Deletes all of them or none: projects in use, or not the caller's to delete, are refused first."""
    found = [_named(plane.store, actor, name) for name in dict.fromkeys(names)]
    for project in found:
        _refuse_if_used(plane, project)
    for project in found:
        _delete(plane, actor, project)


def delete_project(plane: RecordPorts, actor: User, project: Project) -> None:
    """Deletes this project, and no later one of its name."""
    _refuse_if_used(plane, _still_named(plane.store, actor, project))
    _delete(plane, actor, project)


def _refuse_if_used(plane: RecordPorts, project: Project) -> None:
    if plane.read.live_runs(project.id):
        raise Refused(f"The project {project.name} has active runs.", hint="Stop them first: dstack stop NAME")
    if _live_fleets(plane, project):
        raise Refused(f"The project {project.name} has fleets.", hint="Delete them first: dstack fleet delete NAME")
    if plane.read.volumes(project.id):
        raise Refused(f"The project {project.name} has volumes.", hint="Delete them first: dstack volume delete NAME")
    if plane.read.gateways(project.id):
        raise Refused(f"The project {project.name} has gateways.", hint="Delete them first: dstack gateway delete NAME")


def _delete(plane: RecordPorts, actor: User, wanted: Project) -> None:
    """Nothing new can be applied to a deleted project (see `undeleted`), so a check after the deletion sees everything
    except a run that is just being submitted, which the submission itself stops. If something was applied just before,
    the deletion is undone; after a crash in between, closing the project settles it."""
    for _ in range(TRIES):
        project = _still_named(plane.store, actor, wanted)
        now = plane.clock.now()
        closing = Closing(id=project.id, began_at=now, due_at=now + MINUTE)
        event = _event(plane, EventType.deleted, project, actor)
        closed = nouns.put(project.with_(deleted=True))
        try:
            plane.store.commit([closed, nouns.put(closing), Delete(keys.project_name(project.name)), event])
        except Conflict:
            continue  # its members or its settings were changed: try again
        try:
            _refuse_if_used(plane, project)
        except Refused:
            _take_back(plane, actor, project.id)
            raise
        return
    raise Contended(f"The project {wanted.name} keeps changing.", hint="Try again.")


def _take_back(plane: RecordPorts, actor: User, project_id: str) -> None:
    project = nouns.find(plane.store, Project, keys.project(project_id))
    if project is None or not project.deleted:
        return
    event = _event(
        plane, EventType.changed, project, actor, "not deleted, because something was applied to it meanwhile"
    )
    back = nouns.put(project.with_(deleted=False))
    try:
        plane.store.commit([back, name_of(project), Delete(keys.closing(project.id)), event])
    except Conflict:
        log.warning("the project %s stays deleted: another one took its name", project.id)


def undeleted(store: Store, project: Project) -> Check:
    """The condition for applying anything but a run to a project: it is committed only if the project still exists.
    Raises NotFound if it doesn't."""
    found = nouns.find(store, Project, keys.project(project.id))
    if found is None or found.deleted:
        raise NotFound(f"There is no project {project.name!r}.")
    return Check(nouns.key_of(found), found.version)


def set_public(plane: RecordPorts, actor: User, project: Project, *, is_public: bool) -> Project:
    changed = project.with_(is_public=is_public)
    if changed != project:
        detail = "public" if is_public else "private"
        target = nouns.find_target(plane.store, keys.project_name(project.name))
        if target is None:
            raise NotFound(f"There is no project {project.name!r}.")
        event = _event(plane, EventType.changed, project, actor, detail)
        plane.store.commit([nouns.put(changed), name_of(changed, target[1]), event])
    return changed


# --- members ----------------------------------------------------------------------------------------------------------

Roles = Mapping[str, ProjectRole]  # by user name


def member(store: Store, project: Project, username: str) -> Member | None:
    user = find_user(store, username)
    return None if user is None else nouns.find(store, Member, keys.member(project.id, user.id))


def add_members(plane: AccountPorts, actor: User, project: Project, role: ProjectRole | None, wanted: Roles) -> None:
    """Add members or change their role. A manager can't change admins; anybody may join a public project as a user."""
    joins = project.is_public and list(wanted) == [actor.name] and wanted[actor.name] is ProjectRole.user
    if not joins or role is not None:
        _need(
            actor, role, ProjectRole.manager, ProjectRole.admin
        )  # checked before names are looked up, so that nobody can probe for them
    users = {name: named_user(plane.store, name) for name in wanted}
    known = {member.user_id: member for member in _members(plane.store, project.id)}
    after = dict(known)
    for name, new in wanted.items():
        user = users[name]
        old = known.get(user.id)
        if ProjectRole.admin in (new, old.role if old else None):
            _need(actor, role, ProjectRole.admin)
        num = old.num if old else max((member.num for member in after.values()), default=-1) + 1
        after[user.id] = (old or Member(project_id=project.id, user_id=user.id, role=new, num=num)).with_(
            role=new, given_by=""
        )
    _save(plane, actor, project, known, after)


def remove_members(
    plane: AccountPorts, actor: User, project: Project, role: ProjectRole | None, names: Sequence[str]
) -> None:
    """Remove members. A manager can't remove admins; anybody may leave."""
    if set(names) - {actor.name}:
        _need(actor, role, ProjectRole.manager, ProjectRole.admin)
    users = [named_user(plane.store, name) for name in dict.fromkeys(names)]
    known = {member.user_id: member for member in _members(plane.store, project.id)}
    after = dict(known)
    for user in users:
        member = known.get(user.id)
        if user.id != actor.id and member is not None and member.role is ProjectRole.admin:
            _need(actor, role, ProjectRole.admin)
        if member is None:
            raise NotFound(f"{user.name} is not a member of the project {project.name}.")
        del after[user.id]
    _save(plane, actor, project, known, after)


def give_role(plane: AccountPorts, user: User, project: Project, role: ProjectRole | None, provider: str) -> None:
    """Set the role that the user's groups at a provider of accounts give; None: no role. One given by a person
    stays."""
    known = {member.user_id: member for member in _members(plane.store, project.id)}
    old = known.get(user.id)
    if old is not None and (old.given_by != provider or old.role is role):
        return
    after = {user_id: member for user_id, member in known.items() if user_id != user.id}
    if role is not None:
        num = old.num if old else max((member.num for member in known.values()), default=-1) + 1
        new = old or Member(project_id=project.id, user_id=user.id, role=role, num=num, given_by=provider)
        after[user.id] = new.with_(role=role)
    _save(plane, user, project, known, after)


def give_roles(
    plane: AccountPorts, actor: User, project: Project, roles: Mapping[str, ProjectRole], given_by: str
) -> None:
    """Make these, by the user's id, the only roles in the project that `given_by` gives. One given by others stays, and
    so do its admins if there would be no other."""
    known = {member.user_id: member for member in _members(plane.store, project.id)}
    after = {user_id: member for user_id, member in known.items() if member.given_by != given_by}
    num = max((member.num for member in known.values()), default=-1)
    for user_id in (user_id for user_id in roles if user_id not in after):
        num += 1
        new = Member(project_id=project.id, user_id=user_id, role=roles[user_id], num=num, given_by=given_by)
        after[user_id] = known.get(user_id, new).with_(role=roles[user_id])
    if not any(member.role is ProjectRole.admin for member in after.values()):
        log.warning("the admins of %s stay, although groups don't say so: it would have no other", project.name)
        after |= {user_id: member for user_id, member in known.items() if member.role is ProjectRole.admin}
    changed = [user_id for user_id in {**known, **after} if known.get(user_id) != after.get(user_id)]
    admins = {user_id for user_id, member in after.items() if member.role is ProjectRole.admin}
    changed.sort(key=lambda user_id: user_id not in admins)  # first, so that at no time there is none
    for start in range(0, len(changed), MAX_MEMBERS):
        part = changed[start : start + MAX_MEMBERS]
        now = {user_id: member for user_id, member in known.items() if user_id not in part or user_id in after}
        now |= {user_id: after[user_id] for user_id in part if user_id in after}
        _save(plane, actor, project, known, now)
        known, project = now, project.with_(version=project.version + 1)


def set_members(plane: AccountPorts, actor: User, project: Project, wanted: Roles) -> None:
    """Make these the project's only members."""
    users = [named_user(plane.store, name) for name in wanted]
    known = {member.user_id: member for member in _members(plane.store, project.id)}
    after = {}
    for num, (user, new) in enumerate(zip(users, wanted.values(), strict=True)):
        old = known.get(user.id) or Member(project_id=project.id, user_id=user.id, role=new)
        after[user.id] = old.with_(role=new, num=num, given_by="")
    _save(plane, actor, project, known, after)


def _save(
    plane: AccountPorts, actor: User, project: Project, known: Mapping[str, Member], after: Mapping[str, Member]
) -> None:
    if not any(member.role is ProjectRole.admin for member in after.values()):
        raise Refused(f"The project {project.name} would have no admin.", hint="Make another member its admin first.")
    changes: list[Change] = [nouns.put(member) for user_id, member in after.items() if member != known.get(user_id)]
    changes += [
        Delete(nouns.key_of(member), member.version) for user_id, member in known.items() if user_id not in after
    ]
    if len(changes) > MAX_MEMBERS:
        raise Invalid(f"This changes {len(changes)} members; one request can change {MAX_MEMBERS}.")
    if changes:
        # The project is written too, so that if two callers remove the last two admins, one gets a conflict.
        event = _event(plane, EventType.members_changed, project, actor)
        rights_revision.commit(plane, [*changes, nouns.put(project), event])


def _need(actor: User, role: ProjectRole | None, *enough: ProjectRole) -> None:
    if actor.role is not GlobalRole.admin and role not in enough:
        raise Forbidden("Access denied: your role in this project doesn't allow this")


# --- inside -----------------------------------------------------------------------------------------------------------


def _named(store: Store, actor: User, name: str) -> Project:
    target = nouns.find_target(store, keys.project_name(name)) if PROJECT_NAME.fullmatch(name) else None
    project = None if target is None else nouns.find(store, Project, keys.project(target[0]))
    member = None if project is None else nouns.find(store, Member, keys.member(project.id, actor.id))
    seen = (
        member is not None or actor.role is GlobalRole.admin
    )  # the same answer for another's project as for one that doesn't exist
    if project is None or project.deleted or not seen:
        raise NotFound(f"There is no project {name[:80]!r}.")
    _need(actor, None if member is None else member.role, ProjectRole.admin)
    return project


def _still_named(store: Store, actor: User, project: Project) -> Project:
    """The project as it is now. Raises NotFound if its name is a later one's."""
    found = _named(store, actor, project.name)
    if found.id != project.id:
        raise NotFound(f"The project {project.name} was deleted, and another has its name now.")
    return found


def _live_fleets(plane: RecordPorts, project: Project) -> bool:
    return any(fleet.status is not FleetStatus.terminated for fleet in plane.read.fleets(project.id))


def _event(plane: RecordPorts, type: EventType, project: Project, actor: User, detail: str = "") -> Change:
    seed = f"{project.id}/{project.version}"
    target = project_target(project)
    now = plane.clock.now()
    return nouns.put(audit_event(type, now, target, project_id=project.id, seed=seed, actor=actor, detail=detail))
