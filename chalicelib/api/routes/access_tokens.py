"""Access tokens over HTTP. The text of a token is in the answer that creates it, and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import ConfigDict, Field

from chalicelib.api.auth import bearer
from chalicelib.api.requests import Name, RequestBody
from chalicelib.api.route import Call, takes
from chalicelib.api.wire.access_tokens import access_token_json
from chalicelib.domain.access_tokens import USUAL, Verb
from chalicelib.domain.instants import SECOND
from chalicelib.domain.tenants import hash_token
from chalicelib.usecases.people import access_tokens

if TYPE_CHECKING:
    from chalicelib import contract


class CreateAccessTokenBody(RequestBody):
    """A limit that this server doesn't know is refused: a token without it could do more than was asked for."""

    model_config = ConfigDict(extra="forbid")

    name: Name
    verbs: list[Verb] = Field(min_length=1, max_length=len(Verb))
    projects: list[Name] = Field(default=[], max_length=100)
    expires_in: Annotated[int, Field(ge=0, le=10**9)] | None = None
    dollars_a_day: Annotated[float, Field(ge=0.01, le=1e9, allow_inf_nan=False)] | None = None


class ListAccessTokensBody(RequestBody):
    username: Name | None = None


class RevokeAccessTokenBody(RequestBody):
    name: Name
    username: Name | None = None


@takes(CreateAccessTokenBody)
def create(call: Call, body: CreateAccessTokenBody) -> contract.CreatedAccessToken:
    """Creates a token for a program, with which it may do less than the caller. `read` is part of every token. Its text
    is shown only in this answer. It ends with the caller's sign-on, if that is how they call; `expires_in`: seconds.
    `dollars_a_day`: once its runs have cost this much since 00:00 UTC, those that have no place yet wait."""
    usual = body.expires_in is None
    seconds = USUAL // SECOND if body.expires_in is None else body.expires_in
    wanted = access_tokens.TokenRequest(body.name, body.verbs, body.projects, seconds, body.dollars_a_day)
    used = hash_token(bearer(call.headers))
    entry, text = access_tokens.create(call.plane, call.actor, wanted, used, usual=usual)
    return {**access_token_json(entry), "token": text}


@takes(ListAccessTokensBody)
def list_tokens(call: Call, body: ListAccessTokensBody) -> list[contract.AccessToken]:
    """The caller's valid tokens, newest first; for a global admin, another user's."""
    found = access_tokens.list_tokens(call.plane, call.actor, body.username)
    spent = access_tokens.spent_today(call.plane, found)
    return [access_token_json(entry, spent) for entry in found]


@takes(RevokeAccessTokenBody)
def revoke(call: Call, body: RevokeAccessTokenBody) -> None:
    """Ends a token at once, and what is open under it."""
    access_tokens.revoke(call.plane, call.actor, body.name, body.username)


def revoke_own(call: Call) -> None:
    """Ends the access token of this very call at once, and what is open under it: as a page of the console does when
    its user signs out. A user's own token is replaced instead."""
    access_tokens.revoke_own(call.plane, call.actor, call.token)
