"""Deployments: every process of the plane restarts, sometimes with the cloud removed from its configuration."""

from __future__ import annotations

from tests.simulation.stories import Story
from tests.simulation.world import FAULTY_FOR


class Upgrades(Story):
    likely = 0.4

    def plan(self) -> None:
        self.sometime(self._deploy, 5, FAULTY_FOR)
        if self.rng.random() < 0.5:
            self.sometime(self._take_out, 5, FAULTY_FOR - 60)

    def calm(self) -> None:
        if not self.site.configured:
            self._put_back()

    def _deploy(self) -> None:
        self.world.note("deployed")
        self.site.deploy()

    def _take_out(self) -> None:
        self.world.note("backend taken out")
        self.site.configured = False
        self.site.deploy()
        self.sometime(self._put_back, 10, 60)

    def _put_back(self) -> None:
        self.site.configured = True
        self.site.deploy()
