"""Counters of the engine's work since its process started, for operators. No decision depends on them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chalicelib.engine.reconcile import Pass
    from chalicelib.planning.kernel.plan import Effect, Outcome

Labels = tuple[tuple[str, str], ...]
PASSES, UNITS, CONFLICTS, FAILED = "passes", "units", "conflicts", "units_failed"
EFFECTS = "effects"


class Counters:
    """Counters by name and labels. May be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, Labels]] = Counter()

    def add(self, name: str, number: int = 1, **labels: str) -> None:
        with self._lock:
            self._counts[name, tuple(sorted(labels.items()))] += number

    def counts(self) -> Mapping[tuple[str, Labels], int]:
        with self._lock:
            return dict(self._counts)

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
