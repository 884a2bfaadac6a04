"""Backends of a project over HTTP. Only its admins see or change them."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from chalicelib.api.bodies import parse_json
from chalicelib.api.requests import Name, RequestBody
from chalicelib.api.route import Call
from chalicelib.api.wire.backends import backend_json
from chalicelib.configuration.server import parse_backend, read_backend
from chalicelib.domain.specs.reading import Spec
from chalicelib.errors import Invalid
from chalicelib.usecases.operator import backends


class YamlBody(RequestBody):
    config_yaml: str = Field(repr=False)


class DeleteBackendsBody(RequestBody):
    backends_names: list[Name] = Field(max_length=40)


def list_types(call: Call) -> Any:
    return sorted(call.plane.providers.types)


def list_backends(call: Call) -> Any:
    ages = call.plane.catalog.ages(call.tenant.id)
    found = backends.list_backends(call.plane.store, call.tenant.id)
    return [backend_json(each, ages.get(each.type)) for each in found]


def create(call: Call) -> Any:
    return backends.shown(backends.create_backend(call.plane, call.tenant, call.actor, _sent(call)))


def update(call: Call) -> Any:
    return backends.shown(backends.update_backend(call.plane, call.tenant, call.actor, _sent(call)))


def create_yaml(call: Call) -> None:
    config = parse_backend(call.parse(YamlBody).config_yaml)
    backends.create_backend(call.plane, call.tenant, call.actor, config)


def update_yaml(call: Call) -> None:
    config = parse_backend(call.parse(YamlBody).config_yaml)
    backends.update_backend(call.plane, call.tenant, call.actor, config)


def delete(call: Call) -> None:
    backends.delete_backends(call.plane, call.tenant, call.actor, call.parse(DeleteBackendsBody).backends_names)


def config_info(call: Call) -> Any:
    return backends.shown(_named(call))


def get_yaml(call: Call) -> Any:
    import yaml

    found = _named(call)
    text = yaml.safe_dump(backends.shown(found), sort_keys=False, allow_unicode=True)
    return {"name": found.type, "config_yaml": text}


def check(call: Call) -> None:
    backends.check_backend(call.plane, call.tenant, call.params["backend_name"])


def _named(call: Call) -> Any:
    return backends.get_backend(call.plane, call.tenant, call.params["backend_name"])


def _sent(call: Call) -> Spec:
    raw = parse_json(call.body)
    if not isinstance(raw, dict):
        raise Invalid("The body must be a JSON object: the backend's configuration")
    return read_backend(raw)
