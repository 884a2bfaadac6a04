"""Single sign-on over HTTP. Clients use it before they have a token, so all of it is public.

Clients of this line know the browser flow: `authorize` returns the address to open, and `callback` takes the parameters
with which the provider redirects back. The device flow, with a code that is typed elsewhere, is our own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlencode

import orjson
from pydantic import Field

from chalicelib.api.requests import RequestBody
from chalicelib.api.route import Answer, Call, takes
from chalicelib.api.wire.access_tokens import access_token_json
from chalicelib.api.wire.users import user_with_creds_json
from chalicelib.domain.instants import SECOND
from chalicelib.domain.tenants import User
from chalicelib.usecases.people import sign_on, users

if TYPE_CHECKING:
    from chalicelib import contract

COOKIE = "dstack-sign-on"  # set in the browser that began the sign-on
Text = Annotated[str, Field(max_length=8192)]


class AuthorizeBody(RequestBody):
    local_port: Annotated[int, Field(ge=1, le=65_535)] | None = None
    base_url: Annotated[str, Field(max_length=2048, pattern="^https?://")] | None = None


class RedirectBody(RequestBody):
    code: Text
    state: Text


class CallbackBody(RedirectBody):
    base_url: Annotated[str, Field(max_length=2048)] | None = None


class DeviceBody(RequestBody):
    state: Text


class ExchangeBody(RequestBody):
    id_token: Annotated[str, Field(min_length=1, max_length=16_384)]


def list_providers(call: Call) -> list[contract.SignOnProvider]:
    return [{"name": name, "enabled": True} for name in call.plane.sign_on]


@takes(AuthorizeBody)
def authorize(call: Call, body: AuthorizeBody) -> Annotated[Answer, contract.Authorization]:
    begun = sign_on.begin(call.plane, call.params["provider"], body.local_port, body.base_url)
    cookie = f"{COOKIE}={begun.proof}; Path=/; Max-Age={sign_on.PATIENCE // SECOND}; HttpOnly; SameSite=Lax"
    secure = "; Secure" if (body.base_url or "").startswith("https:") else ""
    headers = {"Set-Cookie": cookie + secure} if begun.proof else {}
    return Answer(orjson.dumps({"authorization_url": begun.address}), headers=headers)


@takes(RedirectBody)
def get_next_redirect(call: Call, body: RedirectBody) -> contract.NextRedirect:
    port = sign_on.onward(call.plane, body.state)
    query = urlencode({"code": body.code, "state": body.state})
    return {"redirect_url": None if port is None else f"http://localhost:{port}/auth/callback?{query}"}


@takes(CallbackBody)
def callback(call: Call, body: CallbackBody) -> contract.UserWithCreds:
    cookies = dict(part.strip().partition("=")[::2] for part in call.headers.get("cookie", "").split(";"))
    proof = cookies.get(COOKIE, "")
    return _entered(call, *sign_on.finish(call.plane, call.params["provider"], body.code, body.state, proof))


def device(call: Call) -> contract.DeviceCode:
    code, state = sign_on.begin_device(call.plane, call.params["provider"])
    return {
        "state": state,
        "user_code": code.user_code,
        "verification_uri": code.address,
        "verification_uri_complete": code.filled_address or None,
        "interval": code.interval,
        "expires_in": code.expires_in,
    }


@takes(DeviceBody)
def device_token(call: Call, body: DeviceBody) -> contract.UserWithCreds | None:
    """The user and a token; null while nobody has signed on with the code."""
    found = sign_on.finish_device(call.plane, call.params["provider"], body.state)
    return None if found is None else _entered(call, *found)


@takes(ExchangeBody)
def exchange(call: Call, body: ExchangeBody) -> contract.ProgramSignOn:
    """Exchanges the ID token of a program, once, for an access token that ends soon: of a CI job, for example."""
    from chalicelib.usecases.people import access_tokens, workloads

    user, entry, text = workloads.exchange(call.plane, body.id_token)
    spent = access_tokens.spent_today(call.plane, [entry])
    return {"username": user.name, "access_token": access_token_json(entry, spent), "token": text}


def _entered(call: Call, user: User, token: str) -> contract.UserWithCreds:
    return user_with_creds_json(user, call.plane.permissions, token, users.private_key(call.plane, user))
