"""Service tokens over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from chalicelib.api.requests import Name, RequestBody
from chalicelib.api.route import Call, takes
from chalicelib.domain.instants import iso
from chalicelib.usecases.services import service_tokens

if TYPE_CHECKING:
    from chalicelib import contract


class CreateTokenBody(RequestBody):
    run_name: Name | None = None
    expires_in: Annotated[int, Field(ge=service_tokens.LEAST_SECONDS, le=service_tokens.MOST_SECONDS)] = 3600


@takes(CreateTokenBody)
def create_token(call: Call, body: CreateTokenBody) -> contract.ServiceToken:
    """A token that may call one service of the project, or all of them, and nothing else."""
    issued = service_tokens.issue(call.plane, call.actor, call.tenant, body.run_name or "", body.expires_in)
    return {"token": issued.token, "expires_at": iso(issued.ends_at), "run_name": issued.run_name or None}
