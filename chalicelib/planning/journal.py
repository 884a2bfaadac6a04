"""Tables whose changes can be taken back.

A pass tries things that may come to nothing: seven of eight places found, and no eighth. What it changes on the way it
changes through a journal, which keeps what was there before; `back` puts that back, the last change first. A change
that stays costs one entry in a list.
"""

from __future__ import annotations

from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_ABSENT: Any = object()


class Journal:
    def __init__(self) -> None:
        self._before: list[tuple[dict[Any, Any], Any, Any]] = []

    def put(self, table: dict[K, V], key: K, value: V) -> None:
        self._before.append((table, key, table.get(key, _ABSENT)))
        table[key] = value

    def mark(self) -> int:
        """A point to come back to."""
        return len(self._before)

    def back(self, mark: int) -> None:
        """Every table as it was at the mark."""
        while len(self._before) > mark:
            table, key, before = self._before.pop()
            if before is _ABSENT:
                del table[key]
            else:
                table[key] = before
