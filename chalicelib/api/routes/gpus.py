"""GPUs over HTTP."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from chalicelib.api.requests import Object, Request
from chalicelib.api.routes.runs import refuse_odd_looks
from chalicelib.api.table import Access, Call, Route
from chalicelib.api.wire.gpus import gpus_json
from chalicelib.errors import Invalid, Problem
from chalicelib.usecases import gpus


class List(Request):
    run_spec: Object
    group_by: Annotated[list[Literal["backend", "region", "count"]], Field(max_length=10)] | None = None
    reverse: bool = False
    full_offers: bool = False
    unallocated_resources: bool = False


def list_gpus(call: Call) -> Any:
    asked = call.parse(List)
    refuse_odd_looks(asked.full_offers, asked.unallocated_resources)
    by = frozenset(asked.group_by or ())
    if "region" in by and "backend" not in by:
        problem = Problem(
            "regions belong to backends", "group_by", hint="group by `backend` as well: gpu,backend,region"
        )
        raise Invalid([problem])
    groups = gpus.list_gpus(call.plane, call.actor, call.tenant, asked.run_spec, by, reverse=asked.reverse)
    return gpus_json(groups)


ROUTES: tuple[Route, ...] = (Route("POST", "/api/project/{project_name}/gpus/list", Access.member, list_gpus),)
