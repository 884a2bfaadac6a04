"""The `…/spec` of a resource: its configuration alone, with a tag that changes only with it."""

from __future__ import annotations

from typing import Any

import orjson

from chalicelib.api.requests import Object
from chalicelib.api.route import Answer, Call
from chalicelib.api.v1.writes import changed
from chalicelib.errors import Invalid, Problem


def named(configuration: Object, name: str) -> Object:
    """The configuration with the name of its path. Raises Invalid if it has another."""
    written = configuration.get("name")
    if written not in (None, name):
        text = f"this is the address of {name[:80]}"
        raise Invalid([Problem(text, path="name", hint="leave out `name`, or write to another address")])
    return {**configuration, "name": name}


def raw(spec: str) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(spec)
    return found


def applied(call: Call, configuration: Any, tag: str) -> Answer:
    return changed(call, configuration, {"ETag": tag})
