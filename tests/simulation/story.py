"""One history: a user's day under faults, then calm, and then everything must come to its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from chalicelib.domain.fleets import Fleet, FleetBody
from chalicelib.domain.ids import derive
from chalicelib.domain.instances import Instance, InstanceStatus, instance_id
from chalicelib.domain.instants import HOUR, SECOND
from chalicelib.domain.offers import InstanceType, Offer, Resources
from chalicelib.domain.specs.fleets import FleetSpec
from chalicelib.domain.tenants import Project, User
from chalicelib.engine.bootstrap import bootstrap_token
from chalicelib.errors import DstackError
from chalicelib.store import keys, nouns
from chalicelib.usecases import fleet_plans, fleets, run_plans, runs
from chalicelib.usecases.bootstrap import first_start
from tests.simulation.checks import Watch
from tests.simulation.hosts import Hosts, Work
from tests.simulation.plane import INSTALL, Parts, Site
from tests.simulation.world import Crash, Violation, World

FAULTY_FOR = 240.0  # seconds
RUN_PATIENCE = 8 * HOUR  # for the last run to end once it is calm
END_PATIENCE = 2 * HOUR  # for the last machine to be gone once its fleet is deleted
HOST_FACTS = {"cpus": 8, "memory_mib": 32_768, "disk_mib": 204_800, "arch": "x86"}


@dataclass
class Result:
    seed: int
    happened: dict[str, int] = field(default_factory=dict)
    runs: dict[str, int] = field(default_factory=dict)
    commits: int = 0
    virtual_seconds: float = 0.0


class Story:
    def __init__(self, seed: int, parts: Parts | None = None) -> None:
        self.world = World(seed, faulty_for=FAULTY_FOR)
        self.hosts = Hosts(self.world)
        self.watch: Watch
        self.site = Site(self.world, parts or Parts(), self.hosts, self._check)
        self.hosts.site = self.site
        self.watch = Watch(self.site, self.hosts)
        self.submitted: dict[str, str] = {}
        self.user: User
        self.project: Project

    def play(self) -> Result:
        """Raises Violation where the history goes wrong."""
        self._prepare()
        self._plan()
        world, watch = self.world, self.watch
        world.run(world.calm_at)
        self.hosts_come_back()
        if not world.run(world.time + RUN_PATIENCE, watch.all_ended) and not watch.all_ended():
            raise Violation(f"these runs never end: {watch.stuck()}")
        self._settle()
        fleets.delete(self.site.plane, self.user, self.project, ["cloud"])
        if not world.run(world.time + END_PATIENCE, watch.nothing_left) and not watch.nothing_left():
            raise Violation(f"something is left: {watch.stuck()}")
        watch.kept(self.submitted)
        watch.bought_once()
        ends: dict[str, int] = {}
        for run in watch.runs.values():
            ends[run.status.value] = ends.get(run.status.value, 0) + 1
        seconds = world.seconds() - world.calm_at / SECOND + FAULTY_FOR
        return Result(world.seed, world.happened, ends, self.site.store.commits, seconds)

    def _settle(self) -> None:
        """Commits of the last run's end are a moment old: a fleet in use can't be deleted."""
        self.world.run(self.world.time + 30 * SECOND)

    def _check(self) -> None:
        self.watch.bought_once()

    # --- before ------------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        calm, self.world.calm_at = self.world.calm_at, 0
        _, self.project = first_start(self.site.plane)
        pointer = nouns.find_target(self.site.store, keys.user_name("admin"))
        found = pointer and nouns.find(self.site.store, User, keys.user(pointer[0]))
        if not found:
            raise Violation("there is no admin after the first start")
        self.user = found
        rng = self.world.rng
        self._add_hosts(rng.choice((0, 0, 1, 2)), blocks=rng.choice((1, 2)))
        configuration: dict[str, Any] = {
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
        configuration = {name: value for name, value in configuration.items() if value is not None}
        raw = self.fleet_spec = {"configuration": configuration}
        row = fleet_plans.apply_plan(self.site.plane, self.user, self.project, raw, None, force=False)
        nodes = FleetSpec.model_validate_json(row.spec).configuration.nodes
        self.watch.most[row.fleet.id] = nodes.max if nodes else None
        self.world.calm_at = calm

    def _add_hosts(self, count: int, blocks: int) -> None:
        """On-prem hosts: a fleet that a user's own machines make up."""
        if not count:
            return
        store, now, project = self.site.store, self.world.now(), self.project
        fleet_id = derive(project.id, "fleet", "hosts")
        names = [f"host-{number}" for number in range(count)]
        spec = FleetSpec.model_validate(
            {"configuration": {"type": "fleet", "name": "hosts", "blocks": blocks, "ssh_config": {"hosts": names}}}
        )
        fleet = Fleet(
            id=fleet_id,
            project_id=project.id,
            name="hosts",
            created_at=now,
            last_processed_at=now,
            next_instance_num=count,
        )
        pointer = nouns.pointer(keys.fleet_name(project.id, "hosts"), fleet_id)
        body = FleetBody(fleet_id=fleet_id, spec=spec.model_dump_json())
        store.commit([nouns.put(fleet), nouns.put(body), pointer])
        unknown = InstanceType(name="instance", resources=Resources(cpus=0, memory_mib=0))
        for number, name in enumerate(names):
            host = Instance(
                id=instance_id(fleet_id, number),
                project_id=project.id,
                fleet_id=fleet_id,
                fleet_name="hosts",
                num=number,
                name=f"hosts-{number}",
                offer=Offer(backend="remote", instance=unknown, region="remote", price=0.0),
                hostname=name,
                created_at=now,
                last_processed_at=now,
            )
            store.commit([nouns.put(host)])
            token = bootstrap_token(self.site.plane.install_key, host.id, 0)
            self.hosts.add(name, host.id, token, HOST_FACTS)

    # --- what happens ------------------------------------------------------------------------------------------------

    def _plan(self) -> None:
        world, rng = self.world, self.world.rng
        self._noise()
        for number in range(rng.randint(3, 8)):
            name = f"run-{number}"
            at = world.some(0, FAULTY_FOR * 0.75)
            world.after(at, lambda name=name: self._submit(name))  # type: ignore[misc]
            if rng.random() < 0.25:
                abort = rng.random() < 0.4
                world.after(at + world.some(0.1, 60), lambda name=name, abort=abort: self._stop(name, abort))  # type: ignore[misc]
        for _ in range(rng.randint(0, 3)):
            what = rng.choice((self._restart, self._cut_off, self._interrupt, self._lose, self._change_fleet))
            world.after(world.some(5, FAULTY_FOR), what)

    def _noise(self) -> None:
        """Wake-ups about nothing: a hint is never more than a hint."""
        watch, rng = self.watch, self.world.rng
        units = [f"instance/{i.id}" for i in watch.instances.values() if i.status is not InstanceStatus.terminated]
        units += [f"run/{run.id}" for run in watch.runs.values() if not run.finished]
        if units:
            self.site.wake(rng.sample(units, min(len(units), 2)))
        if self.world.now() < self.world.calm_at:
            self.world.after(rng.expovariate(1 / 3), self._noise)

    def _submit(self, name: str) -> None:
        rng = self.world.rng
        failures = rng.choice((0, 0, 0, 0, 1, 2))
        seconds = self.world.some(0.5, 60)
        self.hosts.work[name] = Work(seconds, failures, rng.choice((0, 60, 3000)), rng.random() < 0.3)
        configuration: dict[str, Any] = {
            "type": "task",
            "commands": ["work"],
            "resources": {
                "cpu": rng.choice(("1..", "1..", "1..", "2..4", "4..", "16..")),
                "memory": rng.choice(("1GB..", "1GB..", "4GB..16GB")),
                "gpu": rng.choice((*("0..",) * 10, "L4:1", "16GB")),
                "disk": None,
            },
            "max_price": rng.choice((*(None,) * 9, 0.3)),
            "regions": rng.choice((*(None,) * 6, ["sim-east"], ["sim-north", "sim-west"])),
            "fleets": rng.choice((*(None,) * 8, ["cloud"], ["hosts"])),
            "priority": rng.choice((0, 0, 50)),
            "spot_policy": "auto",
            "retry": rng.choice(
                (None, True, {"on_events": ["no-capacity", "interruption", "error"], "duration": 1800})
            ),
            "max_duration": rng.choice((None, 30)),
            "idle_duration": rng.choice((None, 10)),
            "creation_policy": rng.choice((*(None,) * 7, "reuse")),
        }
        raw = {"run_name": name, "configuration": {k: v for k, v in configuration.items() if v is not None}}

        def go() -> None:
            look = run_plans.Look(beyond_fleets=rng.random() < 0.3)
            run_plans.get_plan(self.site.plane, self.user, self.project, raw, look)
            row = run_plans.apply_plan(self.site.plane, self.user, self.project, raw, None, force=True)
            self.submitted[row.run.id] = name

        self._ask(go)

    def _stop(self, name: str, abort: bool) -> None:
        self._ask(lambda: runs.stop(self.site.plane, self.user, self.project, [name], abort=abort))

    def _ask(self, do: Any) -> None:
        """A user who is refused, or whose API dies, asks no second time."""
        try:
            do()
        except Crash:
            self.world.note("request lost")
        except DstackError as error:
            self.world.note(f"refused: {type(error).__name__}")

    def _a_host(self) -> Any:
        alive = [host for host in self.hosts.hosts.values() if not host.dead]
        return self.world.rng.choice(alive) if alive else None

    def _restart(self) -> None:
        if host := self._a_host():
            self.world.note("agent restarted")
            host.boot()

    def _cut_off(self) -> None:
        if host := self._a_host():
            self.world.note("host cut off")
            host.cut_off_until = self.world.seconds() + self.world.some(30, 400)

    def _interrupt(self) -> None:
        machines = [body for body in self.site.cloud.machines() if body["spot"]]
        if machines:
            self.world.note("machine interrupted")
            self.site.cloud.interrupt(dict(self.world.rng.choice(machines)["tags"])["dstack-instance"])

    def _change_fleet(self) -> None:
        """The user changes the fleet in place; what is too much of it has to go."""
        nodes = self.world.rng.choice(("0..1", "1..2", "0..4"))
        raw = {"configuration": {**self.fleet_spec["configuration"], "nodes": nodes}}

        self.watch.most.clear()  # whether or not the answer comes: until it has shrunk there may be more

        def go() -> None:
            fleet_plans.apply_plan(self.site.plane, self.user, self.project, raw, None, force=True)
            self.world.note("fleet changed")

        self._ask(go)

    def _lose(self) -> None:
        machines = self.site.cloud.machines()
        if machines:
            self.world.note("machine lost")
            self.site.cloud.lose(self.world.rng.choice(machines)["id"])

    def hosts_come_back(self) -> None:
        for host in self.hosts.hosts.values():
            host.cut_off_until = min(host.cut_off_until, self.world.seconds() + 60)


def play(seed: int, parts: Parts | None = None) -> Result:
    return Story(seed, parts).play()


__all__ = ["INSTALL", "Result", "Story", "play"]
