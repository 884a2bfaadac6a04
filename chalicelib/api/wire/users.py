"""Users on the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chalicelib.domain.instants import iso
from chalicelib.domain.tenants import Permissions, PublicKey, User

if TYPE_CHECKING:
    from chalicelib import contract


def user_json(user: User, permissions: Permissions) -> contract.User:
    return {
        "id": user.id,
        "username": user.name,
        "created_at": iso(user.created_at),
        "global_role": user.role.value,
        "email": user.email,
        "active": user.active,
        "permissions": {"can_create_projects": permissions.create_projects(user)},
        "ssh_public_key": user.ssh_public_key,
    }


def user_with_creds_json(
    user: User, permissions: Permissions, token: str, private_key: str | None
) -> contract.UserWithCreds:
    """A user. `token` is empty unless it is known: only its hash is stored, so only its bearer can see it."""
    return {**user_json(user, permissions), "creds": {"token": token}, "ssh_private_key": private_key}


def public_key_json(key: PublicKey) -> contract.PublicKey:
    return {
        "id": key.id,
        "added_at": iso(key.added_at),
        "name": key.name,
        "type": key.type,
        "fingerprint": key.fingerprint,
    }
