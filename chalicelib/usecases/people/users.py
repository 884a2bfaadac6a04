"""Users: who they are, their token, and the SSH key pair the control plane keeps for each.

A token is shown once, to the caller who requested it; the store holds its hash. A new token replaces the old one in the
same commit, so the old one stops working at once. The private SSH key is sealed and opened only for its owner.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from chalicelib.domain import keys
from chalicelib.domain.directory import DirectoryUser
from chalicelib.domain.events import EVERYWHERE, EventType
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.keys import Key
from chalicelib.domain.tenants import USER_NAME, GlobalRole, Member, Project, User, hash_token
from chalicelib.errors import AlreadyExists, Forbidden, Invalid, NotFound, Problem, Refused
from chalicelib.store import nouns
from chalicelib.store.listing import all_of, every
from chalicelib.store.port import MAX_CHANGES, Change, Delete, Put, Record, Store
from chalicelib.usecases.audit_events import audit_event, user_target
from chalicelib.usecases.people import rights_revision
from chalicelib.usecases.ports import AccountPorts, RecordPorts, SealedPorts

if TYPE_CHECKING:
    from chalicelib.domain.sign_on import SignOn
    from chalicelib.store.seal import Sealer


NAMES = 20  # that are tried for somebody whose name is taken


def ssh_key_pair() -> tuple[str, str]:
    """A fresh key pair: the public line with its newline, as clients compare it, and the private key as text."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    return public.decode() + "\n", private.decode()


def make_user(
    seal: Sealer,
    user_id: str,
    name: str,
    role: GlobalRole,
    *,
    token: str,
    now: Micros,
    email: str | None = None,
    active: bool = True,
    actor: User | None = None,
) -> tuple[User, list[Change]]:
    """A new user and the changes that create it: the name and the token are claimed in the same commit."""
    public, private = ssh_key_pair()
    user = User(
        id=user_id,
        name=name,
        role=role,
        email=email,
        active=active,
        created_at=now,
        token_hash=hash_token(token),
        ssh_public_key=public,
        ssh_private_key=seal.seal(private, context=f"user/{user_id}"),
    )
    event = audit_event(EventType.created, now, user_target(user), project_id=EVERYWHERE, seed=user_id, actor=actor)
    pointers = [nouns.pointer(keys.user_name(name), user_id), nouns.pointer(keys.token(user.token_hash), user_id)]
    return user, [nouns.put(user), *pointers, nouns.put(event)]


def move_token(user: User, token: str) -> list[Change]:
    """The changes that make `token` the user's only one."""
    moved = user.with_(token_hash=hash_token(token))
    return [
        nouns.put(moved),
        Delete(keys.token(user.token_hash)),
        nouns.pointer(keys.token(moved.token_hash), user.id),
    ]


