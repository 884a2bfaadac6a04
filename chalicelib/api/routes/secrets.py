"""Secrets over HTTP. A project's admins manage them, and its managers if the installation allows it; a user who can set
a secret can read all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from chalicelib.api.listing import NamedPageBody
from chalicelib.api.requests import RequestBody
from chalicelib.api.route import Call, takes
from chalicelib.usecases.people import secrets

if TYPE_CHECKING:
    from chalicelib import contract


class GetSecretBody(RequestBody):
    name: str


class SaveSecretBody(RequestBody):
    name: str
    value: str = Field(repr=False)


class DeleteSecretsBody(RequestBody):
    secrets_names: list[str] = Field(max_length=100)


@takes(NamedPageBody)
def list_secrets(call: Call, body: NamedPageBody) -> list[contract.Secret]:
    """Secrets without their values."""
    found = secrets.list_secrets(call.plane, call.tenant, after=body.after, limit=body.limit)
    return [{"id": secret.id, "name": secret.name, "value": None} for secret in found]


@takes(GetSecretBody)
def get(call: Call, body: GetSecretBody) -> contract.Secret:
    secret, value = secrets.get_secret(call.plane, call.tenant, body.name)
    return {"id": secret.id, "name": secret.name, "value": value}


@takes(SaveSecretBody)
def create_or_update(call: Call, body: SaveSecretBody) -> contract.Secret:
    """Creates a secret, or changes its value."""
    secret = secrets.set_secret(call.plane, call.tenant, call.actor, body.name, body.value)
    return {"id": secret.id, "name": secret.name, "value": body.value}


@takes(DeleteSecretsBody)
def delete(call: Call, body: DeleteSecretsBody) -> None:
    secrets.delete_secrets(call.plane, call.tenant, call.actor, body.secrets_names)
