"""Time that passes only when told to: a clock, and one with what is to happen in it."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from chalicelib.domain.instants import SECOND, Micros

NOW: Micros = 1_790_000_000 * SECOND


class Clock:
    """Set by hand."""

    def __init__(self, at: Micros = NOW) -> None:
        self.at = at

    def now(self) -> Micros:
        return self.at

    def seconds(self) -> float:
        return self.at / SECOND

    def pass_(self, seconds: float) -> None:
        self.at += round(seconds * SECOND)


class Time(Clock):
    """A clock, and the heap of what is to happen. On one thread: what happens may make more happen, even now."""

    def __init__(self, at: Micros = NOW) -> None:
        super().__init__(at)
        self._todo: list[tuple[Micros, int, Callable[[], None]]] = []
        self._count = 0

    def now(self) -> Micros:
        """No two looks see the same moment, so what was done later is always dated later."""
        self.at += 1
        return self.at

    def after(self, delay: float, do: Callable[[], None]) -> None:
        """`do` in so many seconds; what is to happen at one moment happens in the order it was asked for."""
        self._count += 1
        heapq.heappush(self._todo, (self.at + round(delay * SECOND), self._count, do))

    def every(self, pause: float, do: Callable[[], object]) -> None:
        """`do` again and again, first after one pause."""

        def turn() -> None:
            do()
            self.after(pause, turn)

        self.after(pause, turn)

    def run(self, until: Micros, done: Callable[[], bool] = lambda: False) -> bool:
        """Let things happen up to `until`, or until `done` says so after one of them."""
        while self._todo and self._todo[0][0] <= until:
            at, _, do = heapq.heappop(self._todo)
            self.at = max(self.at, at)
            do()
            if done():
                return True
        self.at = max(self.at, until)
        return done()

    def next_at(self, latest: Micros) -> Micros:
        """When something happens next."""
        return min(self._todo[0][0], latest) if self._todo else latest

    def pass_(self, seconds: float) -> None:
        self.run(self.at + round(seconds * SECOND))
