"""The store is full, or doesn't answer, for some of its calls and for a while."""

from __future__ import annotations

from tests.simulation.stories import Story
from tests.simulation.world import FAULTY_FOR


class Outages(Story):
    likely = 0.4

    def plan(self) -> None:
        self.sometime(self._begin, 5, FAULTY_FOR - 30)

    def _begin(self) -> None:
        self.world.note("store in trouble")
        self.site.weather.share = self.rng.choice((0.02, 0.1, 0.5))
        self.sometime(self._end, 5, 40)

    def _end(self) -> None:
        self.site.weather.share = 0.0
