"""Pages of lists by time."""

from __future__ import annotations

from chalicelib.domain import keys
from chalicelib.domain.instants import Micros, sortable


def bounds(at: Micros | None, tie: str | None, *, ascending: bool) -> tuple[str, str]:
    """The sort range after the last row of the previous page: `(low, high)` for a query."""
    if at is None:
        return "", ""
    if tie is None:
        return (sortable(at + 1), "") if ascending else ("", sortable(at))
    last = keys.by_time("", at, tie)[1]
    # Nothing sorts between a key and the same key with one more character.
    return (f"{last}!", "") if ascending else ("", last)
