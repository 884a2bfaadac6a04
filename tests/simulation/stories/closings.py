"""Projects that are deleted: one when nothing is left in it, and one whose deletion was cut short, so that its runs and
its fleet must end without anybody."""

from __future__ import annotations

from collections.abc import Iterator

from chalicelib.domain import keys
from chalicelib.domain.closings import Closing
from chalicelib.domain.instants import MINUTE
from chalicelib.domain.tenants import Project
from chalicelib.errors import DstackError
from chalicelib.store import nouns
from chalicelib.store.port import Delete
from chalicelib.usecases.machines import fleet_plans
from chalicelib.usecases.people.projects import create_project, delete_projects
from chalicelib.usecases.runs import plans
from tests.simulation.hosts import Work
from tests.simulation.stories import Story
from tests.simulation.world import FAULTY_FOR, Invariant, Violation

CLOSED = Invariant("closed", "what is in a project when that is deleted ends; an empty project can be deleted")

NAME = "brief"
FLEET = {"type": "fleet", "name": "brief", "nodes": "0..2", "resources": {"cpu": "2..", "gpu": "0.."}}
TASK = {"type": "task", "commands": ["work"], "retry": True}


class Closings(Story):
    likely = 0.2

    def prepare(self) -> None:
        self.project: Project = create_project(self.site.plane, self.scene.user, NAME)
        fleet_plans.apply_plan(self.site.plane, self.scene.user, self.project, {"configuration": FLEET}, None)

    def plan(self) -> None:
        for number in range(self.rng.randint(1, 3)):
            self.scene.hosts.work[NAME, f"brief-{number}"] = Work(seconds=1e7)
            self.sometime(lambda number=number: self._submit(number), 0, FAULTY_FOR)  # type: ignore[misc]
        self.sometime(self._cut_short, FAULTY_FOR * 0.3, FAULTY_FOR)

    def _submit(self, number: int) -> None:
        raw = {"run_name": f"brief-{number}", "configuration": TASK}
        self.scene.ask(lambda: plans.apply_plan(self.site.plane, self.scene.user, self.project, raw, None))

    def _cut_short(self) -> None:
        """What a deletion leaves that dies before it looks whether the project is used."""
        now, store = self.world.now(), self.site.store
        found = nouns.find(store, Project, keys.project(self.project.id))
        assert found is not None
        closing = Closing(id=found.id, began_at=now, due_at=now + MINUTE)
        store.commit([nouns.put(found.with_(deleted=True)), nouns.put(closing), Delete(keys.project_name(NAME))])
        self.world.note("deletion cut short")

    def wind_up(self) -> None:
        self._delete()

    def _delete(self) -> None:
        """The second project, as soon as all has gone that was in it."""
        try:
            delete_projects(self.site.plane, self.scene.user, [each.name for each in self.scene.projects[1:]])
        except DstackError:
            self.world.after(30, self._delete)
        else:
            self.world.note("project deleted")

    # --- what must hold ----------------------------------------------------------------------------------------------

    def unfinished(self) -> Iterator[Violation]:
        for run in self.watch.runs.values():
            if run.project_id == self.project.id and not run.finished:
                yield CLOSED.broken(f"{run.name} is {run.status}, and its project is deleted")
        for fleet in self.watch.fleets.values():
            if fleet.project_id == self.project.id and not fleet.deleted:
                yield CLOSED.broken(f"the fleet {fleet.name} is {fleet.status}, and its project is deleted")

    def left(self) -> Iterator[Violation]:
        for project in self.scene.projects[1:]:
            found = nouns.find(self.site.store, Project, keys.project(project.id))
            if found is None or not found.deleted:
                yield CLOSED.broken(f"{project.name} can't be deleted")
