"""Tasks on machines that are bought together, of a cloud with faults and too little room."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chalicelib.backends.simulated.catalog import BUNDLES
from chalicelib.domain import keys
from chalicelib.domain.bundles import members, rank
from chalicelib.domain.instances import Handle, Instance, InstanceStatus
from chalicelib.store import nouns
from chalicelib.usecases.machines import fleet_plans
from tests.simulation.stories import STORIES, Scene, Story, gangs
from tests.simulation.watch import Commit
from tests.simulation.world import FAULTY_FOR, Invariant, Violation

END_TOGETHER = Invariant("end together", "a bundle is given back only when all of its instances are ending")
USED_TOGETHER = Invariant("used together", "a bundle's machines are of one task, each for the node with its number")
BOUGHT_WHOLE = Invariant("bought whole", "a bundle is bought only once all of its instances are committed")
ALL_END = Invariant("all end", "every task ends, whatever happens to its machines")
NONE_STAYS = Invariant("none stays", "no instance goes on once another of its bundle has ended")

(TYPE, SIZE), *_ = BUNDLES.items()
_ENDING = (InstanceStatus.terminating, InstanceStatus.terminated)


class Bundles(gangs.Gangs):
    likely = 1.0
    fleet = "bundles"
    prefix = "bundled"
    sizes = (SIZE,) * 5

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._bought: set[str] = set()

    def prepare(self) -> None:
        site = self.site
        site.cloud.facts = site.cloud.facts.with_(bundles=True)
        if (room := self.rng.choice((None, None, 1, 2))) is not None:
            site.script.capacity |= {f"{region}/{TYPE}": room for region in ("sim-east", "sim-north")}
        self.world.after(1.0, lambda: site.catalog.refresh(site.accounts.accounts()[0].key))
        chosen: dict[str, Any] = {
            "type": "fleet",
            "name": self.fleet,
            "placement": "cluster",
            "nodes": self.rng.choice(("0..", f"0..{SIZE}", f"0..{2 * SIZE}", f"{SIZE}..{2 * SIZE}")),
            "instance_types": [TYPE],
            "resources": {"cpu": "2..", "memory": "4GB.."},
            "spot_policy": self.rng.choice(("auto", "spot", "on-demand")),
            "idle_duration": "1m",
        }
        fleet_plans.apply_plan(site.plane, self.scene.user, self.scene.projects[0], {"configuration": chosen}, None)

    def plan(self) -> None:
        backend = self.site.backend
        creating, ending = backend.creating, backend.ending

        def buys(request: Any) -> None:
            creating(request)
            self._buys(request)

        def gives_back(handle: Handle) -> None:
            ending(handle)
            self._gives_back(handle)

        backend.creating, backend.ending = buys, gives_back
        for number in range(self.rng.choice((1, 2, 2, 3))):
            name = f"{self.prefix}-{number}"
            self.sometime(lambda name=name: self._submit(name), 3, FAULTY_FOR * 0.6)  # type: ignore[misc]

    # --- what must hold ----------------------------------------------------------------------------------------------

    def _bundle(self, instance: Instance) -> list[Instance]:
        """As it is stored."""
        found = (nouns.find(self.site.store, Instance, keys.instance(each)) for each in members(instance))
        return [each for each in found if each is not None]

    def _buys(self, request: Any) -> None:
        instance = nouns.find(self.site.store, Instance, keys.instance(request.instance_id))
        if instance is None or instance.bundle is None:
            return
        self._bought.add(request.token)
        if len(self._bundle(instance)) != SIZE or len(request.bundle) != SIZE:
            raise BOUGHT_WHOLE.broken(f"{instance.name} is bought with {len(self._bundle(instance))} instances")

    def _gives_back(self, handle: Handle) -> None:
        tags = next((dict(body["tags"]) for body in self.site.cloud.resources() if body["id"] == handle.id), {})
        found = nouns.find(self.site.store, Instance, keys.instance(tags.get("dstack-instance", "")))
        for each in self._bundle(found) if found is not None and found.bundle is not None else ():
            if each.status not in _ENDING:
                raise END_TOGETHER.broken(f"{handle.id} is given back, and {each.name} is {each.status}")

    def committed(self, commit: Commit) -> None:
        super().committed(commit)
        for _, instance in commit.of(Instance):
            if instance.bundle is None or not instance.claims:
                continue
            (claim,) = instance.claims
            if claim.job_num != rank(instance):
                raise USED_TOGETHER.broken(f"{instance.name} is for node {claim.job_num}")
            others = (self.watch.instances.get(each) for each in members(instance))
            runs = {other.claims[0].run_id for other in others if other is not None and other.claims}
            if len(runs) > 1:
                raise USED_TOGETHER.broken(f"{instance.name} is in a bundle of {len(runs)} runs")

    def unfinished(self) -> Iterator[Violation]:
        yield from super().unfinished()
        for run in self.watch.runs.values():
            if not run.finished:
                yield Violation(ALL_END, f"run {run.name} is {run.status}")
        for instance in self.watch.instances.values():
            others = (self.watch.instances.get(each) for each in members(instance))
            over = any(other is not None and other.status is InstanceStatus.terminated for other in others)
            if over and instance.status not in _ENDING:
                yield NONE_STAYS.broken(f"{instance.name} is {instance.status}, and its bundle has ended")

    def verify_at_end(self) -> None:
        super().verify_at_end()
        self.world.note(f"{len(self._bought)} bundles bought")


# What happens to every plane, and what holds for every machine; but no other runs, or they would take most of the time.
_BESIDE = ("commits", "machines", "orphans", "outages", "placing", "stops", "upgrades", "wakes")
OF_BUNDLES: tuple[type[Story], ...] = (
    Bundles,
    *(kind for kind in STORIES if kind.__module__.rpartition(".")[2] in _BESIDE),
)
