"""Codes that sign a page of the console in, over HTTP: made with a token, exchanged by a page that has none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from chalicelib.api.auth import bearer
from chalicelib.api.requests import RequestBody
from chalicelib.api.route import Call, takes
from chalicelib.api.wire.access_tokens import access_token_json
from chalicelib.domain.instants import iso
from chalicelib.domain.tenants import hash_token
from chalicelib.usecases.people import access_tokens, sign_in_codes

if TYPE_CHECKING:
    from chalicelib import contract


class ExchangeCodeBody(RequestBody):
    code: Annotated[str, Field(min_length=1, max_length=200)]


def create(call: Call) -> contract.SignInCode:
    """Makes a code with which a page signs in, once and within a minute. The page may no more than the caller."""
    code, text = sign_in_codes.create(call.plane, call.actor, hash_token(bearer(call.headers)), call.token)
    return {"code": text, "expires_at": iso(code.ends_at)}


@takes(ExchangeCodeBody)
def exchange(call: Call, body: ExchangeCodeBody) -> contract.ProgramSignOn:
    """Exchanges a code for an access token, which is among its user's and ends within hours."""
    user, entry, text = sign_in_codes.exchange(call.plane, body.code)
    spent = access_tokens.spent_today(call.plane, [entry])
    return {"username": user.name, "access_token": access_token_json(entry, spent), "token": text}
