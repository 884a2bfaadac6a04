"""A fleet of hosts reached over SSH: added, changed, away at the wrong moment, taken out, and cleared at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from chalicelib.domain.fleets import Fleet
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.workflows import Workflow
from chalicelib.engine.bootstrap_tokens import bootstrap_token
from chalicelib.errors import Transient
from chalicelib.hosts.connection import File, HostLogin, Ran
from chalicelib.hosts.host_steps import HostSteps
from chalicelib.hosts.inspection import OWNER
from chalicelib.planning.machines.hosts import ADD_HOST, REMOVE_HOST
from chalicelib.usecases.machines import fleet_plans, fleets
from tests.hosts.fake_host import FakeConnection, FakeHost
from tests.hosts.private_key import PRIVATE
from tests.simulation.hosts import Host
from tests.simulation.plane import INSTALL
from tests.simulation.stories import Scene, Story
from tests.simulation.watch import Commit
from tests.simulation.world import FAULTY_FOR, Invariant, Violation

HOSTS_CLEARED = Invariant("hosts cleared", "a host that left its fleet is as it was found")
HOSTS_KNOWN = Invariant("hosts known", "every host that a fleet names is in it, or the fleet says why it isn't")
ONE_OWNER = Invariant("one owner", "an agent is installed on a host only while it belongs to that instance")
WORKFLOWS_END = Invariant("workflows end", "a workflow is finished or undone some time after faults end")

FLEET = "metal"
NAMES = ("m1", "m2", "m3")


@dataclass
class Metal:
    """A machine of somebody's own. Its agent runs while its unit does."""

    name: str
    fake: FakeHost = field(default_factory=lambda: FakeHost(files={"/etc/motd": b"hello"}))
    away_until: float = 0.0
    agent: Host | None = None

    @property
    def as_found(self) -> bool:
        return self.fake.files == {"/etc/motd": b"hello"} and not self.fake.running


