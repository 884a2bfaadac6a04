"""Quotas of projects over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from chalicelib.api.requests import Name, RequestBody
from chalicelib.api.route import Call, takes
from chalicelib.api.wire.quotas import quota_json
from chalicelib.errors import Invalid
from chalicelib.usecases.people import quotas

if TYPE_CHECKING:
    from chalicelib import contract

Count = Annotated[int, Field(ge=0, le=1_000_000)]
_LIMITS = ("gpus", "jobs", "money")


class SetBody(RequestBody):
    """Limits of the whole project, of `username`, or of each user without own limits. A limit that is left out stays as
    it is; null removes it."""

    username: Name | None = None
    each_user: bool = False
    gpus: Count | None = None
    jobs: Count | None = None
    money: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] | None = None


def get(call: Call) -> contract.Quota:
    return quota_json(quotas.view(call.plane, call.tenant))


@takes(SetBody)
def set_quota(call: Call, body: SetBody) -> contract.Quota:
    """Sets limits of a project, of one of its users (`username`), or of each (`each_user`)."""
    if body.username is not None and body.each_user:
        raise Invalid("`username` and `each_user` exclude each other.", hint="Leave one of them out.")
    changes = {name: getattr(body, name) for name in _LIMITS if name in body.model_fields_set}
    if not changes:
        raise Invalid("This sets no limit.", hint="Give `gpus`, `jobs` or `money`; null lifts a limit.")
    whose = "" if body.each_user else body.username
    quotas.set_limits(call.plane, call.actor, call.tenant, whose, changes)
    return quota_json(quotas.view(call.plane, call.tenant))
