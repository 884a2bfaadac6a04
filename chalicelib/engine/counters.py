"""Counters of the engine's work since its process started, for operators. No decision depends on them."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chalicelib.engine.reconcile import Pass
    from chalicelib.planning.kernel.plan import Effect, Outcome

Labels = tuple[tuple[str, str], ...]
PASSES, UNITS, CONFLICTS, FAILED = "passes", "units", "conflicts", "units_failed"
EFFECTS = "effects"
BOUNDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)  # seconds: a histogram's


@dataclass(frozen=True)
class Histogram:
    """How many values are at most as large as each of the bounds, their number, and their sum."""

    below: tuple[int, ...] = (0,) * len(BOUNDS)
    number: int = 0
    total: float = 0.0
    bounds: tuple[float, ...] = BOUNDS


class _Values:
    """A histogram that grows: each request adds a value, so adding one is cheap."""

    def __init__(self) -> None:
        self._cells = [0] * (len(BOUNDS) + 1)
        self._total = 0.0

    def add(self, value: float) -> None:
        self._cells[bisect_left(BOUNDS, value)] += 1
        self._total += value

    def histogram(self) -> Histogram:
        *below, number = accumulate(self._cells)
        return Histogram(tuple(below), number, self._total)


class Counters:
    """Counters by name and labels. May be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, Labels]] = Counter()
        self._values: dict[tuple[str, Labels], _Values] = {}

    def add(self, name: str, number: int = 1, **labels: str) -> None:
        with self._lock:
            self._counts[name, tuple(sorted(labels.items()))] += number

    def counts(self) -> Mapping[tuple[str, Labels], int]:
        with self._lock:
            return dict(self._counts)

    def observe(self, name: str, seconds: float, **labels: str) -> None:
        """Add a value to a histogram."""
        key = name, tuple(sorted(labels.items()))
        with self._lock:
            if (values := self._values.get(key)) is None:
                values = self._values[key] = _Values()
            values.add(seconds)

    def histograms(self) -> Mapping[tuple[str, Labels], Histogram]:
        with self._lock:
            return {key: values.histogram() for key, values in self._values.items()}

    def passes(self, run: Callable[[Iterable[str]], Pass]) -> CountedPasses:
        return CountedPasses(run, self)

    def executed(self, effect: Effect, outcome: Outcome | str) -> None:
        """Count an executed effect. `outcome`: its outcome, or a label for an effect without one."""
        from chalicelib.planning.kernel.plan import Failed

        label = outcome if isinstance(outcome, str) else type(outcome).__name__
        self.add(EFFECTS, effect=type(effect).__name__, outcome=outcome.error if isinstance(outcome, Failed) else label)


class CountedPasses:
    """Runs passes, and counts them and their results."""

    def __init__(self, run: Callable[[Iterable[str]], Pass], counters: Counters) -> None:
        self._run, self._counters = run, counters
        for name in (PASSES, UNITS, CONFLICTS, FAILED):
            counters.add(name, 0)  # a counter that starts at 1 hides its first event from rates

    def run(self, units: Iterable[str]) -> Pass:
        done = self._run(units)
        for name, number in (
            (PASSES, 1),
            (UNITS, done.units),
            (CONFLICTS, done.conflicts),
            (FAILED, len(done.failed)),
        ):
            self._counters.add(name, number)
        return done
