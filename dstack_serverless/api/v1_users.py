"""Users.

Generated: `make docs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dstack_serverless.sdk.flow import UNSET, Request, given, segment

if TYPE_CHECKING:
    from chalicelib import contract


def list_all(
    *,
    limit: int = UNSET,
    cursor: str | None = UNSET,
) -> Request[contract.V1UserPage]:
    """All users, for a global admin; for others, themselves and the members of their projects. Newest first.

    For any active user.
    """
    return Request(
        "GET",
        "/api/v1/users",
        query=given(
            limit=limit,
            cursor=cursor,
        ),
        safe=True,
    )


def create(
    *,
    name: str,
    dry_run: bool = UNSET,
    role: contract.GlobalRole = UNSET,
    email: str | None = UNSET,
    active: bool = UNSET,
) -> Request[contract.V1Change | contract.V1NewUser]:
    """Creates a user with a token.

    For global admins.
    """
    return Request(
        "POST",
        "/api/v1/users",
        query=given(
            dry_run=dry_run,
        ),
        body=given(
            name=name,
            role=role,
            email=email,
            active=active,
        ),
        once=True,
    )


def me() -> Request[contract.V1Caller]:
    """The caller, and what the access token may do with which they call.

    For any active user.
    """
    return Request(
        "GET",
        "/api/v1/users/me",
        safe=True,
    )


def get(
    user_name: str,
) -> Request[contract.V1User]:
    """The user of this name, for themselves and for global admins.

    For any active user.
    """
    return Request(
        "GET",
        f"/api/v1/users/{segment(user_name)}",
        safe=True,
    )


def change(
    user_name: str,
    *,
    dry_run: bool = UNSET,
    role: contract.GlobalRole | None = UNSET,
    email: str | None = UNSET,
    active: bool | None = UNSET,
) -> Request[contract.V1User | contract.V1Change]:
    """Changes a user.

    For global admins.
    """
    return Request(
        "PATCH",
        f"/api/v1/users/{segment(user_name)}",
        query=given(
            dry_run=dry_run,
        ),
        body=given(
            role=role,
            email=email,
            active=active,
        ),
        once=True,
    )


def delete(
    user_name: str,
    *,
    dry_run: bool = UNSET,
) -> Request[contract.V1Change | None]:
    """Deletes a user with the tokens and memberships.

    For global admins.
    """
    return Request(
        "DELETE",
        f"/api/v1/users/{segment(user_name)}",
        query=given(
            dry_run=dry_run,
        ),
        once=True,
    )
