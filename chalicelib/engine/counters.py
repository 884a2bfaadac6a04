"""What the engine did since its process began, in numbers for operators. Nothing is decided by them."""

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


class Figures:
    """Counts of any thread."""

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
        """`outcome`: what an effect came to, or a word for one that came to nothing."""
        from chalicelib.planning.kernel.plan import Failed

        said = outcome if isinstance(outcome, str) else type(outcome).__name__
        self.add(EFFECTS, effect=type(effect).__name__, outcome=outcome.error if isinstance(outcome, Failed) else said)


class CountedPasses:
    def __init__(self, run: Callable[[Iterable[str]], Pass], figures: Figures) -> None:
        self._run, self._figures = run, figures
        for name in (PASSES, UNITS, CONFLICTS, FAILED):
            figures.add(name, 0)  # a counter that begins with its first event hides it

    def run(self, units: Iterable[str]) -> Pass:
        done = self._run(units)
        for name, number in (
            (PASSES, 1),
            (UNITS, done.units),
            (CONFLICTS, done.conflicts),
            (FAILED, len(done.failed)),
        ):
            self._figures.add(name, number)
        return done
