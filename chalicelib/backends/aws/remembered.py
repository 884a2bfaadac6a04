"""What was looked up a moment ago: subnets, images, security groups."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from chalicelib.domain.instants import MINUTE, Micros

T = TypeVar("T")
FOR: Micros = 10 * MINUTE


class Remembered(Generic[T]):
    def __init__(self, now: Callable[[], Micros]) -> None:
        self._now = now
        self._kept: dict[str, tuple[Micros, T]] = {}
        self._lock = threading.Lock()

    def get(self, key: str, look: Callable[[], T]) -> T:
        """The value, looked up anew after ten minutes. What fails isn't remembered."""
        with self._lock:
            kept = self._kept.get(key)
        if kept is not None and 0 <= self._now() - kept[0] < FOR:
            return kept[1]
        value = look()
        with self._lock:
            self._kept[key] = self._now(), value
        return value

    def forget(self) -> None:
        with self._lock:
            self._kept.clear()
