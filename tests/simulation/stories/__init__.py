"""Stories: one module per feature, with what it does to the plane and what must hold in every history.

A new one is a new file here with a subclass of `Story`; nothing else names it. Each draws from its own generator, so
adding a story doesn't change the choices of the others.
"""

from __future__ import annotations

import importlib
import pkgutil
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from chalicelib.domain import keys
from chalicelib.domain.tenants import Project, User
from chalicelib.errors import DstackError
from chalicelib.store import nouns
from chalicelib.usecases.operator.first_start import first_start
from chalicelib.usecases.people.projects import create_project
from tests.simulation.edges import Away
from tests.simulation.hosts import Hosts
from tests.simulation.plane import Site
from tests.simulation.watch import Commit, Watch
from tests.simulation.world import Crash, Violation, World


@dataclass(frozen=True)
class Submitted:
    """A run as its user submitted it."""

    name: str
    project: Project
    retried: bool  # it has `retry`


@dataclass
class Scene:
    """What all stories share: the world, the product in it, and the users' requests so far."""

    world: World
    site: Site
    hosts: Hosts
    watch: Watch
    projects: list[Project] = field(default_factory=list)
    submitted: dict[str, Submitted] = field(default_factory=dict)  # by run id
    user: User = field(init=False)

    def first_start(self) -> None:
        """The admin and the first project, as any first start creates them; often a second project too."""
        plane = self.site.plane
        _, project = first_start(plane)
        found = nouns.find(self.site.store, User, keys.user(project.owner_id))
        assert found is not None, "the first start made the admin"
        self.user = found
        self.projects.append(project)
        if self.world.rng.random() < 0.5:
            self.projects.append(create_project(plane, self.user, "beside"))

    def ask(self, do: Callable[[], object]) -> bool:
        """A user's request; it isn't repeated if it is refused or the API dies."""
        try:
            do()
        except (Crash, Away):
            self.world.note("request lost")
            return False
        except DstackError as error:
            self.world.note(f"refused: {type(error).__name__}")
            return False
        return True

    def written(self) -> int:
        """How many commits the plane's own processes have made. Agents write too, to report their presence."""
        return sum(process.store.commits for process in self.site.processes)


class Story:
    """One feature's part in a history. A story overrides only what it needs."""

    likely: ClassVar[float] = 1.0  # the share of histories it takes part in

    def __init__(self, scene: Scene) -> None:
        self.scene, self.world, self.site, self.watch = scene, scene.world, scene.site, scene.watch
        self.rng = random.Random(f"{scene.world.seed}/{type(self).__module__}")
        self.takes_part = self.rng.random() < self.likely

    def prepare(self) -> None:
        """Before anything goes wrong."""

    def plan(self) -> None:
        """Schedule what will happen."""

    def calm(self) -> None:
        """Nothing goes wrong from now on: release what this story held back."""

    def wind_up(self) -> None:
        """All has ended: delete what is left."""

    # --- what must hold ----------------------------------------------------------------------------------------------

    def committed(self, commit: Commit) -> None:
        """Always. Raises Violation."""

    def unfinished(self) -> Iterator[Violation]:
        """What must still end before everything is deleted."""
        return iter(())

    def left(self) -> Iterator[Violation]:
        """What must still disappear after everything was deleted."""
        return iter(())

    def verify_at_end(self) -> None:
        """At the end. Raises Violation."""

    # --- for short ---------------------------------------------------------------------------------------------------

    def sometime(self, do: Callable[[], None], low: float, high: float) -> None:
        self.world.after(self.rng.uniform(low, high), do)


def _all() -> tuple[type[Story], ...]:
    modules = [importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
    kinds = [kind for module in modules for kind in vars(module).values() if isinstance(kind, type)]
    return tuple(kind for kind in kinds if issubclass(kind, Story) and kind is not Story)


STORIES = _all()
