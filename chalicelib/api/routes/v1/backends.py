"""Backends of a project. Only its admins see or change them, and their secrets are always hidden."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated

from pydantic import RootModel

from chalicelib.api.requests import Object
from chalicelib.api.route import Answer, Call, DryRun, takes_both
from chalicelib.api.v1 import answers
from chalicelib.api.v1.writes import Nothing, WriteQuery, creates, gone, set_, write
from chalicelib.api.wire.v1.people import backend_json
from chalicelib.configuration.server import read_backend
from chalicelib.domain import keys
from chalicelib.domain.backends import Configured
from chalicelib.errors import Invalid, Problem
from chalicelib.store import nouns
from chalicelib.usecases.context import Plane
from chalicelib.usecases.keyed_requests import Acted
from chalicelib.usecases.operator import backends

if TYPE_CHECKING:
    from chalicelib import contract


class BackendConfig(RootModel[Object]):
    """The backend's configuration, as in the server's file. A hidden secret stays as it is."""


def list_project(call: Call) -> Annotated[Answer, contract.V1Backends]:
    """Backends that were configured for the project, by type."""
    found = backends.list_backends(call.plane.store, call.tenant.id)
    return answers.resource(call, {"items": [backend_json(each, call.tenant.name) for each in found]})


def get(call: Call) -> Annotated[Answer, contract.V1Backend]:
    """The backend of this type."""
    return answers.resource(call, backend_json(_named(call), call.tenant.name))


@takes_both(BackendConfig, WriteQuery)
def put(
    call: Call, body: BackendConfig, query: WriteQuery
) -> Annotated[Answer, contract.V1Backend, HTTPStatus.OK, HTTPStatus.CREATED, DryRun(contract.V1Change)]:
    """Adds a backend, or changes its configuration, once the provider takes it."""
    kind = call.params["backend_type"]
    if body.root.get("type", kind) != kind:
        text = f"this is the address of {kind[:40]}"
        raise Invalid([Problem(text, path="type", hint="leave out `type`, or write to another address")])
    config = read_backend({**body.root, "type": kind})

    def act(plane: Plane, _: str) -> Configured:
        known = nouns.find(plane.store, Configured, keys.backend(call.tenant.id, kind))
        save = backends.create_backend if known is None else backends.update_backend
        return save(plane, call.tenant, call.actor, config)

    def answer(done: Acted[Configured]) -> Answer:
        return set_(call, done, backend_json(done.result or _named(call), call.tenant.name))

    verb = creates(lambda: nouns.find(call.plane.store, Configured, keys.backend(call.tenant.id, kind)))
    return write(call, query, verb, act, answer, by_store=True)


@takes_both(Nothing, WriteQuery)
def delete(
    call: Call, body: Nothing, query: WriteQuery
) -> Annotated[Answer, HTTPStatus.NO_CONTENT, DryRun(contract.V1Change)]:
    """Deletes a backend that nothing uses."""
    kind = call.params["backend_type"]

    def act(plane: Plane, _: str) -> None:
        backends.delete_backends(plane, call.tenant, call.actor, [kind])

    return write(call, query, "delete", act, gone, by_store=True)


def _named(call: Call) -> Configured:
    return backends.get_backend(call.plane, call.tenant, call.params["backend_type"])
