"""JSON bodies to models. All problems are reported, each with its field; for invalid JSON, with the position.

Unknown keys of a request's envelope are ignored, so that later clients of the same line work; the specs inside decide
for themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel

from chalicelib.configuration.reading import read
from chalicelib.errors import Invalid

M = TypeVar("M", bound=BaseModel)

_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+("?)', re.DOTALL)  # also one without an end, or it would be tried again
_WINDOW = 16 * 1024  # bytes of a body that are scanned at a time, during which no other thread runs

MAX_DEPTH = 60  # deeper than any spec; orjson writes 254 levels only
MAX_ITEMS = 250_000  # values in a body: each costs some 100 bytes, and blocks all threads while it is created


def parse_body(body: bytes, model: type[M]) -> M:
    """The JSON `body` as `model`; an absent body is `{}`. Raises Invalid."""
    value = parse_json(body)
    if not isinstance(value, dict):
        raise Invalid(f"The body must be a JSON object, not {_kind(value)}")
    return read(model, value)


def parse_json(body: bytes) -> Any:
    if not body.strip():
        return {}
    if _items(body) > MAX_ITEMS:
        raise Invalid(f"The body has more than {MAX_ITEMS:,} values.", hint="Send large data as files.")
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Invalid(f"The body isn't valid JSON: {error.msg}, at line {error.lineno} column {error.colno}") from None
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH and _deeper(value, MAX_DEPTH):
        raise Invalid(f"The body is nested more than {MAX_DEPTH} levels deep")
    if b"\\u0000" in body and any("\0" in item for level in _levels(value) for item in level if isinstance(item, str)):
        raise Invalid("The body has a NUL character (`\\u0000`), which isn't allowed.", hint="Remove it.")
    return value


def _items(body: bytes) -> int:
    """The approximate number of values in a JSON text: its commas and brackets. Strings are left out only if
    necessary."""
    count = sum(map(body.count, (b",", b"[", b"{")))
    return count if count <= MAX_ITEMS else outside_texts(body)


def outside_texts(body: bytes, at_once: int = _WINDOW) -> int:
    """The number of commas and brackets outside strings; counting stops when there are too many of these or of strings.
    `at_once`: the number of bytes to scan at a time."""
    count = texts = at = 0
    within = b""
    while at < len(body) and count <= MAX_ITEMS and texts <= 2 * MAX_ITEMS:  # a value may have a name
        window = within + body[at : at + at_once]
        at += at_once
        backslashes = len(window) - len(window.rstrip(b"\\"))
        if backslashes % 2:  # an escaped character belongs to its backslash
            window, at = window[:-1], at - 1
        found = list(_TEXT.finditer(window))
        within = b'"' if found and not found[-1][1] else b""
        texts += len(found) - len(within)
        count += sum(map(_TEXT.sub(b"", window).count, (b",", b"[", b"{")))
    return max(count, texts // 2)


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
