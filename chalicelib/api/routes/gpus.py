"""GPUs over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from chalicelib.api.requests import Object, RequestBody
from chalicelib.api.route import Call, takes
from chalicelib.api.routes.runs import refuse_unallocated
from chalicelib.api.wire.gpus import gpus_json
from chalicelib.api.wire.offers import ages_json, asked_json
from chalicelib.errors import Invalid, Problem
from chalicelib.usecases.runs import gpus

if TYPE_CHECKING:
    from chalicelib import contract


class ListGpusBody(RequestBody):
    run_spec: Object
    group_by: Annotated[list[Literal["backend", "region", "count"]], Field(max_length=10)] | None = None
    reverse: bool = False
    full_offers: bool = False
    unallocated_resources: bool = False


@takes(ListGpusBody)
def list_gpus(call: Call, body: ListGpusBody) -> contract.GpuList:
    """The kinds of GPUs that the offers for a run have, by model and by what `group_by` says."""
    refuse_unallocated(body.unallocated_resources)
    by = frozenset(body.group_by or ())
    if "region" in by and "backend" not in by:
        problem = Problem("regions belong to backends", "group_by", hint="also group by `backend`: gpu,backend,region")
        raise Invalid([problem])
    view = gpus.GpuView(by, body.reverse, body.full_offers)
    groups, asked = gpus.list_gpus(call.plane, call.actor, call.tenant, body.run_spec, view, role=call.role)
    ages = ages_json(call.plane.catalog.ages(call.tenant.id))
    return {"gpus": gpus_json(groups), "offers_as_of": ages, "offers_asked": asked_json(asked)}
