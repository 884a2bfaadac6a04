"""Wake-ups about nothing: a hint is never more than a hint."""

from __future__ import annotations

from chalicelib.domain.instances import InstanceStatus
from tests.simulation.stories import Story


class Wakes(Story):
    likely = 0.6

    def plan(self) -> None:
        self._noise()

    def _noise(self) -> None:
        instances = self.watch.instances.values()
        units = [f"instance/{i.id}" for i in instances if i.status is not InstanceStatus.terminated]
        units += [f"run/{run.id}" for run in self.watch.runs.values() if not run.finished]
        if units:
            self.site.wake(self.rng.sample(units, min(len(units), 2)))
        if self.world.now() < self.world.calm_at:
            self.world.after(self.rng.expovariate(1 / 3), self._noise)