class OnPrem(Story):
    likely = 0.5

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.metals = {name: Metal(name) for name in NAMES}
        self.wanted: tuple[str, ...] = ()

    def prepare(self) -> None:
        plane = self.site.plane
        steps = HostSteps(
            plane.store, self.world, self, _login, INSTALL, plane.install_key, "http://plane", lambda: b"agent"
        )
        self.site.performers.update({ADD_HOST.name: steps, REMOVE_HOST.name: steps})
        self._apply(self.rng.sample(NAMES, self.rng.choice((1, 2, 3))))

    def plan(self) -> None:
        for _ in range(self.rng.choice((1, 2, 3, 4))):
            what = self.rng.choice((self._change, self._away, self._away, self._drop, self._restart))
            self.sometime(what, 0, FAULTY_FOR)

    def calm(self) -> None:
        for metal in self.metals.values():
            metal.away_until = min(metal.away_until, self.world.seconds() + 60)
        self._apply(self.wanted)

    # --- what happens ------------------------------------------------------------------------------------------------

    def _apply(self, names: Any) -> None:
        ssh = {"user": "ubuntu", "ssh_key": {"public": "", "private": PRIVATE}, "hosts": sorted(names)}
        raw = {"configuration": {"type": "fleet", "name": FLEET, "ssh_config": ssh}}
        plane, project = self.site.plane, self.scene.projects[0]
        if self.scene.ask(lambda: fleet_plans.apply_plan(plane, self.scene.user, project, raw, None)):
            self.wanted = tuple(sorted(names))
            self.world.note("hosts applied")

    def _change(self) -> None:
        self._apply(self.rng.sample(NAMES, self.rng.choice((1, 2, 3))))

    def _away(self) -> None:
        self.world.note("metal away")
        metal = self.metals[self.rng.choice(NAMES)]
        metal.away_until = self.world.seconds() + self.rng.uniform(10, 200)
        if metal.agent is not None:
            metal.agent.cut_off_until = metal.away_until

    def _restart(self) -> None:
        agent = self.metals[self.rng.choice(NAMES)].agent
        if agent is not None and not agent.dead:
            agent.boot()

    def _drop(self) -> None:
        plane, project = self.site.plane, self.scene.projects[0]
        instances = [i for i in self._instances() if i.status is not InstanceStatus.terminated]
        if instances:
            number = self.rng.choice(instances).num
            self.scene.ask(lambda: fleets.delete_instances(plane, self.scene.user, project, FLEET, [number]))

    def wind_up(self) -> None:
        fleets.delete(self.site.plane, self.scene.user, self.scene.projects[0], [FLEET])

    # --- its machines, as `HostLogins` -------------------------------------------------------------------------------

    @contextmanager
    def connect(self, login: HostLogin, *, again: bool = False) -> Iterator[Any]:
        metal = self.metals[login.hostname]
        self.world.moment("before a login")
        if self.world.seconds() < metal.away_until or self.world.chance(0.05):
            raise Transient(f"{login}: no answer")
        yield _Connection(metal.fake, login, self, metal)

    def ran(self, metal: Metal) -> None:
        """What a script did to the unit follows for the agent."""
        owner = metal.fake.files.get(OWNER, b"").decode()
        instance_id = owner.partition("/")[2]
        agent = metal.agent
        if agent is not None and not agent.dead and (not metal.fake.running or agent.instance_id != instance_id):
            agent.dead = True
        if metal.fake.running and (agent is None or agent.dead):
            if not instance_id:
                raise ONE_OWNER.broken(f"an agent starts on {metal.name}, which belongs to nobody")
            token = bootstrap_token(self.site.plane.install_key, instance_id, 0)
            facts = {"cpus": 8, "memory_mib": 32_768, "disk_mib": 204_800, "arch": "x86"}
            if agent is not None and agent.instance_id == instance_id:
                agent.dead = False
                agent.boot()
            else:
                metal.agent = self.scene.hosts.add(f"{metal.name}-{instance_id[:8]}", instance_id, token, facts)
        if OWNER not in metal.fake.files and agent is not None:
            agent.forget()

    # --- what must hold ----------------------------------------------------------------------------------------------

    def _instances(self) -> list[Instance]:
        return [i for i in self.watch.instances.values() if i.host is not None]

    def committed(self, commit: Commit) -> None:
        for _, instance in commit.of(Instance):
            if instance.host is not None and instance.status is InstanceStatus.terminated:
                files = self.metals[instance.host.hostname].fake.files
                if files.get(OWNER) == f"{INSTALL}/{instance.id}".encode():
                    raise HOSTS_CLEARED.broken(f"{instance.name} is gone, and {instance.host.hostname} isn't cleared")

    def unfinished(self) -> Iterator[Violation]:
        fleet = next((f for f in self.watch.fleets.values() if f.name == FLEET and not f.deleted), None)
        if fleet is None:
            return
        there = {i.host.hostname for i in self._instances() if i.host is not None and self._stands(i, fleet)}
        for name in self.wanted:
            if name not in there:
                yield HOSTS_KNOWN.broken(f"{name} is nowhere in {fleet}")
        yield from self._working()

    def _stands(self, instance: Instance, fleet: Fleet) -> bool:
        settled = instance.status in (InstanceStatus.idle, InstanceStatus.busy)
        return settled or instance.id in fleet.failed

    def _working(self) -> Iterator[Violation]:
        for workflow in self.watch.known.get(Workflow, {}).values():
            if isinstance(workflow, Workflow) and not workflow.ended:
                yield WORKFLOWS_END.broken(f"{workflow.definition} of {workflow.name} is {workflow.status}")

    def left(self) -> Iterator[Violation]:
        yield from self._working()
        for metal in self.metals.values():
            if not metal.as_found:
                yield HOSTS_CLEARED.broken(f"{metal.name} has {sorted(metal.fake.files)}, runs: {metal.fake.running}")


@dataclass
class _Connection(FakeConnection):
    story: OnPrem
    metal: Metal

    def put(self, *files: File, **how: Any) -> None:
        self._shake()
        super().put(*files, **how)
        self.story.ran(self.metal)
        self._shake()

    def run(self, command: str, *, stdin: bytes = b"", timeout: float = 0) -> Ran:
        self._shake()
        done = super().run(command, stdin=stdin)
        self.story.ran(self.metal)
        self._shake()
        return done

    def _shake(self) -> None:
        """The connection breaks, before or after it did something."""
        self.story.world.moment("on a host")
        if self.story.world.chance(0.04):
            self.story.world.note("connection broke")
            raise Transient("the connection broke")


def _login(instance: Instance) -> HostLogin:
    assert instance.host is not None
    return HostLogin(instance.host.hostname, instance.host.port, "ubuntu", PRIVATE)
