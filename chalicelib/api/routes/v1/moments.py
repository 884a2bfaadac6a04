"""States of projects at an instant of the last day, for travelling in time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from pydantic import ConfigDict

from chalicelib.api.requests import At, RequestBody
from chalicelib.api.route import Answer, Call, asks
from chalicelib.api.v1 import answers
from chalicelib.api.wire.v1.moments import marks_json, state_json
from chalicelib.usecases.operator import moments

if TYPE_CHECKING:
    from chalicelib import contract

FOR_EVER = "private, max-age=86400, immutable"  # as long as it can be asked for


class StateQuery(RequestBody):
    model_config = ConfigDict(extra="forbid")

    at: At


class MarkQuery(RequestBody):
    model_config = ConfigDict(extra="forbid")

    since: At | None = None
    until: At | None = None


@asks(StateQuery)
def get_state(call: Call, query: StateQuery) -> Annotated[Answer, contract.V1State]:
    """What the project looked like at an instant of the last 24 hours: its runs, fleets and machines. A final answer
    never changes and can be kept."""
    state, final = moments.state_at(call.plane, call.tenant, query.at)
    answer = answers.resource(call, state_json(state, query.at, final=final))
    return replace(answer, headers={**answer.headers, "Cache-Control": FOR_EVER}) if final else answer


@asks(MarkQuery)
def list_marks(call: Call, query: MarkQuery) -> Annotated[Answer, contract.V1Marks]:
    """Failures, interruptions, deployments and scaling, oldest first: of the last 24 hours, unless the query says
    otherwise. In a long history the newest, and from where to go on."""
    found = moments.marks(call.plane, call.tenant, query.since, query.until)
    return answers.resource(call, marks_json(found))
