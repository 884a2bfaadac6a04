"""A bounded cache for values that never change; the least recently used is dropped first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

V = TypeVar("V")


class Lru(Generic[V]):
    """The last `size` values by key. Two threads may compute the same value; one of the results is cached."""

    def __init__(self, size: int) -> None:
        self._size, self._values, self._lock = size, OrderedDict[object, V](), threading.Lock()

    def get(self, key: object, make: Callable[[], V]) -> V:
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = make()
        self.put(key, value)
        return value

    def peek(self, key: object) -> V | None:
        return self._values.get(key)

    def put(self, key: object, value: V) -> None:
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self._size:
                self._values.popitem(last=False)
