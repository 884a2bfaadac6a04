"""Codes that sign a page of the console in, over HTTP: made with a token, exchanged by a page that has none.

Generated: `make docs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dstack_serverless.sdk.flow import Request, given

if TYPE_CHECKING:
    from chalicelib import contract


def create() -> Request[contract.SignInCode]:
    """Makes a code with which a page signs in, once and within a minute. The page may no more than the caller.

    For any active user.
    """
    return Request(
        "POST",
        "/api/users/sign_in_codes/create",
    )


def exchange(
    *,
    code: str,
) -> Request[contract.ProgramSignOn]:
    """Exchanges a code for an access token, which is among its user's and ends within hours.

    Needs no token.
    """
    return Request(
        "POST",
        "/api/auth/sign_in_codes/exchange",
        body=given(
            code=code,
        ),
    )
