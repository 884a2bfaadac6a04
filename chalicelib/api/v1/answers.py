"""Answers under `/api/v1`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar
from urllib.parse import quote, urlencode

from pydantic import ConfigDict, Field

from chalicelib.api import etags
from chalicelib.api.encode import encode
from chalicelib.api.requests import RequestBody
from chalicelib.api.route import Answer, Call, Settling
from chalicelib.api.v1 import cursors
from chalicelib.domain.instants import Micros

T = TypeVar("T")

PAGE, LONGEST_PAGE = 50, 500


def resource(
    call: Call,
    value: Any,
    headers: Mapping[str, str] | None = None,
    *,
    tag: str = "",
    settling: Settling | None = None,
) -> Answer:
    """A resource with its tag, or nothing where the caller has it already. `tag`: that of its version, if it has
    one."""
    body = encode(value, call.plane.limits.answer)
    sent = {**(headers or {}), "ETag": tag or etags.of(body), "Cache-Control": "private, no-cache"}
    if etags.has(call.headers.get("if-none-match", ""), sent["ETag"]):
        return Answer(b"", status=304, headers=sent, settling=settling)
    return Answer(body, headers=sent, settling=settling)


class PageQuery(RequestBody):
    """Which page of a list. Unknown parameters are mistakes."""

    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=LONGEST_PAGE)] = PAGE
    cursor: Annotated[str, Field(max_length=cursors.LONGEST)] | None = None

    def after(self, call: Call) -> tuple[Micros, str] | tuple[None, None]:
        """The date and the id of the last row of the page before, in a list by time."""
        return (None, None) if self.cursor is None else cursors.decode_row(self.cursor, listing(call))

    def after_name(self, call: Call) -> str:
        """The name of the last row of the page before, in a list by name; empty at the beginning."""
        return "" if self.cursor is None else cursors.decode_text(self.cursor, listing(call))


def page(
    call: Call, query: PageQuery, rows: Sequence[T], key: Callable[[T], tuple[Micros, str]], item: Callable[[T], Any]
) -> Answer:
    """A page of a list by time: `rows` are at most the page's. `key`: a row's date and id."""
    cursor = cursors.encode(listing(call), *key(rows[-1])) if len(rows) == query.limit else None
    return linked(call, [item(row) for row in rows], cursor)


def cut(
    call: Call, query: PageQuery, rows: Sequence[T], key: Callable[[T], tuple[Micros, str]], item: Callable[[T], Any]
) -> Answer:
    """Likewise, of the rows of all pages, which come in the order of the list: newest first."""
    at, tie = query.after(call)
    later = rows if at is None or tie is None else [row for row in rows if key(row) < (at, tie)]
    return page(call, query, later[: query.limit], key, item)


def named_page(
    call: Call, query: PageQuery, rows: Sequence[T], name: Callable[[T], str], item: Callable[[T], Any]
) -> Answer:
    """A page of a list by name: `rows` are at most the page's."""
    cursor = cursors.encode(listing(call), name(rows[-1])) if len(rows) == query.limit else None
    return linked(call, [item(row) for row in rows], cursor)


def linked(call: Call, items: Sequence[Any], cursor: str | None, **more: Any) -> Answer:
    """A page with a link to the next one. `more`: what else its document has."""
    document = {**more, "items": items, "next": cursor}
    if cursor is None:
        return resource(call, document)
    following = urlencode({**call.query, "cursor": cursor})
    return resource(call, document, {"Link": f'<{quote(call.path)}?{following}>; rel="next"'})


def listing(call: Call) -> str:
    """The list that the call is about, whatever the page."""
    return cursors.listing(call.path, call.query)
