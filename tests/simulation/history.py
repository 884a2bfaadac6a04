"""One history: every story's part in a day with faults, then calm, and then everything must end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from chalicelib.domain.instants import HOUR, MINUTE, SECOND, Micros
from tests.simulation.hosts import Hosts
from tests.simulation.plane import Parts, Site
from tests.simulation.stories import STORIES, Scene, Story
from tests.simulation.watch import Commit, Watch
from tests.simulation.world import Invariant, Violation, World

PATIENCE = 8 * HOUR  # for everything to end once it is calm
END_PATIENCE = 2 * HOUR  # and once everything is deleted
IDLE = 30 * MINUTE
EXECUTIONS_PATIENCE = 4 * HOUR

IDLE_IS_QUIET = Invariant("idle is quiet", "a plane in which nothing is left to do writes nothing")
EXECUTIONS_END = Invariant("executions end", "an execution ends some time after its workflow has")


@dataclass
class Result:
    seed: int
    happened: dict[str, int] = field(default_factory=dict)
    runs: dict[str, int] = field(default_factory=dict)
    commits: int = 0
    virtual_seconds: float = 0.0


class History:
    def __init__(self, seed: int, parts: Parts | None = None, stories: Sequence[type[Story]] = STORIES) -> None:
        self.world = World(seed)
        hosts = Hosts(self.world)
        site = hosts.site = Site(self.world, parts or Parts(), hosts)
        self.stories: list[Story] = []
        self.scene = Scene(self.world, site, hosts, Watch(site.store, site.parts.kinds, self._committed))
        self.stories += [story for kind in stories if (story := kind(self.scene)).takes_part]

    def play(self) -> Result:
        """Raises Violation if the history goes wrong."""
        world = self.world
        self.scene.first_start()
        for story in self.stories:
            story.prepare()
        world.begin()
        for story in self.stories:
            story.plan()
        world.run(world.calm_at)
        for story in self.stories:
            story.calm()
        self._wait(PATIENCE, lambda story: story.unfinished())
        world.run(world.time + 30 * SECOND)  # a hint of the last end may still be in flight
        for story in self.stories:
            story.wind_up()
        self._wait(END_PATIENCE, lambda story: story.left())
        self._settle()
        self._executions_end()
        for story in self.stories:
            story.verify_at_end()
        ends: dict[str, int] = {}
        for run in self.scene.watch.runs.values():
            ends[run.status.value] = ends.get(run.status.value, 0) + 1
        return Result(world.seed, world.happened, ends, self.scene.site.store.commits, world.seconds())

    def _committed(self, commit: Commit) -> None:
        for story in self.stories:
            story.committed(commit)

    def _wait(self, patience: Micros, missing: Callable[[Story], Iterator[Violation]]) -> None:
        def first(stories: Iterable[Story]) -> Violation | None:
            return next((violation for story in stories for violation in missing(story)), None)

        def over() -> bool:
            """Who isn't done yet is asked first: this is asked after every call."""
            while waiting and first(waiting[-1:]) is None:
                waiting.pop()
            return not waiting and first(self.stories) is None

        waiting = [*self.stories]
        if not over():
            self.world.run(self.world.time + patience, over)
        if violation := first(self.stories):
            raise violation

    def _executions_end(self) -> None:
        """One whose callback was lost asks again when its state's time is up."""
        machines = self.scene.site.executions
        if machines is not None and not self.world.run(self.world.time + EXECUTIONS_PATIENCE, machines.all_ended):
            raise EXECUTIONS_END.broken(f"of {len(machines.executions)} executions some go on for ever")

    def _settle(self) -> None:
        """The first half settles the remaining deadlines; nothing may be written in the second."""
        self.world.run(self.world.time + IDLE)
        before = self.scene.written()
        self.world.run(self.world.time + IDLE)
        if self.scene.written() > before:
            raise IDLE_IS_QUIET.broken(f"{self.scene.written() - before} commits in {IDLE // MINUTE} minutes")


def play(seed: int, parts: Parts | None = None, stories: Sequence[type[Story]] = STORIES) -> Result:
    return History(seed, parts, stories).play()


def always(story: type[Story]) -> tuple[type[Story], ...]:
    """All stories, this one in every history."""
    certain = type(story.__name__, (story,), {"likely": 1.0})
    return tuple(certain if each is story else each for each in STORIES)
