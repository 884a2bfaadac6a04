"""The `…/spec` of a resource: its configuration alone, with a tag that changes only with it."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import orjson
from pydantic import BaseModel

from chalicelib.api.requests import Object
from chalicelib.api.route import Answer, Call
from chalicelib.api.v1.writes import changed
from chalicelib.domain.specs.env import hidden_names, with_values
from chalicelib.domain.specs.secrecy import HIDDEN, filled
from chalicelib.errors import Invalid, Problem
from chalicelib.store import sealed_specs
from chalicelib.store.seal import Sealer


def named(configuration: Object, name: str) -> Object:
    """The configuration with the name of its path. Raises Invalid if it has another."""
    written = configuration.get("name")
    if written not in (None, name):
        text = f"this is the address of {name[:80]}"
        raise Invalid([Problem(text, path="name", hint="leave out `name`, or write to another address")])
    return {**configuration, "name": name}


def stored(seal: Sealer, model: type[BaseModel], text: str, context: str, *, own: bool) -> Object:
    """The configuration of a stored spec, with its secrets only if it is the caller's own."""
    spec = sealed_specs.opened(seal, model, raw(text), context) if own else raw(sealed_specs.shown(model, text))
    found: Object = spec["configuration"]
    return found


def meant(configuration: Object, known: Object) -> Object:
    """What the caller means, who may have read the configuration with hidden values: these are taken from the stored
    one, `known`. Raises Invalid if it doesn't have one."""
    whole: Object = filled(configuration, known)
    if "env" not in whole:
        return whole
    env = with_values(whole["env"], known.get("env"))
    if names := hidden_names(env):
        text = f"{HIDDEN} stands for a value that isn't known"
        raise Invalid([Problem(text, path=f"env.{name}", hint="write the value") for name in names])
    return {**whole, "env": env}


def raw(spec: str) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(spec)
    return found


def applied(call: Call, configuration: Any, tag: str, *, made: bool) -> Answer:
    """`made`: by this request."""
    status = HTTPStatus.CREATED if made else HTTPStatus.OK
    return changed(call, configuration, {"ETag": tag}, status=status)
