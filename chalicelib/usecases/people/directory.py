"""Users as directories see and change them by SCIM.

A directory sees all users. One whom it didn't make is called by their address, or else by their name, so that it finds
them and adopts them with its first change. The user's name here is taken from the directory only once, as it is at a
sign-on. Whoever is deactivated loses at once what they could come back with: their token, their sign-ons and their
access tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

from chalicelib.domain import keys
from chalicelib.domain.directory import DirectoryUser, Person, name_from
from chalicelib.domain.events import EVERYWHERE, EventType
from chalicelib.domain.tenants import GlobalRole, User
from chalicelib.errors import AlreadyExists, NotFound, WrongScim
from chalicelib.store import nouns
from chalicelib.store.listing import every
from chalicelib.store.port import Change, Delete, Put, Store
from chalicelib.usecases.audit_events import audit_event, user_target
from chalicelib.usecases.people import rights_revision, users
from chalicelib.usecases.ports import AccountPorts, RecordPorts


@dataclass(frozen=True)
class Seen:
    """A user, and what a directory says about them."""

    user: User
    said: DirectoryUser | None = None  # None: nothing yet

    @property
    def person(self) -> Person:
        user, said = self.user, self.said
        known = {} if said is None else said.model_dump(exclude={"user_id"})
        unsaid = {"user_name": user.email or user.name}
        return Person(**{**unsaid, **known, "email": user.email or "", "active": user.active})

    @property
    def called(self) -> frozenset[str]:
        """What a directory may call them, in lower case."""
        own = (self.user.name, self.user.email or "") if self.said is None else (self.said.user_name,)
        return frozenset(each.lower() for each in own if each)


def people(plane: RecordPorts) -> list[Seen]:
    """All users, oldest first."""
    ids = [nouns.pointed(record) for record in every(plane.store, "users", "name/")]
    found = nouns.find_many(plane.store, User, [keys.user(user_id) for user_id in ids])
    records = every(plane.store, keys.DIRECTORY, "user/")
    said = {each.user_id: each for each in (nouns.read(DirectoryUser, record) for record in records)}
    seen = [Seen(user, said.get(user.id)) for user in found if user is not None]
    return sorted(seen, key=lambda each: (each.user.created_at, each.user.id))


def person(store: Store, user_id: str) -> Seen:
    user = nouns.find(store, User, keys.user(user_id))
    if user is None:
        raise NotFound(f"There is no user with the id {user_id[:80]!r}.")
    return Seen(user, nouns.find(store, DirectoryUser, keys.directory_user(user_id)))


def add(plane: AccountPorts, actor: User, wanted: Person) -> Seen:
    """A new user. Nobody learns their token: they sign on."""
    name = name_from(wanted.user_name)
    if not name:
        raise WrongScim(
            f"No user can be called {wanted.user_name[:80]!r}: a name has letters, digits, - and _.",
            "invalidValue",
            hint="Send another `userName`; of an e-mail address the part before the @ is taken.",
        )
    for other in people(plane):
        if wanted.user_name.lower() in other.called:
            raise AlreadyExists(f"{wanted.user_name} is the user {other.user.name} already.")
    _refuse_address(plane.store, wanted)
    user, changes = users.make_user(
        plane.seal,
        plane.random_id(),
        users.free_name(plane.store, name),
        GlobalRole.user,
        token=plane.random_token(),  # never shown
        now=plane.clock.now(),
        email=wanted.email or None,
        active=wanted.active,
        actor=actor,
    )
    said = _said(wanted, user.id)
    # In no project yet, so no job's keys change.
    plane.store.commit([*changes, nouns.put(said), _named(plane.store, said)])
    return Seen(user, said)


def change(plane: AccountPorts, actor: User, user_id: str, wanted: Person) -> Seen:
    """The user as the directory wants them."""
    seen = person(plane.store, user_id)
    user, now = seen.user, plane.clock.now()
    if wanted.email.lower() != (user.email or "").lower():
        _refuse_address(plane.store, wanted)
    said = _said(wanted, user_id, 0 if seen.said is None else seen.said.version)
    changed = user.with_(email=wanted.email or None, active=wanted.active)
    if changed != user or said != seen.said:
        changes = [nouns.put(said), *_renamed(plane, seen, said)]
        if user.active and not changed.active:
            changed = changed.with_(signed_off_at=now)
            changes += users.move_token(changed, plane.random_token())
        else:
            changes.append(nouns.put(changed))
        detail = f"{changed.role}, {'active' if changed.active else 'deactivated'}"
        target, seed = user_target(user), f"{user.id}/{user.version}"
        event = audit_event(
            EventType.changed, now, target, project_id=EVERYWHERE, seed=seed, actor=actor, detail=detail
        )
        changes.append(nouns.put(event))
        if user.active is changed.active:
            plane.store.commit(changes)  # an address changes no rights
        else:
            rights_revision.commit(plane, [*changes, *rights_revision.admins_after(plane.store, changed)])
    if not changed.active:
        users.end_tokens(plane, user)  # again, if a crash came between
    return Seen(changed, said)


def remove(plane: AccountPorts, actor: User, user_id: str) -> None:
    """Delete the user. One who can't be deleted is deactivated all the same, and the error says why."""
    seen = person(plane.store, user_id)
    if seen.user.active:
        change(plane, actor, user_id, seen.person.with_(active=False))
    users.delete_users(plane, actor, [seen.user.name])


def _refuse_address(store: Store, wanted: Person) -> None:
    """Whoever signs on with a verified address is the user with that address: two can't have one."""
    same = users.with_email(store, wanted.email) if wanted.email else []
    if same:
        raise AlreadyExists(f"The user {same[0].name} has the address {wanted.email} already.")


def _said(wanted: Person, user_id: str, version: int = 0) -> DirectoryUser:
    kept = wanted.model_dump(exclude={"email", "active"})
    return DirectoryUser(user_id=user_id, version=version, **kept)


def _renamed(plane: RecordPorts, seen: Seen, said: DirectoryUser) -> list[Change]:
    if seen.said is not None and seen.said.user_name.lower() == said.user_name.lower():
        return []
    for other in people(plane):
        if other.user.id != said.user_id and said.user_name.lower() in other.called:
            raise AlreadyExists(f"{said.user_name} is the user {other.user.name} already.")
    old = [] if seen.said is None else [Delete(keys.directory_user_name(seen.said.user_name))]
    return [*old, _named(plane.store, said)]


def _named(store: Store, said: DirectoryUser) -> Put:
    """Claims the name, so that two requests at once can't both have it."""
    key = keys.directory_user_name(said.user_name)
    left = nouns.find_target(store, key)  # by a user who was deleted
    return nouns.pointer(key, said.user_id, version=0 if left is None else left[1])
