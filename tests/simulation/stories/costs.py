"""A limit in dollars a day that is never reached: what runs cost is counted all the same, at each placement."""

from __future__ import annotations

from chalicelib.usecases.people.quotas import set_limits
from tests.simulation.stories import Story

PLENTY = 1e6


class Costs(Story):
    likely = 0.15

    def prepare(self) -> None:
        set_limits(self.site.plane, self.scene.user, self.scene.projects[0], None, {"money": PLENTY})

    def calm(self) -> None:
        set_limits(self.site.plane, self.scene.user, self.scene.projects[0], None, {"money": None})
