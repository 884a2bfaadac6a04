"""Secrets over HTTP. A project's admins manage them, and its managers where the installation says so: who may set a
secret may read what others set."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from chalicelib.api.listing import NamedPage
from chalicelib.api.requests import Request
from chalicelib.api.table import Access, Call, Route
from chalicelib.usecases import secrets


class Get(Request):
    name: str


class Save(Request):
    name: str
    value: str = Field(repr=False)


class Delete(Request):
    secrets_names: list[str] = Field(max_length=100)


def list_secrets(call: Call) -> Any:
    asked = call.parse(NamedPage)
    found = secrets.list_secrets(call.plane, call.tenant, after=asked.after, limit=asked.limit)
    return [{"id": secret.id, "name": secret.name, "value": None} for secret in found]


def get(call: Call) -> Any:
    secret, value = secrets.get_secret(call.plane, call.tenant, call.parse(Get).name)
    return {"id": secret.id, "name": secret.name, "value": value}


def create_or_update(call: Call) -> Any:
    asked = call.parse(Save)
    secret = secrets.set_secret(call.plane, call.tenant, call.actor, asked.name, asked.value)
    return {"id": secret.id, "name": secret.name, "value": asked.value}


def delete(call: Call) -> None:
    secrets.delete_secrets(call.plane, call.tenant, call.actor, call.parse(Delete).secrets_names)


_SECRETS = "/api/project/{project_name}/secrets"

ROUTES: tuple[Route, ...] = (
    Route("POST", f"{_SECRETS}/list", Access.keeper, list_secrets),
    Route("POST", f"{_SECRETS}/get", Access.keeper, get),
    Route("POST", f"{_SECRETS}/create_or_update", Access.keeper, create_or_update),
    Route("POST", f"{_SECRETS}/delete", Access.keeper, delete),
)
