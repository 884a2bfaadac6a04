"""Gateways: on hosts and on machines of their own, with services behind them, changed, used, emptied and deleted.

Each of their replicas is a door of its own, which outlives its machine's agent. It speaks with that agent's credential,
serves what it was last told, and counts its requests; they are over when its machine dies or drops it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chalicelib.domain import keys
from chalicelib.domain.certificates import Certificate
from chalicelib.domain.gateways import Gateway, GatewayReplica, GatewayStatus, ReplicaState
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.jobs import Job
from chalicelib.domain.reasons import JobReason
from chalicelib.domain.runs import Run
from chalicelib.domain.services import BUCKET, STALE, Bucket, Traffic
from chalicelib.domain.tenants import Project
from chalicelib.planning.runs.rollout import DRAIN
from chalicelib.runtime.local_fleet import FLEET as LOCAL
from chalicelib.store import nouns
from chalicelib.usecases.agents import gateway_sync
from chalicelib.usecases.machines import fleets
from chalicelib.usecases.runs import plans, runs
from chalicelib.usecases.services import certificates, gateway_plans, gateways
from tests.simulation.hosts import Carried, Host, Work
from tests.simulation.stories import Scene, Story
from tests.simulation.stories.onprem import FLEET as METAL
from tests.simulation.watch import Commit
from tests.simulation.world import FAULTY_FOR, Invariant, Violation

NONE_OUTLIVES = Invariant("none outlives", "no machine of a gateway, and no replica on a host, outlives it")
ONE_A_HOST = Invariant("one a host", "a machine carries one replica at most, and drops it before it gets another")
SEATED = Invariant("seated", "replicas that take requests are on distinct machines that live and know of them")
NO_JOBS_THERE = Invariant("no jobs there", "no job is placed on a machine that was bought for a gateway")
USED_STAY = Invariant("used stay", "no gateway is deleted while a service uses it")
DOORS_LET_GO = Invariant("doors asked", "a replica is stopped only when each door has let it go, or its time is up")
GATEWAYS_SETTLE = Invariant("gateways settle", "in the end a gateway has the replicas that it should have, or says why")
NO_TRACE = Invariant("no trace", "a deleted gateway leaves no certificate, no name, no default, and nothing on a host")

NAMES = ("edge", "rim")
SITES = ("site-0", "site-1")  # services
REGIONS = ("sim-east", "sim-west", "sim-north")
DOMAINS = ("apps.example.com", "*.apps.example.com", "${{ run.project_name }}.example.org")
EVERY = 10.0  # seconds between two looks of a door
A_WHILE: Micros = 12 * SECOND  # longer than a decision takes, however its process stalls
_AT_WORK = Work(seconds=1e7, log=0)


class Gateways(Story):
    likely = 0.08

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._places: dict[str, dict[str, Any]] = {name: self._place() for name in NAMES}
        self._runs_since: dict[str, Micros] = {}  # replicas, by machine, as the plane knows them
        self._over = False  # no more services

    def _place(self) -> dict[str, Any]:
        fleet = self.rng.choice((None, None, LOCAL, METAL, METAL))
        return {"backend": "dstack", "region": self.rng.choice(REGIONS)} if fleet is None else {"fleet": fleet}

    # --- what happens ------------------------------------------------------------------------------------------------

    def plan(self) -> None:
        self.site.authority.served = self._answers
        for site in SITES:
            self.scene.hosts.work[self.project.name, site] = _AT_WORK
        for name in NAMES[: self.rng.choice((1, 2))]:
            self.sometime(lambda name=name: self._apply(name), 0, 40)  # type: ignore[misc]
        for what, most in (
            (lambda: self._apply(self.rng.choice(NAMES)), 3),
            (self._serve, 6),
            (self._stop_one, 2),
            (self._delete_one, 2),
            (self._delete_fleet, 1),
            (self._lose_one, 2),
            (self._restart_one, 2),
            (self._cut_off_one, 1),
        ):
            for _ in range(self.rng.randint(0, most)):
                self.sometime(what, 20, FAULTY_FOR)
        for _ in range(2):
            self.sometime(self._serve, 40, 120)
        self.world.after(EVERY, self._poll_doors)

    @property
    def project(self) -> Project:
        return self.scene.projects[0]

    def _apply(self, name: str) -> None:
        rng = self.rng
        chosen = {
            "type": "gateway",
            "name": name,
            **self._places[name],
            "domain": rng.choice((*DOMAINS, *DOMAINS, None)),
            "replicas": rng.choice((None, 1, 2, 2, 3)),
            "default": rng.choice((None, None, True, False)),
        }
        raw = {"configuration": {key: value for key, value in chosen.items() if value is not None}}
        plane = self.site.plane
        if self.scene.ask(lambda: gateway_plans.apply_plan(plane, self.scene.user, self.project, raw, None)):
            self.world.note("gateway applied")

    def _serve(self) -> None:
        """A service, or its next version, at the gateway where it is."""
        if self._over:
            return
        name = self.rng.choice(SITES)
        now = self._run(name)
        at = self.rng.choice((*NAMES, True))
        if now is not None:
            at = next((each.name for each in self._gateways() if each.id == now.gateway_id), at)
        configuration = {
            "type": "service",
            "port": 8000,
            "gateway": at,
            "commands": ["serve"],
            "env": {"V": str(self.world.time)},
            "resources": {"cpu": "1..", "memory": "1GB..", "disk": None},
            "replicas": self.rng.choice((1, 1, 2)),
            "spot_policy": "auto",
            "retry": {"on_events": ["no-capacity", "interruption", "error"], "duration": "2h"},
        }
        raw, plane = {"run_name": name, "configuration": configuration}, self.site.plane
        if self.scene.ask(lambda: plans.apply_plan(plane, self.scene.user, self.project, raw, None)):
            self.world.note("service at a gateway")

    def _stop_one(self) -> None:
        name = self.rng.choice(SITES)
        self.scene.ask(lambda: runs.stop(self.site.plane, self.scene.user, self.project, [name], abort=False))

    def _delete_one(self) -> None:
        name = self.rng.choice(NAMES)
        if self.scene.ask(lambda: gateways.delete(self.site.plane, self.scene.user, self.project, [name])):
            self._places[name] = self._place()
            self.world.note("gateway deleted")

    def _delete_fleet(self) -> None:
        """One that may carry a gateway. Then it is refused, unless its host is away; this machine's server adds it."""
        if self.scene.ask(lambda: fleets.delete(self.site.plane, self.scene.user, self.project, [LOCAL])):
            self.world.note("fleet under a gateway deleted")

    def _lose_one(self) -> None:
        """A machine that was bought for a gateway vanishes."""
        machines = [each for each in self.watch.instances.values() if each.of_gateway and each.handles]
        for handle in self.rng.choice(machines).handles if machines else ():
            self.world.note("gateway's machine lost")
            self.site.cloud.lose(handle.id)

    def _restart_one(self) -> None:
        if hosts := self._carrying():
            self.world.note("gateway's agent restarted")
            self.rng.choice(hosts).boot()

    def _cut_off_one(self) -> None:
        if hosts := self._carrying():
            self.world.note("gateway cut off")
            self.rng.choice(hosts).cut_off_until = self.world.seconds() + self.rng.uniform(30, 300)

    def calm(self) -> None:
        for host in self._carrying():
            host.cut_off_until = min(host.cut_off_until, self.world.seconds() + 60)
        if self.rng.random() < 0.5:
            self._serve()
        self.sometime(self._end_services, 60, 300)

    def _end_services(self) -> None:
        self._over = True
        names = [name for name in SITES if self._run(name) is not None]
        if names:
            runs.stop(self.site.plane, self.scene.user, self.project, names, abort=False)

    def _end_if_settled(self) -> None:
        """Before the fleets are deleted, which are in use by them."""
        here = [each for each in self._gateways() if not each.ending]
        if here and all(map(self._settled, here)) and not any(map(self._run, SITES)):
            gateways.delete(self.site.plane, self.scene.user, self.project, [each.name for each in here])

    # --- its doors ---------------------------------------------------------------------------------------------------

    def _carrying(self) -> list[Host]:
        return [host for host in self.scene.hosts.hosts.values() if host.carried is not None and not host.dead]

    def _poll_doors(self) -> None:
        for host in self._carrying():
            if host.door is not None:
                self._poll(host, host.door)
        if self._over:
            self._end_if_settled()
        if self._gateways() or not self._over:
            self.world.after(EVERY, self._poll_doors)

    def _poll(self, host: Host, door: Carried) -> None:
        plane, reaches = self.site.plane, self.world.seconds() >= host.cut_off_until

        def poll() -> None:
            answer = gateway_sync.gateway_configuration(
                plane, gateway_sync.seat_of(plane, host.credential), self._version(door)
            )
            door.configuration = answer if answer["news"] else door.configuration

        def send() -> None:
            gateway_sync.report(plane, gateway_sync.seat_of(plane, host.credential), traffic)

        if reaches:
            self.scene.ask(poll)
        traffic = [self._counted(door, service) for service in door.configuration.get("services", ())]
        if reaches and traffic and self.scene.ask(send):
            busy = any(not each.quiet for each in traffic)
            door.reported_at = self.world.time
            door.busy_since = (door.busy_since or self.world.time) if busy else None

    @staticmethod
    def _version(door: Carried) -> str:
        return str(door.configuration.get("version", ""))

    def _counted(self, door: Carried, service: dict[str, Any]) -> Traffic:
        """Some requests begin; what the door then has under way is what it says."""
        now, busy = self.world.time, self.rng.random() < 0.7 and not self._over
        for replica in service["replicas"]:
            if busy and replica["ready"] and not replica["draining"]:
                door.busy[replica["job_id"]] = now + round(self.rng.uniform(1, 40) * SECOND)
        still_busy = {job_id for job_id, until in door.busy.items() if until > now}
        draining_of = {replica["job_id"]: replica["draining"] for replica in service["replicas"]}
        return Traffic(
            run_id=service["run_id"],
            door="",
            at=now,
            quiet=not still_busy,
            buckets=(Bucket(at=now // BUCKET * BUCKET, requests=int(busy), busy=float(busy)),),
            let_go=tuple(job_id for job_id, draining in draining_of.items() if draining and job_id not in still_busy),
        )

    def _answers(self, host: str, token: str) -> str:
        doors = [each.door for each in self._carrying() if each.door is not None]
        found = [
            door.configuration["challenges"].get(token, "") for door in doors if "challenges" in door.configuration
        ]
        return next(filter(None, found), "")

    # --- what there is -----------------------------------------------------------------------------------------------

    def _gateways(self) -> list[Gateway]:
        return [each for each in self.watch.known[Gateway].values() if not each.deleted]

    def _run(self, name: str) -> Run | None:
        return next((run for run in self.watch.runs.values() if run.name == name and not run.finished), None)

    def _carried_by(self, gateway: Gateway) -> list[Instance]:
        """The machines whose records say that they carry a replica of it."""
        live = (each for each in self.watch.instances.values() if each.status is not InstanceStatus.terminated)
        return [each for each in live if each.gateway is not None and each.gateway.gateway_id == gateway.id]

    # --- what must hold ----------------------------------------------------------------------------------------------

    def committed(self, commit: Commit) -> None:
        for old, instance in commit.of(Instance):
            self._machine(old, instance)
        for old, job in commit.of(Job):
            place = None if job.assignment is None else self.watch.instances.get(job.assignment.instance_id)
            if place is not None and place.of_gateway:
                raise NO_JOBS_THERE.broken(f"{job.name} is placed on {place.name}")
            if old is not None and old.draining_at is not None:
                self._drained(old, job)
        for old, gateway in commit.of(Gateway):
            self._gateway(old, gateway)

    def _machine(self, old: Instance | None, instance: Instance) -> None:
        if instance.of_gateway and instance.claims:
            raise NO_JOBS_THERE.broken(f"{instance.name} has a place for {instance.claims}")
        before, seat = (None if old is None else old.gateway), instance.gateway
        if before is not None and seat is not None and (before.gateway_id, before.num) != (seat.gateway_id, seat.num):
            raise ONE_A_HOST.broken(f"{instance.name} carries {before.name} {before.num}, and gets {seat.name}")

    def _gateway(self, old: Gateway | None, gateway: Gateway) -> None:
        using = [run.name for run in self.watch.runs.values() if run.gateway_id == gateway.id and not run.finished]
        if gateway.ending and using:
            raise USED_STAY.broken(f"{gateway.name} is {gateway.status}, and {using} are there")
        ends = gateway.deleted and (old is None or not old.deleted)
        if ends and (left := [each.name for each in self._carried_by(gateway)] + self._bought_for(gateway)):
            raise NONE_OUTLIVES.broken(f"{gateway.name} is gone, and there is {left}")
        places = [each.instance_id for each in gateway.replicas]
        if len(set(places)) < len(places):
            raise ONE_A_HOST.broken(f"{gateway.name} has two replicas on one machine")
        before = {} if old is None else {each.num: each for each in old.replicas}
        for replica in gateway.replicas:
            if replica.state is not ReplicaState.running:
                self._runs_since.pop(replica.instance_id, None)
        for replica in gateway.running:
            self._runs_since.setdefault(replica.instance_id, self.world.time)
            was = before.get(replica.num)
            if (was is None or was.state is not ReplicaState.running) and not self._knows(gateway, replica):
                raise SEATED.broken(f"replica {replica.num} of {gateway.name} runs on {replica.instance_name}")

    def _knows(self, gateway: Gateway, replica: GatewayReplica) -> bool:
        """Does its machine live, with this replica?"""
        machine = self.watch.instances.get(replica.instance_id)
        if machine is None or machine.gateway is None or machine.status is InstanceStatus.terminated:
            return False
        return (machine.gateway.gateway_id, machine.gateway.num) == (gateway.id, replica.num)

    def _bought_for(self, gateway: Gateway) -> list[str]:
        """What the cloud still has."""
        own_ids = {each.id for each in self.watch.instances.values() if each.of_gateway and each.fleet_id == gateway.id}
        bodies = self.site.cloud.resources()
        return [body["id"] for body in bodies if dict(body["tags"]).get("dstack-instance") in own_ids]

    def _drained(self, old: Job, job: Job) -> None:
        if job.reason is not JobReason.scaled_down or old.reason is not None or old.draining_at is None:
            return
        run = self.watch.runs[job.run_id]
        if run.gateway_id is None or self.world.time >= old.draining_at + DRAIN:
            return
        for host in self._carrying():
            door, seat = host.door, self.watch.instances[host.instance_id].gateway
            stays = seat is not None and seat.gateway_id == run.gateway_id and not seat.leaving
            if door is not None and stays and self._is_known(host, door) and door.busy.get(job.id, 0) > self.world.time:
                raise DOORS_LET_GO.broken(f"{job.name} is stopped while the door on {host.name} has requests for it")

    def _is_known(self, host: Host, door: Carried) -> bool:
        """Has the plane known long enough that this door takes requests, whatever it decides just now?"""
        now = self.world.time
        busy = door.busy_since is not None and door.busy_since + A_WHILE <= now <= door.reported_at + STALE - A_WHILE
        since = self._runs_since.get(host.instance_id)
        return busy or (since is not None and since + A_WHILE <= now)

    def unfinished(self) -> Iterator[Violation]:
        for gateway in self._gateways():
            states = [f"{each.instance_name} {each.state} {each.message!r}" for each in gateway.replicas]
            yield GATEWAYS_SETTLE.broken(
                f"{gateway.name} is {gateway.status} ({gateway.message!r}), of {gateway.wanted}: {states}"
            )

    def _settled(self, gateway: Gateway) -> bool:
        """Does each of its replicas take requests, and are there as many as there should be, or too few hosts?"""
        doors = {host.instance_id for host in self._carrying() if host.door is not None}
        if {each.instance_id for each in gateway.replicas} != {each.instance_id for each in gateway.running} & doors:
            return False
        if len(gateway.replicas) == gateway.wanted:
            return gateway.status is GatewayStatus.running
        return bool(gateway.fleet) and bool(gateway.message)

    def left(self) -> Iterator[Violation]:
        plane = self.site.plane
        for instance in self.watch.instances.values():
            if instance.of_gateway and instance.status is not InstanceStatus.terminated:
                yield NONE_OUTLIVES.broken(f"{instance.name} is {instance.status}")
        for host in self._carrying():
            yield NO_TRACE.broken(f"{host.name} carries {host.carried}")
        for certificate in self.watch.known.get(Certificate, {}).values():
            if isinstance(certificate, Certificate) and not certificate.dropped:
                yield NO_TRACE.broken(f"the certificate of {certificate.name} is {certificate.status}")
        for name in NAMES:
            if gateways.holder(plane, self.project, name)[0] is not None:
                yield NO_TRACE.broken(f"the name {name} is taken")
        if nouns.find_target(plane.store, keys.default_gateway(self.project.id)) and self._default_is_there():
            yield NO_TRACE.broken("the project has a default gateway")
        for gateway in self.watch.known[Gateway].values():
            if certificates.of_gateway(plane, gateway.id):
                yield NO_TRACE.broken(f"{gateway.name} has certificates")

    def _default_is_there(self) -> bool:
        return self.site.plane.read.default_gateway(self.project.id) is not None
