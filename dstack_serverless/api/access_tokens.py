"""Access tokens over HTTP. The text of a token is in the answer that creates it, and nowhere else.

Generated: `make docs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dstack_serverless.sdk.flow import UNSET, Request, given

if TYPE_CHECKING:
    from chalicelib import contract


def create(
    *,
    name: str,
    verbs: list[contract.Verb],
    projects: list[str] = UNSET,
    expires_in: int | None = UNSET,
    dollars_a_day: float | None = UNSET,
) -> Request[contract.CreatedAccessToken]:
    """Creates a token for a program, with which it may do less than the caller. `read` is part of every token. Its
    text is shown only in this answer. It ends with the caller's sign-on, if that is how they call; `expires_in`:
    seconds. `dollars_a_day`: once its runs have cost this much since 00:00 UTC, those that have no place yet wait.

    For any active user.
    """
    return Request(
        "POST",
        "/api/users/access_tokens/create",
        body=given(
            name=name,
            verbs=verbs,
            projects=projects,
            expires_in=expires_in,
            dollars_a_day=dollars_a_day,
        ),
    )


def list_tokens(
    *,
    username: str | None = UNSET,
) -> Request[list[contract.AccessToken]]:
    """The caller's valid tokens, newest first; for a global admin, another user's.

    For any active user.
    """
    return Request(
        "POST",
        "/api/users/access_tokens/list",
        body=given(
            username=username,
        ),
        safe=True,
    )


def revoke(
    *,
    name: str,
    username: str | None = UNSET,
) -> Request[None]:
    """Ends a token at once, and what is open under it.

    For any active user.
    """
    return Request(
        "POST",
        "/api/users/access_tokens/revoke",
        body=given(
            name=name,
            username=username,
        ),
    )


def revoke_own() -> Request[None]:
    """Ends the access token of this very call at once, and what is open under it: as a page of the console does when
    its user signs out. A user's own token is replaced instead.

    For any active user.
    """
    return Request(
        "POST",
        "/api/users/access_tokens/revoke_own",
    )
