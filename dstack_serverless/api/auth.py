"""Single sign-on over HTTP. Clients use it before they have a token, so all of it is public.

Generated: `make docs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dstack_serverless.sdk.flow import UNSET, Request, given, segment

if TYPE_CHECKING:
    from chalicelib import contract


def list_providers() -> Request[list[contract.SignOnProvider]]:
    """Needs no token."""
    return Request(
        "POST",
        "/api/auth/list_providers",
        safe=True,
    )


def get_next_redirect(
    *,
    code: str,
    state: str,
) -> Request[contract.NextRedirect]:
    """Needs no token."""
    return Request(
        "POST",
        "/api/auth/get_next_redirect",
        body=given(
            code=code,
            state=state,
        ),
        safe=True,
    )


def authorize(
    provider: str,
    *,
    local_port: int | None = UNSET,
    base_url: str | None = UNSET,
) -> Request[contract.Authorization]:
    """Needs no token."""
    return Request(
        "POST",
        f"/api/auth/{segment(provider)}/authorize",
        body=given(
            local_port=local_port,
            base_url=base_url,
        ),
    )


def callback(
    provider: str,
    *,
    code: str,
    state: str,
    base_url: str | None = UNSET,
) -> Request[contract.UserWithCreds]:
    """Needs no token."""
    return Request(
        "POST",
        f"/api/auth/{segment(provider)}/callback",
        body=given(
            code=code,
            state=state,
            base_url=base_url,
        ),
    )


def device(
    provider: str,
) -> Request[contract.DeviceCode]:
    """Needs no token."""
    return Request(
        "POST",
        f"/api/auth/{segment(provider)}/device",
    )


def device_token(
    provider: str,
    *,
    state: str,
) -> Request[contract.UserWithCreds | None]:
    """The user and a token; null while nobody has signed on with the code.

    Needs no token.
    """
    return Request(
        "POST",
        f"/api/auth/{segment(provider)}/device_token",
        body=given(
            state=state,
        ),
    )


def exchange(
    *,
    id_token: str,
) -> Request[contract.ProgramSignOn]:
    """Exchanges the ID token of a program, once, for an access token that ends soon: of a CI job, for example.

    Needs no token.
    """
    return Request(
        "POST",
        "/api/auth/oidc/exchange",
        body=given(
            id_token=id_token,
        ),
    )
