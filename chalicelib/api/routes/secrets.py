"""Secrets over HTTP. A project's admins manage them, and its managers if the installation allows it; a user who can set
a secret can read all of them."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from chalicelib.api.listing import NamedPageBody
from chalicelib.api.requests import RequestBody
from chalicelib.api.route import Call
from chalicelib.usecases.people import secrets


class GetSecretBody(RequestBody):
    name: str


class SaveSecretBody(RequestBody):
    name: str
    value: str = Field(repr=False)


class DeleteSecretsBody(RequestBody):
    secrets_names: list[str] = Field(max_length=100)


def list_secrets(call: Call) -> Any:
    body = call.parse(NamedPageBody)
    found = secrets.list_secrets(call.plane, call.tenant, after=body.after, limit=body.limit)
    return [{"id": secret.id, "name": secret.name, "value": None} for secret in found]


def get(call: Call) -> Any:
    secret, value = secrets.get_secret(call.plane, call.tenant, call.parse(GetSecretBody).name)
    return {"id": secret.id, "name": secret.name, "value": value}


def create_or_update(call: Call) -> Any:
    body = call.parse(SaveSecretBody)
    secret = secrets.set_secret(call.plane, call.tenant, call.actor, body.name, body.value)
    return {"id": secret.id, "name": secret.name, "value": body.value}


def delete(call: Call) -> None:
    secrets.delete_secrets(call.plane, call.tenant, call.actor, call.parse(DeleteSecretsBody).secrets_names)
