"""A bitmap index: which rows of a table have a given value, or one within given bounds.

A set of rows is an int whose bit n stands for row n, so "both" is `&`, "either" is `|`, and the first row of a set is
its lowest bit. A column is built once; a query then takes two look-ups and an exclusive or, whether there are a hundred
rows or fifty thousand.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

_BITS = tuple(tuple(bit for bit in range(8) if byte >> bit & 1) for byte in range(256))
_DIGITS = bytes.maketrans(b"01", b"\0\1")


def rows_of(found: int) -> Iterator[int]:
    """The rows of a set, in order."""
    first = first_of(found) // 8 if found else 0
    for at, byte in enumerate((found >> 8 * first).to_bytes(found.bit_length() // 8 + 1, "little"), first):
        for bit in _BITS[byte]:
            yield 8 * at + bit


def rows_down(found: int) -> Iterator[int]:
    """The rows of a set, from the last."""
    whole = found.to_bytes(found.bit_length() // 8 + 1, "little")
    for at in range(len(whole) - 1, -1, -1):
        for bit in reversed(_BITS[whole[at]]):
            yield 8 * at + bit


def selectors(found: int) -> bytes:
    """A byte for each row up to the last of a set: 1 if the set has the row, else 0."""
    return bin(found)[:1:-1].encode().translate(_DIGITS) if found else b""


def first_of(found: int) -> int:
    """The first row of a set that isn't empty."""
    return (found & -found).bit_length() - 1


class Column:
    """Row n has the value `values[of[n]]`; values have an order.

    `_below[n]` holds the rows of the n lowest groups of values. A group is one value, or several if there are more than
    256 values: a set for each of 50,000 values would take 300 MB.
    """

    def __init__(self, values: Sequence[Any], of: Sequence[int]) -> None:
        self._all, self._of = values, of
        self.values = sorted(set(values))
        self._size = len(self.values) // 256 + 1  # of a group
        group = {value: at // self._size for at, value in enumerate(self.values)}
        known = [group[value] for value in values]
        rows = bytes(map(known.__getitem__, of))[::-1]  # one byte per row, the last row first, like digits
        most = -(-len(self.values) // self._size)
        self._equal: dict[Any, int] = {}  # filled on demand
        self._below = [int(rows.translate(b"1" * n + b"0" * (256 - n)) or b"0", 2) for n in range(most + 1)]

    def between(self, low: Any = None, high: Any = None) -> int:
        """The rows within the bounds, both inclusive; None: unbounded."""
        start = 0 if low is None else bisect_left(self.values, low)
        end = len(self.values) if high is None else bisect_right(self.values, high)
        if self._size > 1:
            return self._lowest(end) ^ self._lowest(start)
        return self._below[end] ^ self._below[start] if start else self._below[end]

    def equal(self, value: Any) -> int:
        found = self._equal.get(value)
        if found is None:
            found = self._equal[value] = self.between(value, value)
        return found

    def any_of(self, values: Iterable[Any]) -> int:
        found, known = 0, self._equal
        for value in values:
            rows = known.get(value)
            found |= self.equal(value) if rows is None else rows
        return found

    def _lowest(self, count: int) -> int:
        """The rows of the `count` lowest values."""
        if count == len(self.values):
            return self._below[-1]
        groups, rest = divmod(count, self._size)
        found = self._below[groups]
        for value in self.values[count - rest : count]:
            for row in self._rows[value]:
                found |= 1 << row
        return found

    @cached_property
    def _rows(self) -> dict[Any, list[int]]:
        found: dict[Any, list[int]] = {}
        for row, known in enumerate(self._of):
            found.setdefault(self._all[known], []).append(row)
        return found
