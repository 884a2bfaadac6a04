"""Rehearsing a change: the use case itself, with all that it checks, up to its first write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from chalicelib.store.port import Change, Check, Store
from chalicelib.usecases.context import Plane


class _Writes(Exception):
    """The use case is about to write."""


class _RehearsalStore:
    """`Store`: it is read as usual, and the first write ends the rehearsal."""

    def __init__(self, below: Store) -> None:
        self.get, self.get_many, self.query, self.scan = below.get, below.get_many, below.query, below.scan
        self.due, self.next_due, self.close = below.due, below.next_due, below.close

    def commit(self, changes: Sequence[Change]) -> None:
        if any(not isinstance(change, Check) for change in changes):
            raise _Writes


def would_write(plane: Plane, act: Callable[[Plane, str], object]) -> bool:
    """Whether `act` would change anything. Raises what it would raise. Nothing is written."""
    try:
        act(replace(plane, store=_RehearsalStore(plane.store)), plane.random_id())
    except _Writes:
        return True
    return False
