"""The caller's own public keys over HTTP.

Generated: `make docs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dstack_serverless.sdk.flow import UNSET, Request, given

if TYPE_CHECKING:
    from chalicelib import contract


def list_keys() -> Request[list[contract.PublicKey]]:
    """For any active user."""
    return Request(
        "POST",
        "/api/users/public_keys/list",
        safe=True,
    )


def add(
    *,
    key: str,
    name: str | None = UNSET,
) -> Request[contract.PublicKey]:
    """Adds a public key, which lets its owner in to the jobs that they may attach to.

    For any active user.
    """
    return Request(
        "POST",
        "/api/users/public_keys/add",
        body=given(
            key=key,
            name=name,
        ),
    )


def delete(
    *,
    ids: list[str],
) -> Request[None]:
    """For any active user."""
    return Request(
        "POST",
        "/api/users/public_keys/delete",
        body=given(
            ids=ids,
        ),
    )
