"""Single sign-on over HTTP. Clients use it before they have a token, so all of it is public.

Clients of this line know the browser flow: `authorize` returns the address to open, and `callback` takes the parameters
with which the provider redirects back. The device flow, with a code that is typed elsewhere, is our own.
"""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import urlencode

import orjson
from pydantic import Field

from chalicelib.api.requests import RequestBody
from chalicelib.api.route import Answer, Call
from chalicelib.api.wire.users import user_with_creds_json
from chalicelib.domain.instants import SECOND
from chalicelib.domain.tenants import User
from chalicelib.usecases.people import sign_on, users

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


def list_providers(call: Call) -> Any:
    return [{"name": name, "enabled": True} for name in call.plane.sign_on]


def authorize(call: Call) -> Any:
    body = call.parse(AuthorizeBody)
    begun = sign_on.begin(call.plane, call.params["provider"], body.local_port, body.base_url)
    cookie = f"{COOKIE}={begun.proof}; Path=/; Max-Age={sign_on.PATIENCE // SECOND}; HttpOnly; SameSite=Lax"
    secure = "; Secure" if (body.base_url or "").startswith("https:") else ""
    headers = {"Set-Cookie": cookie + secure} if begun.proof else {}
    return Answer(orjson.dumps({"authorization_url": begun.address}), headers=headers)


def get_next_redirect(call: Call) -> Any:
    body = call.parse(RedirectBody)
    port = sign_on.onward(call.plane, body.state)
    query = urlencode({"code": body.code, "state": body.state})
    return {"redirect_url": None if port is None else f"http://localhost:{port}/auth/callback?{query}"}


def callback(call: Call) -> Any:
    body = call.parse(CallbackBody)
    cookies = dict(part.strip().partition("=")[::2] for part in call.headers.get("cookie", "").split(";"))
    proof = cookies.get(COOKIE, "")
    return _entered(call, *sign_on.finish(call.plane, call.params["provider"], body.code, body.state, proof))


def device(call: Call) -> Any:
    code, state = sign_on.begin_device(call.plane, call.params["provider"])
    return {
        "state": state,
        "user_code": code.user_code,
        "verification_uri": code.address,
        "verification_uri_complete": code.filled_address or None,
        "interval": code.interval,
        "expires_in": code.expires_in,
    }


def device_token(call: Call) -> Any:
    """The user and a token; null while nobody has signed on with the code."""
    found = sign_on.finish_device(call.plane, call.params["provider"], call.parse(DeviceBody).state)
    return None if found is None else _entered(call, *found)


def _entered(call: Call, user: User, token: str) -> Any:
    return user_with_creds_json(user, call.plane.permissions, token, users.private_key(call.plane, user))
