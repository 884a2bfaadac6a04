"""Fleets of a cloud's machines: created, changed in place, emptied instance by instance, and deleted at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from chalicelib.domain import keys
from chalicelib.domain.fleets import Fleet, FleetBody
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.specs.fleets import FleetNodesSpec, FleetSpec
from chalicelib.domain.tenants import Project
from chalicelib.store import nouns
from chalicelib.usecases.machines import fleet_plans, fleets
from tests.simulation.stories import Scene, Story
from tests.simulation.watch import Commit
from tests.simulation.world import FAULTY_FOR, Invariant, Violation

FLEET_LIMIT = Invariant("fleet limit", "a fleet never has more instances than it may")
FLEETS_FILLED = Invariant("fleets kept", "a fleet has as many instances as it should, or says why it hasn't")
FLEETS_END = Invariant("fleets end", "a deleted fleet and all of its instances come to their end")

_ENDING = (InstanceStatus.terminating, InstanceStatus.terminated)


class Fleets(Story):
    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._most: dict[str, int | None] = {}  # by fleet; a fleet may have more while it is changed
        self._specs: dict[str, dict[str, Any]] = {}  # configuration, by project
        self._nodes: dict[tuple[str, int], FleetNodesSpec | None] = {}  # by fleet and number of its spec

    def prepare(self) -> None:
        for project in self.scene.projects:
            configuration = self._specs[project.id] = self._configuration()
            row = fleet_plans.apply_plan(
                self.site.plane, self.scene.user, project, {"configuration": configuration}, None
            )
            nodes = FleetSpec.model_validate_json(row.spec).configuration.nodes
            self._most[row.fleet.id] = nodes.max if nodes else None

    def _configuration(self) -> dict[str, Any]:
        rng = self.rng
        chosen = {
            "type": "fleet",
            "name": "cloud",
            "nodes": rng.choice(("0..1", "0..3", "1..2", "0..2", "0..", {"min": 0, "target": 2, "max": 3})),
            "idle_duration": rng.choice((0, 20, 300)),
            "blocks": rng.choice((1, 1, 2, "auto")),
            "max_price": rng.choice((None, None, None, 0.5)),
            "regions": rng.choice((None, None, ["sim-west", "sim-east"])),
            "spot_policy": rng.choice(("on-demand", "spot", "auto")),
            "resources": {"cpu": "2..", "memory": "4GB..", "gpu": rng.choice(("0..", "0..", "0..1"))},
        }
        return {name: value for name, value in chosen.items() if value is not None}

    def plan(self) -> None:
        for _ in range(self.rng.choice((0, 0, 1, 2))):
            self.sometime(self.rng.choice((self._change, self._drop_one)), 5, FAULTY_FOR)

    def _change(self) -> None:
        """In place; surplus instances must go."""
        project = self.rng.choice(self.scene.projects)
        raw = {"configuration": {**self._specs[project.id], "nodes": self.rng.choice(("0..1", "1..2", "0..4"))}}
        self._most = {fleet: None for fleet in self._most}  # whether or not the response arrives
        accepted = self.scene.ask(lambda: fleet_plans.apply_plan(self.site.plane, self.scene.user, project, raw, None))
        if accepted:
            self.world.note("fleet changed")

    def _drop_one(self) -> None:
        project = self.rng.choice(self.scene.projects)
        instances = (i for i in self.watch.instances.values() if (i.project_id, i.fleet_name) == (project.id, "cloud"))
        numbers = [i.num for i in instances if i.status is not InstanceStatus.terminated]
        if numbers and self.scene.ask(lambda: self._delete_one(project, self.rng.choice(numbers))):
            self.world.note("instance deleted")

    def _delete_one(self, project: Project, number: int) -> None:
        fleets.delete_instances(self.site.plane, self.scene.user, project, "cloud", [number])

    def wind_up(self) -> None:
        for project in self.scene.projects:
            fleets.delete(self.site.plane, self.scene.user, project, ["cloud"])

    # --- what must hold ----------------------------------------------------------------------------------------------

    def committed(self, commit: Commit) -> None:
        for fleet_id in {instance.fleet_id for _, instance in commit.of(Instance)}:
            most = self._most.get(fleet_id)
            instances = (i for i in self.watch.instances.values() if i.fleet_id == fleet_id)
            live = [i.name for i in instances if i.status is not InstanceStatus.terminated]
            if most is not None and len(live) > most:
                raise FLEET_LIMIT.broken(f"the fleet may have {most} instances and has {live}")

    def unfinished(self) -> Iterator[Violation]:
        staying_in = Counter(i.fleet_id for i in self.watch.instances.values() if i.status not in _ENDING)
        for fleet in self.watch.fleets.values():
            nodes = self._nodes_of(fleet.id, fleet.spec_num)
            if nodes is None or self._ends(fleet):
                continue
            staying = staying_in[fleet.id]
            few, many = staying < nodes.min and not fleet.message, nodes.max is not None and staying > nodes.max
            if few or many:
                yield FLEETS_FILLED.broken(f"fleet {fleet.name} has {staying} instances of {nodes}")

    def _nodes_of(self, fleet_id: str, spec_num: int) -> FleetNodesSpec | None:
        """Read once: a fleet's spec of one number never changes, and this is asked after every step."""
        if (fleet_id, spec_num) not in self._nodes:
            body = nouns.find(self.site.store, FleetBody, keys.fleet_body(fleet_id, spec_num))
            if body is None:
                return None
            self._nodes[fleet_id, spec_num] = FleetSpec.model_validate_json(body.spec).configuration.nodes
        return self._nodes[fleet_id, spec_num]

    def left(self) -> Iterator[Violation]:
        for instance in self.watch.instances.values():
            fleet = self.watch.fleets.get(instance.fleet_id)  # None: it is a gateway's
            if fleet is not None and self._ends(fleet) and instance.status is not InstanceStatus.terminated:
                yield FLEETS_END.broken(f"instance {instance.name} is {instance.status}: {instance.message!r}")
        for fleet in self.watch.fleets.values():
            if self._ends(fleet) and not fleet.deleted:
                yield FLEETS_END.broken(f"fleet {fleet.name} is {fleet.status}: {fleet.message!r}")

    @staticmethod
    def _ends(fleet: Fleet) -> bool:
        return fleet.status != "active"