def sign_on(entry: SignOn) -> list[Change]:
    """The changes that make the sign-on's token valid until it ends."""
    pointer = nouns.pointer(keys.token(entry.token_hash), entry.user_id).record
    expiring = Record(pointer.key, pointer.version, pointer.body, expires_at=entry.ends_at // SECOND)
    return [nouns.put(entry), Put(expiring, expect=0)]


# --- read -------------------------------------------------------------------------------------------------------------


def list_users(plane: RecordPorts, actor: User, only: Collection[str] | None = None) -> list[User]:
    """All users, for an admin; for others, themselves and members of their projects. Newest first. `only`: ids of
    projects, whose members alone are listed beside the caller."""
    if actor.role is GlobalRole.admin and only is None:
        ids = [nouns.pointed(record) for record in every(plane.store, "users", "name/")]
    else:
        projects = _projects_of(plane.store, actor, only)
        shared = [every(plane.store, f"project/{project}", "member/") for project in projects]
        ids = [actor.id, *(nouns.read(Member, record).user_id for page in shared for record in page)]
    found = nouns.find_many(plane.store, User, [keys.user(user_id) for user_id in dict.fromkeys(ids)])
    return sorted(
        (user for user in found if user is not None), key=lambda user: (user.created_at, user.id), reverse=True
    )


def _projects_of(store: Store, user: User, only: Collection[str] | None) -> list[str]:
    if user.role is GlobalRole.admin and only is not None:
        return list(only)
    joined = [member.project_id for member in memberships(store, user)]
    return [each for each in joined if only is None or each in only]


def memberships(store: Store, user: User) -> list[Member]:
    """The user's memberships. The index only names them; they are read by key, so one just removed doesn't show."""
    found = nouns.find_many(store, Member, [record.key for record in all_of(store, "gsi1", keys.member_of(user.id))])
    return [member for member in found if member is not None]


def find_user(store: Store, name: str) -> User | None:
    target = nouns.find_target(store, keys.user_name(name)) if USER_NAME.fullmatch(name) else None
    return None if target is None else nouns.find(store, User, keys.user(target[0]))


def named_user(store: Store, name: str) -> User:
    """The user of this name. Raises NotFound."""
    user = find_user(store, name)
    if user is None:
        raise NotFound(f"There is no user {name[:80]!r}.")
    return user


def own_or_admin(plane: RecordPorts, actor: User, name: str) -> User:
    """The user of that name, for the user and for admins. Others don't learn whether it exists."""
    if name != actor.name and actor.role is not GlobalRole.admin:
        raise Forbidden("Only an admin may do this for another user")
    return named_user(plane.store, name)


def private_key(plane: SealedPorts, user: User) -> str:
    return plane.seal.open(user.ssh_private_key, context=f"user/{user.id}")


def free_name(store: Store, wanted: str) -> str:
    """`ana`, or `ana-2` if that is taken."""
    for name in (wanted, *(f"{wanted}-{number}" for number in range(2, NAMES))):
        if store.get(keys.user_name(name)) is None:
            return name
    raise Refused(f"All names like {wanted} are taken.", hint="An admin has to rename or delete one of these users.")


def with_email(store: Store, email: str) -> list[User]:
    """The users with this address, in any spelling of its case."""
    ids = [nouns.pointed(record) for record in every(store, "users", "name/")]
    found = nouns.find_many(store, User, [keys.user(user_id) for user_id in ids])
    return [user for user in found if user is not None and (user.email or "").lower() == email.lower()]


# --- change -----------------------------------------------------------------------------------------------------------


def create_user(
    plane: AccountPorts,
    actor: User,
    name: str,
    role: GlobalRole,
    *,
    email: str | None = None,
    active: bool = True,
    new: str = "",
) -> tuple[User, str]:
    """The new user and its token, which is shown this once. `new`: the user's id, if that is known before."""
    if not USER_NAME.fullmatch(name):
        raise Invalid([Problem("a name has 1 to 60 letters, digits, - and _", path="username")])
    token, now = plane.random_token(), plane.clock.now()
    user, changes = make_user(
        plane.seal, new or plane.random_id(), name, role, token=token, now=now, email=email, active=active, actor=actor
    )
    if nouns.find_target(plane.store, keys.user_name(name)) is not None:
        raise AlreadyExists(f"There is a user {name!r} already.", hint="Choose another name.")
    if admins := rights_revision.admins_after(plane.store, user):
        rights_revision.commit(plane, [*changes, *admins])
    else:
        plane.store.commit(changes)  # in no project yet, so no job's keys change
    return user, token


def update_user(
    plane: AccountPorts, actor: User, name: str, role: GlobalRole, *, email: str | None = None, active: bool = True
) -> User:
    user = named_user(plane.store, name)
    if user.id == actor.id and (role is not GlobalRole.admin or not active):
        raise Refused("Admins can't remove their own rights.", hint="Ask another admin to do it.")
    given = user.admin_by if role is user.role else ""  # from now on a person's decision
    changed = user.with_(role=role, email=email, active=active, admin_by=given)
    if changed != user:
        detail = f"{changed.role}, {'active' if active else 'deactivated'}"
        changes: list[Change] = [nouns.put(changed), _event(plane, EventType.changed, user, actor, detail)]
        if (user.role, user.active) == (role, active):
            plane.store.commit(changes)  # an email address changes no rights
        else:
            rights_revision.commit(plane, [*changes, *rights_revision.admins_after(plane.store, changed)])
    return changed


def refresh_token(plane: AccountPorts, actor: User, name: str, used: str) -> tuple[User, str]:
    """The user and a new token. The old one is refused from now on, and so are all tokens of sign-ons.

    `used`: the hash of the caller's token. A token of a sign-on is replaced by one with the same end: otherwise an
    account that the provider ends would live on here.
    """
    user, now, token = own_or_admin(plane, actor, name), plane.clock.now(), plane.random_token()
    own = user.id == actor.id
    entry = rights_revision.signed_on(plane.store, user, used, now) if own else None
    if own and entry is None and used != user.token_hash:
        raise Forbidden("Invalid token")  # replaced meanwhile
    off = user.with_(signed_off_at=now)
    if entry is None:
        changes = move_token(off, token)
    else:
        replaced = entry.with_(token_hash=hash_token(token), created_at=now, version=0)
        changes = [*move_token(off, plane.random_token()), *sign_on(replaced)]
    plane.store.commit([*changes, _event(plane, EventType.token_replaced, user, actor)])
    _sign_off(plane, user, but=hash_token(token))
    plane.rights()
    return user, token


def refresh_ssh_key(plane: AccountPorts, actor: User, name: str) -> User:
    user = own_or_admin(plane, actor, name)
    public, private = ssh_key_pair()
    sealed = plane.seal.seal(private, context=f"user/{user.id}")
    changed = user.with_(ssh_public_key=public, ssh_private_key=sealed)
    rights_revision.commit(plane, [nouns.put(changed), _event(plane, EventType.keys_replaced, user, actor)])
    return changed


def delete_users(plane: AccountPorts, actor: User, names: Sequence[str]) -> None:
    """Delete users with their tokens and memberships. None is deleted if one of them can't be."""
    users = [named_user(plane.store, name) for name in dict.fromkeys(names)]
    owners = {project.owner_id: project.name for project in _projects(plane)}
    for user in users:
        if user.id == actor.id:
            raise Refused("Admins can't delete themselves.", hint="Ask another admin to do it.")
        if user.id in owners:
            raise Refused(f"{user.name} owns the project {owners[user.id]}.", hint="Delete the project first.")
    for user in users:
        _delete(plane, actor, user)


def _delete(plane: AccountPorts, actor: User, user: User) -> None:
    # Delete the token first, and with it all access; memberships left over by a crash grant nothing.
    deletions: list[Change] = [Delete(nouns.key_of(user), user.version), Delete(keys.token(user.token_hash))]
    deletions += [Delete(keys.identity(each)) for each in user.identities]
    beside = [
        *rights_revision.admins_after(plane.store, user, deleted=True),
        _event(plane, EventType.deleted, user, actor),
    ]
    deletions += directory_user_gone(plane.store, user)
    rights_revision.commit(plane, [*deletions, Delete(keys.user_name(user.name)), *beside])
    end_tokens(plane, user)
    found = [record.key for record in all_of(plane.store, "gsi1", keys.member_of(user.id))]
    for start in range(0, len(found), MAX_CHANGES):
        plane.store.commit([Delete(key) for key in found[start : start + MAX_CHANGES]])


def directory_user_gone(store: Store, user: User) -> list[Change]:
    """The changes that delete what a directory says about a user."""
    known = nouns.find(store, DirectoryUser, keys.directory_user(user.id))
    return [] if known is None else [Delete(nouns.key_of(known)), Delete(keys.directory_user_name(known.user_name))]


def end_tokens(plane: RecordPorts, user: User) -> None:
    """Delete the user's sign-ons and access tokens, and not their own token."""
    _sign_off(plane, user)
    found: list[Key] = []
    for entry in rights_revision.access_tokens_of(plane.store, user):
        found += [nouns.key_of(entry), keys.access_token_name(user.id, entry.name)]
    for start in range(0, len(found), MAX_CHANGES):
        plane.store.commit([Delete(key) for key in found[start : start + MAX_CHANGES]])


def _sign_off(plane: RecordPorts, user: User, but: str = "") -> None:
    """Delete the user's tokens of sign-ons, and expired sign-ons. `but`: the hash of one token that stays."""
    found = [record.key for record in all_of(plane.store, "gsi1", keys.sign_ons_of(user.id))]
    hashes = [hashed for hashed in (key.pk.partition("/")[2] for key in found) if hashed != but]
    deletions = [Delete(each) for hashed in hashes for each in (keys.sign_on(hashed), keys.token(hashed))]
    for start in range(0, len(deletions), MAX_CHANGES):
        plane.store.commit(deletions[start : start + MAX_CHANGES])


def _projects(plane: RecordPorts) -> list[Project]:
    ids = [nouns.pointed(record) for record in every(plane.store, "projects", "name/")]
    found = nouns.find_many(plane.store, Project, [keys.project(project_id) for project_id in ids])
    return [project for project in found if project is not None and not project.deleted]


def _event(plane: RecordPorts, type: EventType, user: User, actor: User, detail: str = "") -> Change:
    seed = f"{user.id}/{user.version}"
    now = plane.clock.now()
    event = audit_event(type, now, user_target(user), project_id=EVERYWHERE, seed=seed, actor=actor, detail=detail)
    return nouns.put(event)
