"""A cache for looked-up values: subnets, images, security groups, prices."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from chalicelib.domain.instants import MINUTE, Micros

T = TypeVar("T")
LIFETIME: Micros = 10 * MINUTE


class LookupCache(Generic[T]):
    def __init__(
        self, now: Callable[[], Micros], lifetime: Micros = LIFETIME, keeps: Callable[[T], bool] = lambda _: True
    ) -> None:
        """`keeps`: should the value be cached? If not, it is looked up again each time."""
        self._now, self._lifetime, self._keeps = now, lifetime, keeps
        self._values: dict[str, tuple[Micros, T]] = {}
        self._lock = threading.Lock()

    def get(self, key: str, look_up: Callable[[], T]) -> T:
        """The value, which is looked up again after its lifetime. A failed look-up isn't cached."""
        with self._lock:
            found = self._values.get(key)
        if found is not None and 0 <= self._now() - found[0] < self._lifetime:
            return found[1]
        value = look_up()
        if self._keeps(value):
            now = self._now()
            with self._lock:  # what has expired is dropped
                self._values = {k: kept for k, kept in self._values.items() if 0 <= now - kept[0] < self._lifetime}
                self._values[key] = now, value
        return value

    def clear(self) -> None:
        with self._lock:
            self._values.clear()
