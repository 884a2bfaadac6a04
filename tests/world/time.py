"""Time that passes only on request: a clock, and a clock with scheduled events."""

from __future__ import annotations

import heapq
import threading
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
    """A clock and a heap of scheduled calls. Single-threaded: a call can schedule more, even for now."""

    def __init__(self, at: Micros = NOW) -> None:
        super().__init__(at)
        self._todo: list[tuple[Micros, int, Callable[[], None]]] = []
        self._count = 0
        self._thread = threading.get_ident()

    def now(self) -> Micros:
        """No two reads return the same time, so what happens later always has a later date. Threads that a call starts
        and waits for, such as one for each region, all read its time: how often they do depends on their order."""
        if threading.get_ident() == self._thread:
            self.at += 1
        return self.at

    def after(self, delay: float, do: Callable[[], None]) -> None:
        """Call `do` in so many seconds; calls for the same moment happen in the order they were scheduled."""
        self._count += 1
        heapq.heappush(self._todo, (self.at + round(delay * SECOND), self._count, do))

    def every(self, pause: float, do: Callable[[], object]) -> None:
        """Call `do` repeatedly, first after one pause."""

        def turn() -> None:
            do()
            self.after(pause, turn)

        self.after(pause, turn)

    def run(self, until: Micros, done: Callable[[], bool] = lambda: False) -> bool:
        """Make the scheduled calls up to `until`, or until `done()` is true after one of them."""
        while self._todo and self._todo[0][0] <= until:
            at, _, do = heapq.heappop(self._todo)
            self.at = max(self.at, at)
            do()
            if done():
                return True
        self.at = max(self.at, until)
        return done()

    def next_at(self, latest: Micros) -> Micros:
        """The time of the next call."""
        return min(self._todo[0][0], latest) if self._todo else latest

    def pass_(self, seconds: float) -> None:
        self.run(self.at + round(seconds * SECOND))
