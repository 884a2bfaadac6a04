"""Tokens of directories: an admin makes one, a directory calls with it, and only SCIM's paths take it."""

from __future__ import annotations

from hmac import compare_digest

from chalicelib.domain import keys
from chalicelib.domain.directory import CALLER, DIRECTORY_TOKEN, MOST_TOKENS, TOKEN_NAME, DirectoryToken
from chalicelib.domain.events import EVERYWHERE, EventType
from chalicelib.domain.tenants import User, hash_token
from chalicelib.errors import AlreadyExists, Invalid, NotFound, Problem, Refused, Unauthenticated
from chalicelib.store import nouns
from chalicelib.store.listing import every
from chalicelib.store.port import Change, Delete, Store
from chalicelib.usecases.audit_events import audit_event, user_target
from chalicelib.usecases.ports import AccountPorts, RecordPorts


def create(plane: AccountPorts, actor: User, name: str) -> tuple[DirectoryToken, str]:
    """A new token and its text, which is shown this once."""
    if not TOKEN_NAME.fullmatch(name):
        raise Invalid([Problem("a name has 1 to 60 letters, digits, - and _", path="name")])
    known = list_tokens(plane)
    if any(entry.name == name for entry in known):
        raise AlreadyExists(
            f"There is a SCIM token {name!r} already.",
            hint=f"Choose another name, or revoke that one: dstack scim token revoke {name}",
        )
    if len(known) >= MOST_TOKENS:
        raise Refused(f"There are {MOST_TOKENS} SCIM tokens, as many as there may be.", hint="Revoke one first.")
    text = DIRECTORY_TOKEN + plane.random_token()
    entry = DirectoryToken(
        id=plane.random_id(),
        name=name,
        token_hash=hash_token(text),
        created_at=plane.clock.now(),
        created_by=actor.name,
    )
    pointer = nouns.pointer(keys.directory_token_name(name), entry.token_hash)
    plane.store.commit([nouns.put(entry), pointer, _event(plane, EventType.token_created, entry, actor)])
    return entry, text


def list_tokens(plane: RecordPorts) -> list[DirectoryToken]:
    """Newest first."""
    hashes = [nouns.pointed(record) for record in every(plane.store, keys.DIRECTORY, "token/")]
    found = nouns.find_many(plane.store, DirectoryToken, [keys.directory_token(each) for each in hashes])
    known = [entry for entry in found if entry is not None]
    return sorted(known, key=lambda entry: (entry.created_at, entry.id), reverse=True)


def revoke(plane: RecordPorts, actor: User, name: str) -> None:
    entry = next((entry for entry in list_tokens(plane) if entry.name == name), None)
    if entry is None:
        raise NotFound(f"There is no SCIM token {name[:80]!r}.", hint="See dstack scim token list")
    deletions = [Delete(nouns.key_of(entry), entry.version), Delete(keys.directory_token_name(name))]
    plane.store.commit([*deletions, _event(plane, EventType.token_revoked, entry, actor)])


def caller(store: Store, token: str) -> User:
    """Who calls with this token, as the history names them: no user, and without any rights of one. Raises
    Unauthenticated."""
    hashed = hash_token(token)
    entry = nouns.find(store, DirectoryToken, keys.directory_token(hashed))
    if entry is None or not compare_digest(entry.token_hash, hashed):
        raise Unauthenticated("Invalid SCIM token. An admin makes one with: dstack scim token create NAME")
    return User(id=entry.id, name=CALLER, created_at=entry.created_at, token_hash="", by_token=entry.name)


def _event(plane: RecordPorts, type: EventType, entry: DirectoryToken, actor: User) -> Change:
    at, target = plane.clock.now(), user_target(actor)
    detail = f"{entry.name} (SCIM)"
    return nouns.put(audit_event(type, at, target, project_id=EVERYWHERE, seed=entry.id, actor=actor, detail=detail))
