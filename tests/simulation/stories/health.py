"""Machines that break for a while: they get no new jobs meanwhile, and are used again once they are well."""

from __future__ import annotations

from collections.abc import Iterator

from chalicelib.domain.instances import Instance, InstanceStatus
from tests.simulation.hosts import Host
from tests.simulation.stories import Scene, Story
from tests.simulation.watch import Commit
from tests.simulation.world import FAULTY_FOR, Invariant, Violation

ILL_GET_NOTHING = Invariant("ill rest", "a machine that is known to be broken gets no new job")
HEALTH_SEEN = Invariant("health seen", "a machine is known to be as well as its agent last found it")

BROKEN = [("failure", "its engine is gone")]


class Health(Story):
    likely = 0.4

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._struck: dict[str, Host] = {}

    def plan(self) -> None:
        for _ in range(self.rng.choice((1, 1, 2, 3))):
            self.sometime(self._strike, 5, FAULTY_FOR)

    def calm(self) -> None:
        for host in self._struck.values():
            self._report(host, [])

    # --- what happens ------------------------------------------------------------------------------------------------

    def _strike(self) -> None:
        alive = sorted(name for name, host in self.scene.hosts.hosts.items() if not host.dead)
        if not alive:
            return
        host = self.scene.hosts.hosts[self.rng.choice(alive)]
        self._struck[host.name] = host
        self._report(host, BROKEN)
        self.sometime(lambda: self._report(host, []), 5, 120)

    def _report(self, host: Host, troubles: list[tuple[str, str]]) -> None:
        self.world.note("host broken" if troubles else "host well")
        host.troubles = troubles
        host.session.health_changed(troubles, self.world.seconds())
        host.pump()

    # --- what must hold ----------------------------------------------------------------------------------------------

    def committed(self, commit: Commit) -> None:
        for old, new in commit.of(Instance):
            if old is None or old.health != "failure" or new.health != "failure":
                continue
            added = {claim.job_id for claim in new.claims} - {claim.job_id for claim in old.claims}
            if added:
                raise ILL_GET_NOTHING.broken(f"{new.name} gets {', '.join(sorted(added))}")

    def unfinished(self) -> Iterator[Violation]:
        for host in self._struck.values():
            instance = self.watch.instances.get(host.instance_id)
            joined = instance is not None and instance.status in (InstanceStatus.idle, InstanceStatus.busy)
            if instance is None or not joined or host.dead:
                continue
            is_well = not host.troubles
            if (instance.health == "healthy") != is_well:
                yield HEALTH_SEEN.broken(f"{instance.name} is {'well' if is_well else 'broken'}, not {instance.health}")
