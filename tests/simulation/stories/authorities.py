"""A certificate authority that is busy, away, refuses, or knows an order no longer."""

from __future__ import annotations

from chalicelib.errors import Gone, Throttled, Transient, Unfit
from tests.simulation.stories import Story
from tests.simulation.world import FAULTY_FOR

CALLS = ("register", "order", "answer", "look", "collect")


class Authorities(Story):
    likely = 0.5

    def plan(self) -> None:
        self.site.authority.slow = self.rng.choice((0, 1, 3))
        for _ in range(self.rng.randint(1, 8)):
            self.sometime(self._trouble, 0, FAULTY_FOR)

    def _trouble(self) -> None:
        error = self.rng.choice((Transient("it is away"), Throttled("too many"), Unfit("not yours"), Gone("no order")))
        self.site.authority.faults.setdefault(self.rng.choice(CALLS), []).append(error)
        self.world.note("authority in trouble")

    def calm(self) -> None:
        self.site.authority.faults.clear()
