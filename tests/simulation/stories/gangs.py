"""Tasks on several nodes in a cluster: submitted, stopped, retried, their hosts cut off or restarted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chalicelib.domain import keys
from chalicelib.domain.fleets import Fleet, FleetBody
from chalicelib.domain.gangs import Gang, GangStatus
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import SECOND
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.runs import RunBody
from chalicelib.engine.bootstrap_tokens import bootstrap_token
from chalicelib.planning.jobs.jobs import job_specs
from chalicelib.store import nouns
from chalicelib.usecases.machines import fleets
from chalicelib.usecases.runs import runs
from tests.simulation.hosts import Host, Work
from tests.simulation.stories import Scene, Story
from tests.simulation.watch import Commit
from tests.simulation.world import FAULTY_FOR, Invariant, Violation
from tests.world import nouns as b

ALL_OR_NONE = Invariant("all or none", "a node's job gets its place only when its gang has one for every node")
ONE_HOST_EACH = Invariant("one host each", "no two nodes of an attempt share a host")
GIVEN_BACK = Invariant("given back", "what an attempt reserved and doesn't use is given back")

FLEET = "together"
HOSTS = 5
LATE = 120 * SECOND  # for a look after the time is up, on a plane with faults


class Gangs(Story):
    likely = 0.3
    fleet = FLEET
    prefix = "gang"
    sizes = (2, 3, 3, 4, 5)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._hosts: list[Host] = []

    def prepare(self) -> None:
        """A cluster whose agents are on their way."""
        at, project = self.world.now(), self.scene.projects[0]
        fleet = b.fleet(FLEET, created_at=at, last_processed_at=at, next_instance_num=HOSTS).with_(
            project_id=project.id
        )
        addresses = {"hosts": [f"t{n}" for n in range(HOSTS)], "network": "10.0.0.0/8"}
        spec = b.fleet_spec(name=FLEET, placement="cluster", ssh_config=addresses)
        pointer = nouns.pointer(keys.fleet_name(project.id, FLEET), fleet.id)
        machines = [self._machine(fleet, number) for number in range(HOSTS)]
        body = FleetBody(fleet_id=fleet.id, spec=spec.model_dump_json())
        self.site.store.commit([nouns.put(fleet), nouns.put(body), pointer, *map(nouns.put, machines)])
        for machine in machines:
            token = bootstrap_token(self.site.plane.install_key, machine.id, 0)
            facts = {"cpus": 8, "memory_mib": 32_768, "disk_mib": 204_800, "arch": "x86"}
            self._hosts.append(self.scene.hosts.add(machine.name, machine.id, token, facts))

    def _machine(self, fleet: Fleet, number: int) -> Instance:
        unknown = b.resources(cpus=0, gb=0)  # until its agent reports
        since = {"created_at": self.world.now(), "last_processed_at": self.world.now()}
        young = {"status": InstanceStatus.pending, "started_at": None, "idle_since": None}
        return b.host(number, fleet, has=unknown, due_at=self.world.now() + 5 * SECOND, **since, **young).with_(
            project_id=fleet.project_id
        )

    def plan(self) -> None:
        for number in range(self.rng.choice((2, 3, 4))):
            self.sometime(lambda name=f"{self.prefix}-{number}": self._submit(name), 0, FAULTY_FOR * 0.6)  # type: ignore[misc]
        for _ in range(self.rng.choice((0, 1, 2))):
            self.sometime(self.rng.choice((self._restart, self._cut_off)), 5, FAULTY_FOR)

    def calm(self) -> None:
        for host in self._hosts:
            host.cut_off_until = min(host.cut_off_until, self.world.seconds() + 60)

    def _submit(self, name: str) -> None:
        rng, project, at = self.rng, self.scene.projects[0], self.world.now()
        chosen: dict[str, Any] = {
            "nodes": rng.choice(self.sizes),
            "fleets": [self.fleet],
            "resources": {"cpu": "1..", "memory": "1GB.."},
            "startup_order": rng.choice(("any", "master-first", "workers-first")),
            "retry": rng.choice((None, True)),
        }
        spec = b.run_spec(run_name=name, **{key: value for key, value in chosen.items() if value is not None})
        specs = job_specs(spec, images=b.Images())
        self.scene.hosts.work[project.name, name] = Work(rng.uniform(0.5, 60), rng.choice((0, 0, 0, 1)), 60, False)
        run = b.run(name, project_id=project.id, submitted_at=at, last_processed_at=at, due_at=at)
        run = run.with_(priority=rng.choice((0, 0, 50)), user_id=self.scene.user.id)
        first = [b.job(run, node=each.job_num, due_at=at if each.job_num == 0 else None) for each in specs]
        body = RunBody(
            run_id=run.id, run_spec=spec.model_dump_json(), job_specs=tuple(each.model_dump_json() for each in specs)
        )
        pointer = nouns.pointer(keys.run_name(project.id, name), run.id)
        self.site.store.commit([nouns.put(run), nouns.put(body), pointer, *map(nouns.put, first)])
        if rng.random() < 0.3:
            self.sometime(lambda: self._stop(name), 0, 40)

    def _stop(self, name: str) -> None:
        plane, abort = self.site.plane, self.rng.random() < 0.5
        self.scene.ask(lambda: runs.stop(plane, self.scene.user, self.scene.projects[0], [name], abort=abort))

    def _restart(self) -> None:
        self.rng.choice(self._hosts).boot()

    def _cut_off(self) -> None:
        self.rng.choice(self._hosts).cut_off_until = self.world.seconds() + self.rng.uniform(30, 400)

    def wind_up(self) -> None:
        fleets.delete(self.site.plane, self.scene.user, self.scene.projects[0], [self.fleet])

    # --- what must hold ----------------------------------------------------------------------------------------------

    def committed(self, commit: Commit) -> None:
        for old, job in commit.of(Job):
            if job.assignment is not None and (old is None or old.assignment is None):
                self._placed(job)

    def _placed(self, job: Job) -> None:
        gang = self._gang(job)
        if gang is None:
            return
        if len(gang.places) != gang.nodes or gang.status in (GangStatus.gathering, GangStatus.undone):
            raise ALL_OR_NONE.broken(f"{job.name} is placed, and its gang is {gang.status} with {len(gang.places)}")
        for place in gang.places:
            held = {claim.run_id for claim in self.watch.instances[place].claims}
            others = [other for other in self._jobs(gang) if other.finished or other.status is JobStatus.terminating]
            if gang.run_id not in held and not others:
                raise ALL_OR_NONE.broken(f"{job.name} is placed, and {place} is not its gang's")
        places = [other.assignment.instance_id for other in self._jobs(gang) if other.assignment is not None]
        if len(places) != len(set(places)):
            raise ONE_HOST_EACH.broken(f"{job.name} is on a host of another node")

    def _gang(self, job: Job) -> Gang | None:
        for gang in self._gangs():
            if (gang.run_id, gang.submission_num) == (job.run_id, job.submission_num):
                return gang
        return None

    def _gangs(self) -> list[Gang]:
        return list(self.watch.known.get(Gang, {}).values())

    def _jobs(self, gang: Gang) -> list[Job]:
        same = (job for job in self.watch.jobs.values() if job.run_id == gang.run_id)
        return [job for job in same if job.submission_num == gang.submission_num]

    def unfinished(self) -> Iterator[Violation]:
        for gang in self._gangs():
            over = self.watch.runs[gang.run_id].finished
            late = gang.status is GangStatus.gathering and self.world.now() > (gang.until or 0) + LATE
            if (over or late) and gang.holds:
                yield GIVEN_BACK.broken(f"gang {gang.name} is {gang.status} and has {len(gang.places)} places")
        for instance in self.watch.instances.values():
            for claim in instance.claims:
                run = self.watch.runs.get(claim.run_id)
                if run is not None and run.finished:
                    yield GIVEN_BACK.broken(f"{instance.name} is held for {run.name}, which has ended")
