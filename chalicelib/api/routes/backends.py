"""Backends of a project over HTTP. Only its admins see or change them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field, RootModel

from chalicelib.api.requests import Name, Object, RequestBody
from chalicelib.api.route import Call, takes
from chalicelib.api.wire.backends import backend_json
from chalicelib.configuration.server import parse_backend, read_backend
from chalicelib.domain.backends import Configured
from chalicelib.usecases.operator import backends

if TYPE_CHECKING:
    from chalicelib import contract


class BackendBody(RootModel[Object]):
    """The backend's configuration, as in the server's file: its `type`, and the keys that this type has."""


class YamlBody(RequestBody):
    config_yaml: str = Field(repr=False)


class DeleteBackendsBody(RequestBody):
    backends_names: list[Name] = Field(max_length=40)


def list_types(call: Call) -> list[str]:
    return sorted(call.plane.providers.types)


def list_backends(call: Call) -> list[contract.Backend]:
    ages = call.plane.catalog.ages(call.tenant.id)
    found = backends.list_backends(call.plane.store, call.tenant.id)
    return [backend_json(each, ages.get(each.type)) for each in found]


@takes(BackendBody)
def create(call: Call, body: BackendBody) -> contract.BackendConfig:
    """Adds a backend, once its credentials work."""
    return backends.shown(backends.create_backend(call.plane, call.tenant, call.actor, read_backend(body.root)))


@takes(BackendBody)
def update(call: Call, body: BackendBody) -> contract.BackendConfig:
    return backends.shown(backends.update_backend(call.plane, call.tenant, call.actor, read_backend(body.root)))


@takes(YamlBody)
def create_yaml(call: Call, body: YamlBody) -> None:
    config = parse_backend(body.config_yaml)
    backends.create_backend(call.plane, call.tenant, call.actor, config)


@takes(YamlBody)
def update_yaml(call: Call, body: YamlBody) -> None:
    config = parse_backend(body.config_yaml)
    backends.update_backend(call.plane, call.tenant, call.actor, config)


@takes(DeleteBackendsBody)
def delete(call: Call, body: DeleteBackendsBody) -> None:
    backends.delete_backends(call.plane, call.tenant, call.actor, body.backends_names)


def config_info(call: Call) -> contract.BackendConfig:
    return backends.shown(_named(call))


def get_yaml(call: Call) -> contract.BackendYaml:
    import yaml

    found = _named(call)
    text = yaml.safe_dump(backends.shown(found), sort_keys=False, allow_unicode=True)
    return {"name": found.type, "config_yaml": text}


def check(call: Call) -> None:
    """Whether the backend works. The refusal lists everything that is wrong."""
    backends.check_backend(call.plane, call.tenant, call.params["backend_name"])


def _named(call: Call) -> Configured:
    return backends.get_backend(call.plane, call.tenant, call.params["backend_name"])
