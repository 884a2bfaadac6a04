"""Tasks on several nodes in a cluster whose machines are bought: for the fleet, or for the tasks themselves."""

from __future__ import annotations

from typing import Any

from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.usecases.machines import fleet_plans
from tests.simulation.stories import gangs
from tests.simulation.watch import Commit
from tests.simulation.world import FAULTY_FOR, Invariant

TOGETHER = Invariant("together", "all machines that a cluster keeps are where its first one is")

STAYING = (InstanceStatus.provisioning, InstanceStatus.idle, InstanceStatus.busy)


class Clusters(gangs.Gangs):
    likely = 0.3
    fleet = "rack"
    prefix = "wide"

    def prepare(self) -> None:
        chosen: dict[str, Any] = {
            "type": "fleet",
            "name": self.fleet,
            "placement": "cluster",
            "nodes": self.rng.choice(("0..5", "0..4", "0..", "2..5", {"min": 0, "target": 2, "max": 5}, "3")),
            "idle_duration": self.rng.choice((20, 60, 300)),
            "instance_types": self.rng.choice((["sim.32cpu"], ["sim.2cpu", "sim.4cpu"], ["sim.8cpu", "sim.l4"])),
            "regions": self.rng.choice((["sim-east", "sim-north"], ["sim-east"], ["sim-west", "sim-east"])),
            "resources": {"cpu": "2..", "memory": "4GB..", "gpu": "0.."},
        }
        scarce = self.rng.choice((None, 1, 2, 3))  # so that clusters must move
        if scarce is not None:
            self.site.script.capacity |= {f"sim-east/{name}": scarce for name in chosen["instance_types"]}
        plan = {"configuration": chosen}
        fleet_plans.apply_plan(self.site.plane, self.scene.user, self.scene.projects[0], plan, None)

    def plan(self) -> None:
        for number in range(self.rng.choice((1, 2, 3))):
            name = f"{self.prefix}-{number}"
            self.sometime(lambda name=name: self._submit(name), 0, FAULTY_FOR * 0.6)  # type: ignore[misc]

    def committed(self, commit: Commit) -> None:
        super().committed(commit)
        for _, changed in commit.of(Instance):
            instances = (each for each in self.watch.instances.values() if each.fleet_id == changed.fleet_id)
            staying = [each for each in instances if each.fleet_name == self.fleet and each.status in STAYING]
            regions = {f"{each.offer.backend}/{each.offer.region}" for each in staying}
            zones = {each.zone for each in staying if each.zone}  # unknown if the cloud's answer was lost
            if len(regions) > 1 or len(zones) > 1:
                raise TOGETHER.broken(f"{[each.name for each in staying]} are in {sorted(regions)}, {sorted(zones)}")
