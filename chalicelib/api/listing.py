"""Pages of lists: by date and id, as clients page through users and projects; by name, where names are the order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import Field, StringConstraints

from chalicelib.api.requests import At, Id, RequestBody
from chalicelib.domain.instants import Micros

T = TypeVar("T")


class NamedPageBody(RequestBody):
    """A page of a list in order of names; everything by default, since clients of this line don't page here."""

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
    asked: PageBody,
    rows: Sequence[T],
    key: Callable[[T], tuple[Micros, str, str]],
    write: Callable[[Sequence[T]], list[Any]],
    name: str,
) -> Any:
    """The requested rows. `key` gives a row's date, id and name, and `write` gets the whole page, so that it can read
    what it needs at once; the total, if requested, comes beside the list."""
    pattern = asked.name_pattern or ""
    matching = [row for row in rows if pattern in key(row)[2]]
    ordered = sorted(matching, key=lambda row: key(row)[:2], reverse=not asked.ascending)
    if asked.prev_created_at is not None:
        last = (asked.prev_created_at, asked.prev_id or ("\uffff" if asked.ascending else ""))
        ordered = [row for row in ordered if (key(row)[:2] > last) is asked.ascending and key(row)[:2] != last]
    written = write(ordered[: asked.limit])
    return {"total_count": len(matching), name: written} if asked.return_total_count else written
