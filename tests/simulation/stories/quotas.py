"""Quotas: a project has a limit while things go wrong; it is lifted once they don't, so that every run ends."""

from __future__ import annotations

from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.planning.placing.quotas import gpus_of
from chalicelib.usecases.people.quotas import set_limits
from tests.simulation.stories import Story
from tests.simulation.watch import Commit
from tests.simulation.world import Invariant

QUOTA_HOLDS = Invariant("quota kept", "a project's jobs never have more places or GPUs than its quota")


class Quotas(Story):
    likely = 0.4

    def prepare(self) -> None:
        self.jobs = self.rng.randint(2, 4)
        self.gpus = self.rng.choice((0, 1, 2))
        if self.takes_part:
            self._set(jobs=self.jobs, gpus=self.gpus)

    def _set(self, **limits: int | None) -> None:
        set_limits(self.site.plane, self.scene.user, self.scene.projects[0], None, limits)

    def calm(self) -> None:
        if self.takes_part:
            self.takes_part = False
            self._set(jobs=None, gpus=None)

    def committed(self, commit: Commit) -> None:
        if not self.takes_part or not any(new.claims for _, new in commit.of(Instance)):
            return
        project = self.scene.projects[0]
        held = [
            (instance, claim)
            for instance in self.watch.instances.values()
            if instance.status is not InstanceStatus.terminated  # a job whose machine has gone hears of it later
            for claim in instance.claims
            if self.watch.jobs[claim.job_id].project_id == project.id
        ]
        gpus = sum(gpus_of(instance.offer, len(claim.blocks), instance.total_blocks) for instance, claim in held)
        if len(held) > self.jobs or gpus > self.gpus:
            raise QUOTA_HOLDS.broken(
                f"{len(held)} jobs of {self.jobs} and {gpus} GPUs of {self.gpus} have their places"
            )
