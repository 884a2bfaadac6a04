"""Joining of machines over HTTP: the commands for it, and the calls of the machines."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from chalicelib.api.auth import bearer
from chalicelib.api.requests import Id, Name, RequestBody
from chalicelib.api.route import Answer, Call
from chalicelib.domain.instants import iso
from chalicelib.domain.joins import Join
from chalicelib.usecases.agents import joins

_TEXT = "text/plain; charset=utf-8"


class CreateJoinBody(RequestBody):
    name: Name
    expires_in: Annotated[int, Field(ge=joins.LEAST_SECONDS, le=joins.MOST_SECONDS)] = 3600


class ListJoinsBody(RequestBody):
    name: Name


class RevokeBody(RequestBody):
    name: Name
    id: Id


class LeftBody(RequestBody):
    instance: Id


def create(call: Call) -> Any:
    body = call.parse(CreateJoinBody)
    created = joins.create(call.plane, call.actor, call.tenant, body.name, body.expires_in, role=call.role)
    return {**_json(call, created.join), "command": created.command}


def list_joins(call: Call) -> Any:
    found = joins.listed(call.plane, call.actor, call.tenant, call.parse(ListJoinsBody).name, role=call.role)
    return [_json(call, join) for join in found]


def revoke(call: Call) -> None:
    body = call.parse(RevokeBody)
    joins.revoke(call.plane, call.actor, call.tenant, body.name, body.id, role=call.role)


def _json(call: Call, join: Join) -> dict[str, Any]:
    return {
        "id": join.id,
        "created_at": iso(join.created_at),
        "expires_at": iso(join.expires_at),
        "created_by": join.user_name,
        "status": join.status(call.plane.clock.now()).value,
        "instance_name": join.instance_name or None,
    }


def script(call: Call) -> Answer:
    return Answer(joins.script(call.plane).encode(), content_type=_TEXT)


def redeem(call: Call) -> Answer:
    return Answer(joins.redeem(call.plane, call.body).encode(), content_type=_TEXT)


def left(call: Call) -> None:
    joins.left(call.plane, bearer(call.headers), call.parse(LeftBody).instance)
