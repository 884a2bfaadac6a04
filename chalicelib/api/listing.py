"""Pages of lists: by date and id, as clients page through users and projects; or by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

from pydantic import Field, StringConstraints

from chalicelib.api.requests import At, Id, RequestBody
from chalicelib.domain.instants import Micros

T = TypeVar("T")


class NamedPageBody(RequestBody):
    """A page of a list in order of names; by default the whole list, since clients of this line don't page here."""

    after: Annotated[str, StringConstraints(max_length=200)] = ""
    limit: Annotated[int, Field(ge=1, le=2000)] | None = None


class PageBody(RequestBody):
    return_total_count: bool = False
    name_pattern: Annotated[str, StringConstraints(max_length=100, pattern=r"^[a-zA-Z0-9_-]*$")] | None = None
    prev_created_at: At | None = None
    prev_id: Id | None = None
    limit: Annotated[int, Field(ge=0, le=2000)] = 2000
    ascending: bool = False


def page_of(
    body: PageBody, rows: Sequence[T], key: Callable[[T], tuple[Micros, str, str]]
) -> tuple[Sequence[T], int | None]:
    """The requested rows and, if requested, the number of all that match. `key` gives a row's date, id and name."""
    pattern = body.name_pattern or ""
    matching = [row for row in rows if pattern in key(row)[2]]
    ordered = sorted(matching, key=lambda row: key(row)[:2], reverse=not body.ascending)
    if body.prev_created_at is not None:
        last = (body.prev_created_at, body.prev_id or ("\uffff" if body.ascending else ""))
        ordered = [row for row in ordered if (key(row)[:2] > last) is body.ascending and key(row)[:2] != last]
    return ordered[: body.limit], len(matching) if body.return_total_count else None
