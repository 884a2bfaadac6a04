"""The fleet `local`: this machine as a host that is restarted, cut off, changed and deleted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.engine.bootstrap_tokens import bootstrap_token
from chalicelib.runtime.local_fleet import FLEET, ensure_fleet
from chalicelib.usecases.agents.credentials import readmit
from chalicelib.usecases.machines import fleets
from tests.simulation.hosts import Host
from tests.simulation.stories import Scene, Story
from tests.simulation.world import FAULTY_FOR, Invariant, Violation

FACTS_SEEN = Invariant("facts seen", "a host without jobs is known as what its agent last found it to be")
HOSTS_LEAVE = Invariant("hosts leave", "a host whose fleet is deleted leaves")

_SIZES = ({"cpus": 8, "memory_mib": 32_768}, {"cpus": 4, "memory_mib": 16_384}, {"cpus": 16, "memory_mib": 65_536})


class Local(Story):
    likely = 0.7

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._host: Host | None = None

    def prepare(self) -> None:
        self._start()

    def plan(self) -> None:
        what = (self._start, self._restart, self._cut_off, self._change, self._reinstall, self._drop)
        for _ in range(self.rng.choice((0, 1, 1, 2, 3))):
            self.sometime(self.rng.choice(what), 5, FAULTY_FOR)

    def calm(self) -> None:
        self._start()
        if self._host is not None:
            self._host.cut_off_until = min(self._host.cut_off_until, self.world.seconds() + 60)

    # --- what happens ------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        """The server of this machine starts, perhaps with other blocks, and starts its agent."""
        blocks = self.rng.choice(("1", "1", "2", "auto"))

        def go() -> None:
            place = ensure_fleet(self.site.plane, self.scene.projects[0], blocks)[0]
            if self._host is None or self._host.instance_id != place.instance_id:
                if self._host is not None:
                    self._host.dead = True
                self._host = self._agent(place.instance_id, dict(self.rng.choice(_SIZES)))
            if not self._host.credential:  # as the server does when it finds none
                readmit(self.site.plane, self._host.instance_id)

        self.scene.ask(go)

    def _agent(self, instance_id: str, size: dict[str, Any]) -> Host:
        token = bootstrap_token(self.site.plane.install_key, instance_id, 0)
        facts = {**size, "disk_mib": 204_800, "arch": "x86"}
        return self.scene.hosts.add(f"local-{instance_id[:8]}", instance_id, token, facts)

    def _restart(self) -> None:
        if self._host is not None:
            self.world.note("agent restarted")
            self._host.boot()

    def _cut_off(self) -> None:
        if self._host is not None:
            self.world.note("host cut off")
            self._host.cut_off_until = self.world.seconds() + self.rng.uniform(30, 400)

    def _change(self) -> None:
        """The machine's hardware changes; what runs there keeps running."""
        if self._host is not None:
            self.world.note("host changed")
            self._host.facts = {**self._host.facts, **self.rng.choice(_SIZES)}
            self._host.boot()

    def _reinstall(self) -> None:
        """The agent's data is lost, and with it every task."""
        if self._host is not None:
            self.world.note("host reinstalled")
            self._host.forget()
            self._host.dead = True  # until the server has started it again, which takes a while
            self._start()
            self._host.dead = False
            self._host.boot()

    def _drop(self) -> None:
        """The user deletes the instance but keeps the fleet; the next start creates it again."""
        instance = self._instance()
        if instance is None:
            return
        plane, project = self.site.plane, self.scene.projects[0]
        if self.scene.ask(lambda: fleets.delete_instances(plane, self.scene.user, project, FLEET, [instance.num])):
            self.world.note("host deleted")
            self.sometime(self._start, 10, 60)

    def wind_up(self) -> None:
        fleets.delete(self.site.plane, self.scene.user, self.scene.projects[0], [FLEET])

    # --- what must hold ----------------------------------------------------------------------------------------------

    def _instance(self) -> Instance | None:
        if self._host is None:
            return None
        return self.watch.instances.get(self._host.instance_id)

    def unfinished(self) -> Iterator[Violation]:
        instance, host = self._instance(), self._host
        if instance is None or host is None or instance.claims or instance.status is InstanceStatus.terminated:
            return
        seen, has = instance.offer.instance.resources.cpus, host.facts["cpus"]
        if seen != has:
            yield FACTS_SEEN.broken(f"{instance.name} has {has} CPUs and is known for {seen}")

    def left(self) -> Iterator[Violation]:
        instance = self._instance()
        if instance is not None and instance.status is not InstanceStatus.terminated:
            yield HOSTS_LEAVE.broken(f"{instance.name} is {instance.status}")
        if self._host is not None and not self._host.session.ended:
            yield HOSTS_LEAVE.broken(f"the agent of {self._host.name} was never told")
