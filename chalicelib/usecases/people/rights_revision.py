"""The revision of rights and keys, through which a change takes effect everywhere at once.

The revision is one value, written together with each change of a right or a key. Agents compare it with every message,
and one whose revision differs gets the keys of its jobs again (`job_keys.py`). So a host that was offline learns of a
change when it is back, and nothing has to be delivered.

There is one revision for the whole installation: keys and rights change seldom, and a host whose keys are unaffected
only reads them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import orjson

from chalicelib.domain import keys
from chalicelib.domain.access_tokens import AccessToken
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.tenants import Admins, GlobalRole, ProjectRole, User
from chalicelib.errors import Refused
from chalicelib.store import nouns
from chalicelib.store.listing import every
from chalicelib.store.port import Change, Put, Record, Store
from chalicelib.usecases.ports import AccountPorts

if TYPE_CHECKING:
    from chalicelib.domain.sign_on import SignOn


def commit(plane: AccountPorts, changes: Sequence[Change]) -> None:
    """Commit changes of rights or keys with a new revision, and end what is open under rights that were lost."""
    plane.store.commit([*changes, _moved(plane)])
    plane.rights()


def _moved(plane: AccountPorts) -> Put:
    """The new revision. It is written unconditionally: two concurrent changes may both write it."""
    body = orjson.dumps({"id": plane.random_id()})
    return Put(Record(keys.rights(), 1, body), expect=None)


def revision_of(record: Record | None) -> str:
    """The revision in the record under `keys.rights`. Read it before the keys, so that these are at least as new."""
    return "" if record is None else nouns.pointed(record)


# --- tokens -----------------------------------------------------------------------------------------------------------


def signed_on(store: Store, user: User, token_hash: str, now: Micros) -> SignOn | None:
    """The sign-on that this token of the user comes from, if it is still valid."""
    from chalicelib.domain.sign_on import SignOn  # it loads the specs of providers, and most tokens are of another kind

    entry = nouns.find(store, SignOn, keys.sign_on(token_hash))
    valid = entry is not None and entry.user_id == user.id and user.signed_off_at <= entry.created_at
    return entry if entry is not None and valid and now < entry.ends_at else None


def good(store: Store, user: User, token_hash: str, now: Micros) -> bool:
    return user.token_hash == token_hash or signed_on(store, user, token_hash, now) is not None


def access_token(store: Store, user: User, token_hash: str, now: Micros) -> AccessToken | None:
    """The user's access token of this hash, if it is still valid."""
    entry = nouns.find(store, AccessToken, keys.access_token(token_hash))
    if entry is None and (run := nouns.find_target(store, keys.run_of_token(token_hash))):
        entry = nouns.find(store, AccessToken, keys.run_access(run[0]))
    if entry is None or (entry.user_id, entry.token_hash) != (user.id, token_hash) or now >= entry.expires_at:
        return None
    if entry.signed_off(user.signed_off_at):
        return None
    return entry if lasts(store, user, entry) else None


def lasts(store: Store, user: User, entry: AccessToken) -> bool:
    """Is what it ends with still there: the run of whose jobs it is, the token of its user with which it was made?"""
    if entry.made_with:
        if entry.made_with == user.token_hash:
            return True
        return nouns.find(store, AccessToken, keys.access_token(entry.made_with)) is not None
    if not entry.run_id:
        return True
    from chalicelib.domain.runs import Run  # most calls are made with another token

    run = nouns.find(store, Run, keys.run(entry.run_id))
    return run is not None and not run.finished and not run.deleted


def acting(user: User, entry: AccessToken) -> User:
    """The user as a caller with this token. A job calls as a member of its project, even a global admin's: whoever
    may look into the job has its token."""
    role = GlobalRole.user if entry.run_id else user.role
    return user.with_(by_token=entry.name, limit=entry.limit, role=role)


def acting_role(role: ProjectRole | None, entry: AccessToken | None) -> ProjectRole | None:
    """The role in a project of a caller with this token. A job calls as a plain member, even an admin's or a manager's,
    for the same reason."""
    return ProjectRole.user if role is not None and entry is not None and entry.run_id else role


def access_tokens_of(store: Store, user: User, *, after: Micros = 0) -> list[AccessToken]:
    """A user's that expire after this time. An expired one may be stored for days."""
    named = every(store, keys.user(user.id).pk, keys.ACCESS_TOKENS)
    hashes = [nouns.pointed(record) for record in named if after // SECOND < (record.expires_at or 0)]
    found = nouns.find_many(store, AccessToken, [keys.access_token(hashed) for hashed in hashes])
    return [entry for entry in found if entry is not None]


# --- global admins ----------------------------------------------------------------------------------------------------


def admins(store: Store) -> Admins:
    """The active admins. An older installation, which has no list of them, finds them among its users."""
    known = nouns.find(store, Admins, keys.admins())
    if known is not None:
        return known
    ids = [nouns.pointed(record) for record in every(store, "users", "name/")]
    found = nouns.find_many(store, User, [keys.user(user_id) for user_id in ids])
    return Admins(ids=tuple(user.id for user in found if user is not None and _is_admin(user)))


def admins_after(store: Store, user: User, *, deleted: bool = False) -> list[Change]:
    """The change of the list of admins for this user's new record, or for its deletion. Raises Refused if no admin
    would be left."""
    known = admins(store)
    is_one = _is_admin(user) and not deleted
    if is_one == (user.id in known.ids):
        return []
    ids = (*known.ids, user.id) if is_one else tuple(each for each in known.ids if each != user.id)
    if not ids:
        raise Refused(
            f"{user.name} is the only active global admin.",
            hint="Make another user one first: dstack user update NAME --role admin",
        )
    return [nouns.put(known.with_(ids=ids))]


def _is_admin(user: User) -> bool:
    return user.active and user.role is GlobalRole.admin
