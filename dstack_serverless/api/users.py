"""Users over HTTP. Responses contain a token only for the caller who just created it or authenticated with it.

Generated: `make docs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dstack_serverless.sdk.flow import UNSET, Request, given

if TYPE_CHECKING:
    from chalicelib import contract


def list_users(
    *,
    return_total_count: bool = UNSET,
    name_pattern: str | None = UNSET,
    prev_created_at: str | None = UNSET,
    prev_id: str | None = UNSET,
    limit: int = UNSET,
    ascending: bool = UNSET,
) -> Request[list[contract.User] | contract.UserPage]:
    """For any active user."""
    return Request(
        "POST",
        "/api/users/list",
        body=given(
            return_total_count=return_total_count,
            name_pattern=name_pattern,
            prev_created_at=prev_created_at,
            prev_id=prev_id,
            limit=limit,
            ascending=ascending,
        ),
        safe=True,
    )


def get_my_user() -> Request[contract.UserWithCreds]:
    """The caller, with the token of the call. An access token gets no private key, which opens more than the token.

    For any active user.
    """
    return Request(
        "POST",
        "/api/users/get_my_user",
        safe=True,
    )


def get_user(
    *,
    username: str,
) -> Request[contract.UserWithCreds]:
    """For any active user."""
    return Request(
        "POST",
        "/api/users/get_user",
        body=given(
            username=username,
        ),
        safe=True,
    )


def create(
    *,
    username: str,
    global_role: contract.GlobalRole,
    email: str | None = UNSET,
    active: bool = UNSET,
) -> Request[contract.UserWithCreds]:
    """For global admins."""
    return Request(
        "POST",
        "/api/users/create",
        body=given(
            username=username,
            global_role=global_role,
            email=email,
            active=active,
        ),
    )


def update(
    *,
    username: str,
    global_role: contract.GlobalRole,
    email: str | None = UNSET,
    active: bool = UNSET,
) -> Request[contract.User]:
    """For global admins."""
    return Request(
        "POST",
        "/api/users/update",
        body=given(
            username=username,
            global_role=global_role,
            email=email,
            active=active,
        ),
    )


def refresh_token(
    *,
    username: str,
) -> Request[contract.UserWithCreds]:
    """A new token for a user; the old one ends at once.

    For any active user.
    """
    return Request(
        "POST",
        "/api/users/refresh_token",
        body=given(
            username=username,
        ),
    )


def refresh_ssh_key(
    *,
    username: str,
) -> Request[contract.UserWithCreds]:
    """For any active user."""
    return Request(
        "POST",
        "/api/users/refresh_ssh_key",
        body=given(
            username=username,
        ),
    )


def delete(
    *,
    users: list[str],
) -> Request[None]:
    """For global admins."""
    return Request(
        "POST",
        "/api/users/delete",
        body=given(
            users=users,
        ),
    )
