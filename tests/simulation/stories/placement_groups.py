"""Placement groups of clusters: made before a machine is in them, deleted once none is, whatever the cloud does."""

from __future__ import annotations

from collections.abc import Iterator

from chalicelib.backends.simulated.cloud import Body
from chalicelib.backends.spi import GroupRequest
from chalicelib.domain.fleets import Fleet
from chalicelib.domain.ids import derive
from chalicelib.domain.instances import Handle, Instance, InstanceStatus
from tests.simulation.plane import INSTALL
from tests.simulation.stories import Scene, Story
from tests.simulation.watch import Commit
from tests.simulation.world import FAULTY_FOR, Invariant, Violation

USED_GROUPS_STAY = Invariant("used groups stay", "no placement group is deleted while an instance is to be in it")
IN_THEIR_GROUP = Invariant("in their group", "a machine is created in the placement group that its order names")
GROUPS_GO = Invariant("groups go", "a placement group goes once no machine of its fleet is left in it")


class PlacementGroups(Story):
    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._orphans: set[str] = set()
        self._strangers: set[str] = set()

    def prepare(self) -> None:
        self.site.backend.ending_group = self._ending
        self.site.script.group = self.rng.choice((None, None, 2, 4))

    def plan(self) -> None:
        for _ in range(self.rng.choice((0, 1, 2))):
            self.sometime(self._vanish, 0, FAULTY_FOR)
        if self.site.backend.facts.placement_groups and self.rng.random() < 0.3:
            self.sometime(lambda: self._leave(INSTALL, self._orphans), 0, FAULTY_FOR)
            self.sometime(lambda: self._leave("somebody else", self._strangers), 0, FAULTY_FOR)

    def _vanish(self) -> None:
        """A person tidies up at the cloud: a group in which there is no machine."""
        inside = {body["group"] for body in self.site.cloud.machines()}
        empty = [each for each in self._groups() if each["id"] not in inside and self._owner(each) == INSTALL]
        if empty:
            self.world.note("group deleted by hand")
            self.site.cloud.lose(self.rng.choice(empty)["id"])

    def _leave(self, install: str, where: set[str]) -> None:
        group = derive(install, "unheard-of group", self.world.seed)
        tags = {"install": install, "project": self.scene.projects[0].id, "fleet": "unheard of", "group": group}
        owner = tuple((f"dstack-{name}", value) for name, value in tags.items())
        request = GroupRequest(group, f"left-{group}", owner, self.rng.choice(self.site.cloud.offers()))
        self.world.note(f"group left by {'us' if install == INSTALL else 'a stranger'}")
        self.scene.ask(lambda: where.add(self.site.cloud.create_group(request).id))

    # --- what must hold ----------------------------------------------------------------------------------------------

    def _groups(self) -> list[Body]:
        return [body for body in self.site.cloud.resources() if body["kind"] == "group"]

    def _owner(self, body: Body) -> str:
        owner: str = dict(body["tags"])["dstack-install"]
        return owner

    def _ending(self, handle: Handle) -> None:
        found = next((body for body in self._groups() if body["id"] == handle.id), None)
        if found is None:
            return
        group = dict(found["tags"])["dstack-group"]
        for instance in self.watch.instances.values():
            if instance.placement_group == group and instance.status is not InstanceStatus.terminated:
                raise USED_GROUPS_STAY.broken(f"{handle.id} is deleted, and {instance.name} is {instance.status}")

    def committed(self, commit: Commit) -> None:
        accepted = {
            new.id: new.placement_group
            for _, new in commit.of(Instance)
            if new.status is InstanceStatus.provisioning and new.bought
        }
        groups = {body["id"]: dict(body["tags"])["dstack-group"] for body in self._groups()} if accepted else {}
        for body in self.site.cloud.machines() if accepted else ():
            wanted = accepted.get(dict(body["tags"])["dstack-instance"])
            if wanted is not None and groups.get(body["group"], "") != wanted:
                raise IN_THEIR_GROUP.broken(f"{body['id']} is in {body['group']}, and not in group {wanted!r}")

    def unfinished(self) -> Iterator[Violation]:
        for left in sorted(self._orphans & {body["id"] for body in self._groups()}):
            yield GROUPS_GO.broken(f"{left}, of which no fleet knows, is still there")
        for fleet in self.watch.known[Fleet].values():
            instances = (each for each in self.watch.instances.values() if each.fleet_id == fleet.id)
            used = {each.placement_group for each in instances if each.status is not InstanceStatus.terminated}
            for group in fleet.groups:
                if group.id not in used:
                    yield GROUPS_GO.broken(f"fleet {fleet.name} keeps {group}, which no machine is in")

    def verify_at_end(self) -> None:
        there = {body["id"] for body in self._groups()}
        if self._strangers - there:
            raise USED_GROUPS_STAY.broken(f"{sorted(self._strangers - there)} of somebody else was deleted")
