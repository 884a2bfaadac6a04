"""A bounded cache for what was read and can never change; the least recently used is dropped first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

V = TypeVar("V")


class Lru(Generic[V]):
    """The last `size` values by key. Two threads may compute the same value; one of them is kept."""

    def __init__(self, size: int) -> None:
        self._size, self._kept, self._lock = size, OrderedDict[object, V](), threading.Lock()

    def get(self, key: object, make: Callable[[], V]) -> V:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        value = make()
        self.keep(key, value)
        return value

    def peek(self, key: object) -> V | None:
        return self._kept.get(key)

    def keep(self, key: object, value: V) -> None:
        with self._lock:
            self._kept[key] = value
            self._kept.move_to_end(key)
            while len(self._kept) > self._size:
                self._kept.popitem(last=False)
