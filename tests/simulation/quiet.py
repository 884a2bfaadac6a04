"""A small plane in which only what a test chooses goes wrong: no chance, no faults, one process.

Every wake-up is lost, so only the due index moves it; its one process looks there every second. A test says what else
is lost: the first effect of a kind, or whatever a process had in memory when it died right after a commit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from chalicelib.domain import keys
from chalicelib.domain.fleets import Fleet
from chalicelib.domain.instances import Instance, Presence
from chalicelib.domain.instants import SECOND
from chalicelib.domain.jobs import Job
from chalicelib.domain.runs import Run
from chalicelib.engine.bootstrap_tokens import bootstrap_token
from chalicelib.planning.kernel.plan import Effect
from chalicelib.runtime.local_fleet import ensure_fleet
from chalicelib.store import nouns
from chalicelib.usecases.machines import fleet_plans
from chalicelib.usecases.runs import plans
from tests.simulation.edges import ignore
from tests.simulation.hosts import Host, Hosts, Work
from tests.simulation.plane import Parts, Site, Terms
from tests.simulation.stories import Scene
from tests.simulation.watch import Commit, Watch
from tests.simulation.world import Crash, World

TERMS = Terms(tick=1.0, processes=1)
SIZE = {"cpus": 8, "memory_mib": 32_768, "disk_mib": 204_800, "arch": "x86"}


class Quiet:
    def __init__(self, parts: Parts | None = None, **terms: Any) -> None:
        self.world = World(0)
        self.hosts = Hosts(self.world)
        self.site = self.hosts.site = Site(self.world, parts or Parts(), self.hosts, replace(TERMS, **terms))
        self.site.loses_hint = lambda: True
        self._dies: Callable[[Any, Any], bool] | None = None
        self.scene = Scene(self.world, self.site, self.hosts, Watch(self.site.store, self.site.parts.kinds, self._saw))
        self.scene.first_start()
        self.project, self.user, self.plane = self.scene.projects[0], self.scene.user, self.site.plane

    # --- what is there -----------------------------------------------------------------------------------------------

    def host(self, after: float = 0.0) -> None:
        """This machine as its own fleet; its agent starts so many seconds from now."""
        place = ensure_fleet(self.plane, self.project, "1")[0]
        token = bootstrap_token(self.plane.install_key, place.instance_id, 0)
        self.world.after(after, lambda: self.hosts.add("local", place.instance_id, token, dict(SIZE)))

    def fleet(self, nodes: str = "0..1", **more: Any) -> None:
        configuration = {"type": "fleet", "name": "cloud", "nodes": nodes, "resources": {"cpu": "2.."}, **more}
        raw = {"configuration": configuration}
        fleet_plans.apply_plan(self.plane, self.user, self.project, raw, None)

    def task(self, work: Work | None = None, name: str = "run", **more: Any) -> None:
        """Submit a run. By default it works for five seconds."""
        self.hosts.work[self.project.name, name] = work or Work()
        resources = {"cpu": "1..", "memory": "1GB..", "disk": None}
        configuration = {"type": "task", "commands": ["work"], "resources": resources, "spot_policy": "auto", **more}
        raw = {"run_name": name, "configuration": configuration}
        plans.apply_plan(self.plane, self.user, self.project, raw, None)

    # --- what is lost ------------------------------------------------------------------------------------------------

    def lose(self, kind: type[Effect], times: int = 1) -> None:
        """The next effects of this kind never happen, though they are committed."""
        left = [None] * times

        def lost(effect: Effect) -> bool:
            return isinstance(effect, kind) and bool(left) and left.pop() is None

        self.site.loses_effect = lost

    def die_after(self, happens: Callable[[Any, Any], bool]) -> None:
        """The process that next commits a change (old, new) for which this holds dies right afterwards."""
        self._dies = happens

    def die(self, why: str) -> None:
        """The running process dies here, the first time."""
        self.site.backend.made = ignore
        raise Crash(why)

    def _saw(self, commit: Commit) -> None:
        if self._dies is not None and any(old is not None and self._dies(old, new) for old, new in commit.nouns):
            self._dies = None
            raise Crash("right after a commit")

    # --- what comes of it --------------------------------------------------------------------------------------------

    def until(self, holds: Callable[[], bool], within: float) -> float:
        """Let time pass until it holds, which it must within so many seconds; returns how many it took."""
        began = self.world.seconds()
        assert holds() or self.world.run(self.world.time + round(within * SECOND), holds), self.description()
        return self.world.seconds() - began

    def pass_(self, seconds: float) -> None:
        self.world.run(self.world.time + round(seconds * SECOND))

    @property
    def run(self) -> Run:
        """The newest."""
        return max(self.scene.watch.runs.values(), key=lambda run: run.submitted_at)

    @property
    def job(self) -> Job:
        return max(self.scene.watch.jobs.values(), key=lambda job: job.submitted_at)

    @property
    def instance(self) -> Instance:
        """The newest."""
        return max(self.scene.watch.instances.values(), key=lambda instance: instance.num)

    @property
    def cloud(self) -> Fleet:
        return next(fleet for fleet in self.scene.watch.fleets.values() if fleet.name == "cloud")

    @property
    def agent(self) -> Host:
        """Of the newest instance."""
        return next(host for host in self.hosts.hosts.values() if host.instance_id == self.instance.id)

    def is_(self, status: str) -> Callable[[], bool]:
        """Is the newest instance in this state?"""
        return lambda: bool(self.scene.watch.instances) and self.instance.status == status

    def ran(self, status: str) -> Callable[[], bool]:
        return lambda: self.run.status == status

    def placed(self, status: str) -> Callable[[], bool]:
        return lambda: self.job.status == status

    @property
    def presence(self) -> Presence:
        found = nouns.find(self.site.store, Presence, keys.presence(self.instance.id))
        assert found is not None
        return found

    def description(self) -> str:
        """The state of everything, for the report of a failed test."""
        known = (noun for kind in self.scene.watch.known.values() for noun in kind.values())
        return "; ".join(f"{noun.kind} {noun.name} {noun.status} {noun.message!r}" for noun in known)
