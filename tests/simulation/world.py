"""Virtual time, seeded choices, invariants, and the two ways in which any moment can go wrong: a crash and a stall."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass

from chalicelib.domain.instants import SECOND, Micros

START: Micros = 1_800_000_000 * SECOND
FAULTY_FOR = 240.0  # seconds
DEEPEST = 2  # stalls within stalls


class Crash(BaseException):
    """The running process is gone; nothing in it may catch this."""


@dataclass(frozen=True)
class Invariant:
    """What must hold in every history; violations are reported by its name."""

    name: str
    promise: str

    def broken(self, how: str) -> Violation:
        return Violation(self, how)


class Violation(BaseException):
    """An invariant was broken. Also a BaseException, because the engine survives all others."""

    def __init__(self, invariant: Invariant, how: str) -> None:
        super().__init__(f"{invariant.name}: {how}")
        self.invariant, self.how = invariant, how


class World:
    """The heap of scheduled calls. Faults happen until `calm_at`; nothing goes wrong afterwards."""

    def __init__(self, seed: int) -> None:
        self.seed, self.rng = seed, random.Random(seed)
        self.time = START
        self.calm_at = START  # calm until the day begins
        self.happened: dict[str, int] = {}
        self._todo: list[tuple[Micros, int, Callable[[], object]]] = []
        self._count = 0
        self._depth = 0

    def now(self) -> Micros:
        return self.time

    def seconds(self) -> float:
        return self.time / SECOND

    def after(self, delay: float, do: Callable[[], object]) -> None:
        self._count += 1
        heapq.heappush(self._todo, (self.time + round(delay * SECOND), self._count, do))

    def begin(self) -> None:
        self.calm_at = self.time + round(FAULTY_FOR * SECOND)

    def chance(self, probability: float) -> bool:
        """Does a fault of this probability happen now? Never once it is calm."""
        drawn = self.rng.random()  # always drawn, so that a history stays the same without faults
        return self.time < self.calm_at and drawn < probability

    def some(self, low: float, high: float) -> float:
        return self.rng.uniform(low, high)

    def note(self, what: str) -> None:
        self.happened[what] = self.happened.get(what, 0) + 1

    def run(self, until: Micros, done: Callable[[], bool] = lambda: False) -> bool:
        """Make the scheduled calls up to `until`, or until `done()` is true after one of them."""
        while self._todo and self._todo[0][0] <= until:
            at, _, do = heapq.heappop(self._todo)
            self.time = max(self.time, at)
            do()
            if done():
                return True
        self.time = max(self.time, until)
        return done()

    # --- faults ------------------------------------------------------------------------------------------------------

    def moment(self, where: str) -> None:
        """A point between two effects: the process may die here, or stall while others go on."""
        if self.chance(0.01):
            self.note(f"crash {where}")
            raise Crash(where)
        if self._depth < DEEPEST and self.chance(0.04):
            self.note("stall")
            self._depth += 1
            try:
                self.run(self.time + round(self.some(0.01, 4.0) * SECOND))
            finally:
                self._depth -= 1
