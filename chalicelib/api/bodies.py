"""JSON bodies to models. All problems are reported, each with its field; for invalid JSON, with the position.

Unknown keys of a request's envelope are ignored, so that later clients of the same line work; the specs inside decide
for themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel

from chalicelib.configuration.reading import read
from chalicelib.errors import Invalid

M = TypeVar("M", bound=BaseModel)

MAX_DEPTH = 60  # deeper than any spec; orjson writes 254 levels only


def parse_body(body: bytes, model: type[M]) -> M:
    """The JSON `body` as `model`; an absent body is `{}`. Raises Invalid."""
    value = parse_json(body)
    if not isinstance(value, dict):
        raise Invalid(f"The body must be a JSON object, not {_kind(value)}")
    return read(model, value)


def parse_json(body: bytes) -> Any:
    if not body.strip():
        return {}
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Invalid(f"The body isn't valid JSON: {error.msg}, at line {error.lineno} column {error.colno}") from None
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH and _deeper(value, MAX_DEPTH):
        raise Invalid(f"The body is nested more than {MAX_DEPTH} levels deep")
    if b"\\u0000" in body and any("\0" in item for level in _levels(value) for item in level if isinstance(item, str)):
        raise Invalid("The body has a NUL character (`\\u0000`), which isn't allowed", hint="Remove it.")
    return value


def _deeper(value: Any, allowed: int) -> bool:
    return next(islice(_levels(value), allowed, None), None) is not None


def _levels(value: Any) -> Iterator[list[Any]]:
    """The contents of a value, level by level; the keys of an object are on the level of its values."""
    level = [value]
    while level:
        yield level
        objects = [item for item in level if isinstance(item, dict)]
        lists = [item for item in level if isinstance(item, list)]
        level = [*chain(*objects), *chain(*(item.values() for item in objects)), *chain(*lists)]


def _kind(value: Any) -> str:
    names = {
        list: "a list",
        str: "a text",
        bool: "a boolean",
        int: "a number",
        float: "a number",
        type(None): "null",
    }
    return names.get(type(value), "this")
