"""Answers under `/api/v1`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar
from urllib.parse import urlencode

from pydantic import ConfigDict, Field

from chalicelib.api import etags
from chalicelib.api.encode import encode
from chalicelib.api.requests import RequestBody
from chalicelib.api.route import Answer, Call
from chalicelib.api.v1 import cursors
from chalicelib.domain.instants import Micros

T = TypeVar("T")

PAGE, LONGEST_PAGE = 50, 100


def resource(call: Call, value: Any, headers: Mapping[str, str] | None = None) -> Answer:
    """A resource with its tag, or nothing where the caller has it already."""
    body = encode(value, call.plane.limits.answer)
    sent = {**(headers or {}), "ETag": etags.of(body), "Cache-Control": "private, no-cache"}
    if etags.has(call.headers.get("if-none-match", ""), sent["ETag"]):
        return Answer(b"", status=304, headers=sent)
    return Answer(body, headers=sent)


class PageQuery(RequestBody):
    """Which page of a list. Unknown parameters are mistakes."""

    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=LONGEST_PAGE)] = PAGE
    cursor: Annotated[str, Field(max_length=cursors.LONGEST)] | None = None

    def after(self, listing: str) -> tuple[Micros, str] | tuple[None, None]:
        """The date and the id of the last row of the page before, in a list by time."""
        return (None, None) if self.cursor is None else cursors.decode_row(self.cursor, listing)

    def following(self, listing: str, rows: Sequence[T], key: Callable[[T], tuple[Micros, str]]) -> str | None:
        """The cursor of the next page; None if these rows are the last. `key`: a row's date and id."""
        return cursors.encode(listing, *key(rows[-1])) if len(rows) == self.limit else None


def page(call: Call, path: str, value: Any, cursor: str | None) -> Answer:
    """A page of a list, with a link to the next one. `path`: the list's."""
    if cursor is None:
        return resource(call, value)
    following = urlencode({**call.query, "cursor": cursor})
    return resource(call, value, {"Link": f'<{path}?{following}>; rel="next"'})


def changed(call: Call, value: Any, headers: Mapping[str, str] | None = None, *, status: int = 200) -> Answer:
    """The answer to a write."""
    return Answer(encode(value, call.plane.limits.answer), status=status, headers=headers or {})
