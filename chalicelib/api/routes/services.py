"""Services and their tokens over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from chalicelib.api.requests import Name, RequestBody
from chalicelib.api.route import Call, takes
from chalicelib.api.wire.v1.services import service_json
from chalicelib.domain.instants import iso
from chalicelib.usecases.runs import runs
from chalicelib.usecases.services import service_tokens
from chalicelib.usecases.services.live_services import live_service

if TYPE_CHECKING:
    from chalicelib import contract


class GetServiceBody(RequestBody):
    run_name: Name


class CreateTokenBody(RequestBody):
    run_name: Name | None = None
    expires_in: Annotated[int, Field(ge=service_tokens.LEAST_SECONDS, le=service_tokens.MOST_SECONDS)] = 3600


@takes(GetServiceBody)
def get(call: Call, body: GetServiceBody) -> contract.V1Service:
    """A service's replicas, how many there should be and why, and its traffic."""
    row = runs.get(call.plane, call.tenant, name=body.run_name, run_id=None)
    return service_json(live_service(call.plane, row), call.tenant.name, call.plane.clock.now())


@takes(CreateTokenBody)
def create_token(call: Call, body: CreateTokenBody) -> contract.ServiceToken:
    """A token that may call one service of the project, or all of them, and nothing else."""
    issued = service_tokens.issue(call.plane, call.actor, call.tenant, body.run_name or "", body.expires_in)
    return {"token": issued.token, "expires_at": iso(issued.ends_at), "run_name": issued.run_name or None}
