"""Tables whose changes can be undone.

A pass tries things that may fail: seven of eight places are found, and the eighth isn't. It makes its changes through a
journal, which keeps the old values; `roll_back` restores them, the last change first. A change that stays costs one
list entry.
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
        """A point that `roll_back` can return to."""
        return len(self._before)

    def roll_back(self, mark: int) -> None:
        """Restore every table as it was at the mark."""
        while len(self._before) > mark:
            table, key, before = self._before.pop()
            if before is _ABSENT:
                del table[key]
            else:
                table[key] = before
