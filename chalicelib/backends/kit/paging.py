"""Listings in pages: complete, or an error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from chalicelib.errors import Transient

T = TypeVar("T")
MOST = 10_000


def pages(page: Callable[[str], tuple[Iterable[T], str]]) -> Iterator[T]:
    """The items of all pages. `page` returns a page's items and the next page's token or address, which is empty on the
    last page. The first page is requested with an empty token."""
    seen, token = set[str](), ""
    for _ in range(MOST):
        listed, token = page(token)
        yield from listed
        if not token:
            return
        if token in seen:
            break
        seen.add(token)
    raise Transient("A list has no end: its pages lead back to one that was there.")
