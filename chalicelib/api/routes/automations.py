"""Stored configurations over HTTP. Any member may store one, since it is applied with its author's rights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from chalicelib.api.requests import Name, Object, RequestBody
from chalicelib.api.route import Call, takes
from chalicelib.api.v1 import configurations
from chalicelib.domain.automations import Automation
from chalicelib.domain.instants import iso
from chalicelib.errors import Invalid, Problem
from chalicelib.usecases.runs import automations

if TYPE_CHECKING:
    from chalicelib import contract


class AddAutomationBody(RequestBody):
    """`spec`: as it is sent to be applied; or `text`: a configuration in YAML, as people write it."""

    spec: Object | None = None
    text: Annotated[str, Field(max_length=automations.LARGEST)] | None = None


class DeleteAutomationsBody(RequestBody):
    names: list[Name] = Field(max_length=40)


@takes(AddAutomationBody)
def add(call: Call, body: AddAutomationBody) -> contract.Automation:
    """Stores a configuration that rules about events may apply, with the rights of its author."""
    if (body.spec is None) == (body.text is None):
        raise Invalid([Problem("either `spec` or `text` is needed, and not both", path="spec")])
    if body.spec is not None:
        return _add(call, body.spec)
    with configurations.read((body.text or "").encode()) as written:
        return _add(call, {"configuration": written})


def _add(call: Call, spec: Object) -> contract.Automation:
    return _shown(automations.add(call.plane, call.actor, call.tenant, spec, call.role))


def list_automations(call: Call) -> list[contract.Automation]:
    return [_shown(stored) for stored in automations.list_all(call.plane, call.tenant)]


@takes(DeleteAutomationsBody)
def delete(call: Call, body: DeleteAutomationsBody) -> None:
    automations.delete(call.plane, call.actor, call.tenant, body.names, call.role)


def _shown(stored: Automation) -> contract.Automation:
    """A stored configuration without its content, which may contain keys and passwords."""
    return {
        "id": stored.id,
        "name": stored.name,
        "type": stored.type,
        "user": stored.user_name,
        "stored_at": iso(stored.stored_at),
    }
