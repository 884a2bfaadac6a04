"""Secrets. A project's admins manage them, and its managers if the installation allows it."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated

from pydantic import ConfigDict, Field

from chalicelib.api.requests import RequestBody
from chalicelib.api.route import Answer, Call, DryRun, asks, takes_both
from chalicelib.api.v1 import answers
from chalicelib.api.v1.answers import PageQuery
from chalicelib.api.v1.writes import Nothing, WriteQuery, creates, gone, set_, write
from chalicelib.api.wire.v1.people import secret_json
from chalicelib.domain.tenants import Secret
from chalicelib.usecases.context import Plane
from chalicelib.usecases.keyed_requests import Acted
from chalicelib.usecases.people import secrets

if TYPE_CHECKING:
    from chalicelib import contract


class Value(RequestBody):
    model_config = ConfigDict(extra="forbid")

    value: str = Field(repr=False)


@asks(PageQuery)
def list_project(call: Call, query: PageQuery) -> Annotated[Answer, contract.V1SecretPage]:
    """Secrets of the project by name, without their values."""
    found = secrets.list_secrets(call.plane, call.tenant, after=query.after_name(call), limit=query.limit)
    return answers.named_page(
        call, query, found, lambda secret: secret.name, lambda secret: secret_json(secret, call.tenant.name)
    )


def get(call: Call) -> Annotated[Answer, contract.V1Secret]:
    """The secret of this name, with its value."""
    secret, value = secrets.get_secret(call.plane, call.tenant, call.params["secret_name"])
    return answers.resource(call, {**secret_json(secret, call.tenant.name), "value": value})


@takes_both(Value, WriteQuery)
def put(
    call: Call, body: Value, query: WriteQuery
) -> Annotated[Answer, contract.V1SecretSummary, HTTPStatus.OK, HTTPStatus.CREATED, DryRun(contract.V1Change)]:
    """Creates a secret, or changes its value."""
    name = call.params["secret_name"]

    def act(plane: Plane, _: str) -> Secret:
        return secrets.set_secret(plane, call.tenant, call.actor, name, body.value)

    def answer(done: Acted[Secret]) -> Answer:
        secret = done.result or secrets.get_secret(call.plane, call.tenant, name)[0]
        return set_(call, done, secret_json(secret, call.tenant.name))

    verb = creates(lambda: secrets.find(call.plane.store, call.tenant, name))
    return write(call, query, verb, act, answer, by_store=True)


@takes_both(Nothing, WriteQuery)
def delete(
    call: Call, body: Nothing, query: WriteQuery
) -> Annotated[Answer, HTTPStatus.NO_CONTENT, DryRun(contract.V1Change)]:
    """Deletes a secret."""
    name = call.params["secret_name"]

    def act(plane: Plane, _: str) -> None:
        secrets.delete_secrets(plane, call.tenant, call.actor, [name])

    return write(call, query, "delete", act, gone, by_store=True)
