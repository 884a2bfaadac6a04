"""Tasks on several nodes in containers, which a cloud with faults and too little room sells beside each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chalicelib.backends.simulated.catalog import CONTAINERS
from chalicelib.domain.gangs import Gang
from chalicelib.domain.instances import InstanceStatus
from chalicelib.usecases.machines import fleet_plans
from tests.simulation.stories import STORIES, Scene, Story, gangs
from tests.simulation.watch import Commit
from tests.simulation.world import FAULTY_FOR, Invariant, Violation

START_TOGETHER = Invariant("start together", "no container of a gang starts before all of the gang are requested")
NEW_ONES = Invariant("new ones", "each attempt of a gang has containers of its own, each with its own rank")
ALL_END = Invariant("all end", "every gang ends, whatever happens to its containers")
ALL_GO = Invariant("all go", "a container that no node has any more goes on to nothing but its end")


class ContainerGangs(gangs.Gangs):
    likely = 1.0
    fleet = "pods"
    prefix = "contained"
    sizes = (8, 8, 8, 8, 3)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._ranks: dict[str, dict[int, str]] = {}  # by gang: who was requested at each rank

    def prepare(self) -> None:
        cloud, site = self.site.cloud, self.site
        cloud.facts = cloud.facts.with_(containers=True)
        room = self.rng.choice((None, None, 6, 8, 10))  # of one type: a gang of 8 may have to take the next
        if room is not None:
            site.script.capacity |= {f"{CONTAINERS}/sim.2cpu": room}
        self.world.after(1.0, lambda: site.catalog.refresh(site.accounts.accounts()[0].key))
        chosen: dict[str, Any] = {
            "type": "fleet",
            "name": self.fleet,
            "placement": "cluster",
            "nodes": self.rng.choice(("0..", "0..12", "0..20")),
            "regions": [CONTAINERS],
            "instance_types": ["sim.2cpu", "sim.4cpu"],
            "resources": {"cpu": "2..", "memory": "4GB.."},
            "spot_policy": "auto",
        }
        plan = {"configuration": chosen}
        fleet_plans.apply_plan(site.plane, self.scene.user, self.scene.projects[0], plan, None)

    def plan(self) -> None:
        before = self.site.backend.creating

        def creating(request: Any) -> None:
            before(request)
            self._creating(request)

        self.site.backend.creating = creating
        for number in range(self.rng.choice((1, 2, 2, 3))):
            name = f"{self.prefix}-{number}"
            self.sometime(lambda name=name: self._submit(name), 3, FAULTY_FOR * 0.6)  # type: ignore[misc]
        for _ in range(self.rng.choice((0, 0, 1, 2))):
            self.sometime(self.rng.choice((self._exit, self._lose)), 10, FAULTY_FOR)

    def _exit(self) -> None:
        if there := self._containers():
            self.world.note("node of a gang exited")
            self.site.cloud.exit(dict(self.rng.choice(there)["tags"])["dstack-instance"], "it ran out of memory")

    def _lose(self) -> None:
        if there := self._containers():
            self.world.note("node of a gang lost")
            self.site.cloud.lose(self.rng.choice(there)["id"])

    def _containers(self) -> list[dict[str, Any]]:
        found = [body for body in self.site.cloud.machines() if (body["container"] or {}).get("gang")]
        return [body for body in found if body["ends_at"] is None and not body.get("exited")]

    # --- what must hold ----------------------------------------------------------------------------------------------

    def _creating(self, request: Any) -> None:
        gang = request.container and request.container.gang
        if gang and self._ranks.setdefault(gang.token, {}).setdefault(gang.rank, request.token) != request.token:
            raise NEW_ONES.broken(f"{request.name} is requested for node {gang.rank}, which another was requested for")

    def committed(self, commit: Commit) -> None:
        super().committed(commit)
        for body in self._containers():
            instance = self.watch.instances[dict(body["tags"])["dstack-instance"]]
            nodes = self.watch.known[Gang][instance.gang.partition("/")[0]].nodes
            requested = len(self._ranks.get(body["container"]["gang"]["token"], ()))
            if body["started"] and requested < nodes:
                raise START_TOGETHER.broken(f"{instance.name} runs, and {requested} of {nodes} are requested")

    def unfinished(self) -> Iterator[Violation]:
        yield from super().unfinished()
        for run in self.watch.runs.values():
            if not run.finished:
                yield Violation(ALL_END, f"run {run.name} is {run.status}")
        for instance in self.watch.instances.values():
            going = instance.status not in (InstanceStatus.terminating, InstanceStatus.terminated)
            if instance.offer.is_container and going and not instance.claims:
                yield Violation(ALL_GO, f"{instance.name} is {instance.status}, and no node has it")

    def verify_at_end(self) -> None:
        super().verify_at_end()
        whole = sum(len(ranks) == 8 for ranks in self._ranks.values())
        self.world.note(f"{whole} gangs of 8 requested")


# What happens to every plane, and what holds for every machine; but no other runs, or they would take most of the time.
_BESIDE = ("commits", "machines", "orphans", "outages", "placing", "stops", "upgrades", "wakes")
CONTAINER_GANGS: tuple[type[Story], ...] = (
    ContainerGangs,
    *(kind for kind in STORIES if kind.__module__.rpartition(".")[2] in _BESIDE),
)
