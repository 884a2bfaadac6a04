"""A cache for looked-up values: subnets, images, security groups, prices."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from chalicelib.backends.kit.clock import Now
from chalicelib.domain.instants import MINUTE, Micros

T = TypeVar("T")
LIFETIME: Micros = 10 * MINUTE


class LookupCache(Generic[T]):
    def __init__(self, now: Now, lifetime: Micros = LIFETIME, keeps: Callable[[T], bool] = lambda _: True) -> None:
        """`keeps`: should the value be cached? If not, it is looked up again each time."""
        self._now, self._lifetime, self._keeps = now, lifetime, keeps
        self._values: dict[str, tuple[Micros, T]] = {}
        self._cleared = 0
        self._lock = threading.Lock()

    def get(self, key: str, look_up: Callable[[], T]) -> T:
        """The value, which is looked up again after its lifetime. A failed look-up isn't cached, nor is one that began
        before the cache was cleared."""
        with self._lock:
            found, cleared = self._values.get(key), self._cleared
        if found is not None and 0 <= self._now() - found[0] < self._lifetime:
            return found[1]
        value = look_up()
        if self._keeps(value):
            now = self._now()
            with self._lock:  # what has expired is dropped
                self._values = {k: kept for k, kept in self._values.items() if 0 <= now - kept[0] < self._lifetime}
                if self._cleared == cleared:
                    self._values[key] = now, value
        return value

    def clear(self) -> None:
        with self._lock:
            self._values.clear()
            self._cleared += 1


class SharedLookup(Generic[T]):
    """One look-up at a time for each key. Who asks meanwhile gets the result of the next one, together with all others
    who do: so it is never older than the question, and a hundred questions at once cost two look-ups."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turns: dict[str, threading.Lock] = {}
        self._begun: dict[str, int] = {}
        self._results: dict[str, tuple[int, T]] = {}  # by key, with the number of its look-up
        self._waiting: dict[str, int] = {}

    def get(self, key: str, look_up: Callable[[], T]) -> T:
        with self._lock:
            asked_after = self._begun.get(key, 0)
            turn = self._turns.setdefault(key, threading.Lock())
            self._waiting[key] = self._waiting.get(key, 0) + 1
        try:
            with turn:
                return self._next(key, asked_after, look_up)
        finally:
            with self._lock:
                self._waiting[key] -= 1
                if not self._waiting[key]:
                    self._results.pop(key, None)

    def waiting(self, key: str) -> int:
        """How many ask for it at this moment."""
        with self._lock:
            return self._waiting.get(key, 0)

    def _next(self, key: str, asked_after: int, look_up: Callable[[], T]) -> T:
        with self._lock:
            known = self._results.get(key)
            if known is not None and known[0] > asked_after:
                return known[1]
            self._begun[key] = number = self._begun.get(key, 0) + 1
        found = look_up()
        with self._lock:
            self._results[key] = number, found
        return found
