"""Quotas of projects and of their users."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import ConfigDict, Field

from chalicelib.api.requests import RequestBody
from chalicelib.api.route import Answer, Call, DryRun, takes_both
from chalicelib.api.v1 import answers
from chalicelib.api.v1.writes import WriteQuery, creates, set_, write
from chalicelib.api.wire.v1.quotas import quota_json
from chalicelib.domain.quotas import Limits
from chalicelib.usecases.context import Plane
from chalicelib.usecases.keyed_requests import Acted
from chalicelib.usecases.people import quotas

if TYPE_CHECKING:
    from chalicelib import contract


Count = Annotated[int, Field(ge=0, le=1_000_000)]


class NewLimits(RequestBody):
    """All limits: one that is left out, or null, is none."""

    model_config = ConfigDict(extra="forbid")

    gpus: Count | None = None
    jobs: Count | None = None
    usd_per_day: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] | None = None


def get(call: Call) -> Annotated[Answer, contract.V1Quota]:
    """Limits of the project and of its users, and how much of them is used."""
    return answers.resource(call, quota_json(quotas.view(call.plane, call.tenant)))


@takes_both(NewLimits, WriteQuery)
def put(
    call: Call, body: NewLimits, query: WriteQuery
) -> Annotated[Answer, contract.V1Quota, HTTPStatus.OK, HTTPStatus.CREATED, DryRun(contract.V1Change)]:
    """Sets the limits of the project as a whole. Only global admins may."""
    return _set(call, None, body, query)


@takes_both(NewLimits, WriteQuery)
def put_each(
    call: Call, body: NewLimits, query: WriteQuery
) -> Annotated[Answer, contract.V1Quota, HTTPStatus.OK, HTTPStatus.CREATED, DryRun(contract.V1Change)]:
    """Sets the limits of each user without limits of their own."""
    return _set(call, "", body, query)


@takes_both(NewLimits, WriteQuery)
def put_user(
    call: Call, body: NewLimits, query: WriteQuery
) -> Annotated[Answer, contract.V1Quota, HTTPStatus.OK, HTTPStatus.CREATED, DryRun(contract.V1Change)]:
    """Sets the limits of one user. Without any, those of each user hold."""
    return _set(call, call.params["user_name"], body, query)


def _set(call: Call, whose: str | None, body: NewLimits, query: WriteQuery) -> Answer:
    limits: dict[str, Any] = {"gpus": body.gpus, "jobs": body.jobs, "money": body.usd_per_day}

    def act(plane: Plane, _: str) -> None:
        quotas.set_limits(plane, call.actor, call.tenant, whose, limits)

    def answer(done: Acted[None]) -> Answer:
        return set_(call, done, quota_json(quotas.view(call.plane, call.tenant)))

    new = creates(lambda: quotas.limits_of(call.plane, call.tenant, whose))
    return write(call, query, "change" if Limits(**limits).empty else new, act, answer)
