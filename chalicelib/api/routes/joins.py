"""Joining of machines over HTTP: the commands for it, and the calls of the machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from chalicelib.api.auth import bearer
from chalicelib.api.requests import Id, Name, RequestBody
from chalicelib.api.route import Answer, Call, takes
from chalicelib.domain.instants import iso
from chalicelib.domain.joins import Join
from chalicelib.usecases.agents import joins

if TYPE_CHECKING:
    from chalicelib import contract

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


@takes(CreateJoinBody)
def create(call: Call, body: CreateJoinBody) -> contract.CreatedJoin:
    """A command with which one machine joins a fleet. It is shown this once, works once, and expires."""
    created = joins.create(call.plane, call.actor, call.tenant, body.name, body.expires_in, role=call.role)
    return {**_json(call, created.join), "command": created.command}


@takes(ListJoinsBody)
def list_joins(call: Call, body: ListJoinsBody) -> list[contract.Join]:
    found = joins.listed(call.plane, call.actor, call.tenant, body.name, role=call.role)
    return [_json(call, join) for join in found]


@takes(RevokeBody)
def revoke(call: Call, body: RevokeBody) -> None:
    joins.revoke(call.plane, call.actor, call.tenant, body.name, body.id, role=call.role)


def _json(call: Call, join: Join) -> contract.Join:
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


@takes(LeftBody)
def left(call: Call, body: LeftBody) -> None:
    joins.left(call.plane, bearer(call.headers), body.instance)
