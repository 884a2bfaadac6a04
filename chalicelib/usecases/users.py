"""Users: who they are, their token, and the SSH key pair the control plane keeps for each.

A token is shown once, to whoever asked for it; the store holds its hash. A new token replaces the old one in the same
commit, so the old one stops working at once. The private SSH key is sealed: it is opened for its owner alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from chalicelib.domain.ids import derive
from chalicelib.domain.instants import Micros
from chalicelib.domain.tenants import USER_NAME, GlobalRole, User, hash_token
from chalicelib.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound, Problem, Refused
from chalicelib.store import keys, nouns
from chalicelib.store.port import MAX_CHANGES, Change, Delete, Store
from chalicelib.usecases.context import Plane
from chalicelib.usecases.trail import EVERYWHERE, told, user_target

if TYPE_CHECKING:
    from chalicelib.store.seal import Sealer


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
    """A new user and the changes that make it: the name and the token are claimed in the same commit."""
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
    event = told("User created", now, user_target(user), project_id=EVERYWHERE, seed=user_id, actor=actor)
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
