"""Listings in pages: complete, or an error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from chalicelib.errors import Transient

T = TypeVar("T")
MOST = 10_000


def pages(page: Callable[[str], tuple[Iterable[T], str]]) -> Iterator[T]:
    """What is listed on every page. `page` returns what one lists, and the token or the address of the next, which is
    empty after the last; the first is asked for with an empty one."""
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
