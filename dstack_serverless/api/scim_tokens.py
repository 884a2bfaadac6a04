"""Tokens with which a company's directory calls SCIM. The text of one is in the answer that creates it, and
nowhere else.

Generated: `make docs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dstack_serverless.sdk.flow import Request, given

if TYPE_CHECKING:
    from chalicelib import contract


def create(
    *,
    name: str,
) -> Request[contract.CreatedScimToken]:
    """Creates a token that is good for `/scim` alone, and lasts until it is revoked.

    For global admins.
    """
    return Request(
        "POST",
        "/api/scim/tokens/create",
        body=given(
            name=name,
        ),
    )


def list_tokens() -> Request[list[contract.ScimToken]]:
    """All of them, newest first.

    For global admins.
    """
    return Request(
        "POST",
        "/api/scim/tokens/list",
        safe=True,
    )


def revoke(
    *,
    name: str,
) -> Request[None]:
    """Ends a token at once. What a directory did with it stays.

    For global admins.
    """
    return Request(
        "POST",
        "/api/scim/tokens/revoke",
        body=given(
            name=name,
        ),
    )
