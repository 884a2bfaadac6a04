"""Services: runs that take requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from chalicelib.api.route import Answer, Call
from chalicelib.api.v1 import answers
from chalicelib.api.wire.v1.services import service_json
from chalicelib.usecases.runs import runs
from chalicelib.usecases.services.live_services import live_service

if TYPE_CHECKING:
    from chalicelib import contract


def get(call: Call) -> Annotated[Answer, contract.V1Service]:
    """The service that the run of this name is: its replicas, how many there should be and why, and its traffic."""
    row = runs.get(call.plane, call.tenant, name=call.params["run_name"], run_id=None)
    service = service_json(live_service(call.plane, row), call.tenant.name, call.plane.clock.now())
    return answers.resource(call, service)
