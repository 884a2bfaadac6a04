"""Answers under `/api/v1`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from chalicelib.api import etags
from chalicelib.api.encode import encode
from chalicelib.api.route import Answer, Call


def resource(call: Call, value: Any, headers: Mapping[str, str] | None = None) -> Answer:
    """A resource with its tag, or nothing where the caller has it already."""
    body = encode(value, call.plane.limits.answer)
    sent = {**(headers or {}), "ETag": etags.of(body), "Cache-Control": "private, no-cache"}
    if etags.has(call.headers.get("if-none-match", ""), sent["ETag"]):
        return Answer(b"", status=304, headers=sent)
    return Answer(body, headers=sent)


def page(call: Call, path: str, value: Any, cursor: str | None) -> Answer:
    """A page of a list, with a link to the next one. `path`: the list's."""
    if cursor is None:
        return resource(call, value)
    following = urlencode({**call.query, "cursor": cursor})
    return resource(call, value, {"Link": f'<{path}?{following}>; rel="next"'})


def changed(call: Call, value: Any, headers: Mapping[str, str] | None = None, *, status: int = 200) -> Answer:
    """The answer to a write."""
    return Answer(encode(value, call.plane.limits.answer), status=status, headers=headers or {})
