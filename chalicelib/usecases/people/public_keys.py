"""A user's own public keys. All jobs that the user may attach to accept them, running jobs included."""

from __future__ import annotations

from collections.abc import Sequence

from chalicelib.domain import keys
from chalicelib.domain.events import EVERYWHERE, EventType
from chalicelib.domain.tenants import PublicKey, User
from chalicelib.errors import AlreadyExists, Invalid, NotFound, Problem, Refused
from chalicelib.printable import printable
from chalicelib.store import nouns
from chalicelib.store.port import Change
from chalicelib.usecases.audit_events import audit_event, user_target
from chalicelib.usecases.people import rights_revision
from chalicelib.usecases.ports import AccountPorts, RecordPorts

MOST = 20  # of one user: each host stores the keys of everybody who may log in there
MOST_CHARACTERS = 8_000  # the longest key that OpenSSH reads is about as long
MOST_NAME = 100
LEAST_RSA = 2048  # bits


def list_keys(plane: RecordPorts, user: User) -> tuple[PublicKey, ...]:
    """The user's keys, newest first."""
    return _current(plane, user).public_keys[::-1]


def add_key(plane: AccountPorts, user: User, text: str, name: str | None = None) -> PublicKey:
    line, comment = _checked(text)
    called = printable((name or comment).strip())[:MOST_NAME] or f"key of {user.name}"
    known = _current(plane, user)
    now = plane.clock.now()
    key = PublicKey(id=plane.random_id(), added_at=now, name=called, line=line)
    same = next((each for each in known.public_keys if each.line == line), None)
    if same is not None:
        raise AlreadyExists(
            f"You have this key already, as {same.name!r}.", hint="To rename it, delete it and add it again."
        )
    if len(known.public_keys) >= MOST:
        raise Refused(f"You have {MOST} public keys, as many as one user may.", hint="Delete one first.")
    changed = known.with_(public_keys=(*known.public_keys, key))
    rights_revision.commit(plane, [nouns.put(changed), _event(plane, EventType.key_added, known, user, (key,))])
    return key


def delete_keys(plane: AccountPorts, user: User, ids: Sequence[str]) -> None:
    """Delete all of them or, if one isn't the user's, none."""
    known = _current(plane, user)
    deleted = tuple(key for key in known.public_keys if key.id in ids)
    missing = set(ids) - {key.id for key in deleted}
    if missing:
        raise NotFound(f"You have no public key {min(missing)}.", hint="See them with `dstack user keys`.")
    if deleted:
        left = tuple(key for key in known.public_keys if key not in deleted)
        event = _event(plane, EventType.key_deleted, known, user, deleted)
        rights_revision.commit(plane, [nouns.put(known.with_(public_keys=left)), event])


def _current(plane: RecordPorts, user: User) -> User:
    found = nouns.find(plane.store, User, keys.user(user.id))
    if found is None:
        raise NotFound(f"There is no user {user.name!r}.")
    return found


def _checked(text: str) -> tuple[str, str]:
    """The type and the data of a key as one line, and its comment. Raises Invalid for a key that sshd wouldn't
    accept."""
    parts = text.split()
    if "PRIVATE KEY" in text:
        raise _invalid("this is a private key, which nobody else may have; give the line of the file that ends in .pub")
    if len(parts) < 2 or len(text) > MOST_CHARACTERS or "\n" in text.strip():
        raise _invalid(
            "a public key is one line: its type, its data and perhaps a comment, as in ~/.ssh/id_ed25519.pub"
        )
    if parts[0] == "ssh-dss":
        raise _invalid("OpenSSH doesn't take DSA keys any more; make one with `ssh-keygen -t ed25519`")
    if "-cert-v" in parts[0]:
        raise _invalid("this is a certificate, which by itself lets nobody in; give the public key that it is for")
    line = " ".join(parts[:2])
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key

    try:
        key = load_ssh_public_key(line.encode())
    except (ValueError, UnsupportedAlgorithm):
        raise _invalid(f"this isn't a public key of a type that OpenSSH takes: {printable(parts[0])[:40]}") from None
    if isinstance(key, RSAPublicKey) and key.key_size < LEAST_RSA:
        raise _invalid(f"an RSA key has at least {LEAST_RSA} bits, and this one has {key.key_size}")
    return line, " ".join(parts[2:])


def _invalid(why: str) -> Invalid:
    return Invalid([Problem(why, path="key")])


def _event(plane: RecordPorts, type: EventType, user: User, actor: User, which: Sequence[PublicKey]) -> Change:
    detail = ", ".join(f"{key.name} ({key.fingerprint})" for key in which)
    seed = f"{user.id}/{user.version}"
    at = plane.clock.now()
    event = audit_event(type, at, user_target(user), project_id=EVERYWHERE, seed=seed, actor=actor, detail=detail)
    return nouns.put(event)
