"""A plane with passes over it, and fleets, hosts and runs for them, written as the use cases write them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

from chalicelib.domain import keys
from chalicelib.domain.fleets import Fleet, FleetBody
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import HOUR, Micros
from chalicelib.domain.jobs import Job
from chalicelib.domain.offers import Disk
from chalicelib.domain.runs import RunBody
from chalicelib.engine.reconcile import Reconciler
from chalicelib.planning.jobs.jobs import job_specs
from chalicelib.planning.kernel.plan import Effect
from chalicelib.store import nouns
from chalicelib.store.log_blobs import BlobLogs
from tests.world import nouns as b
from tests.world.plane import World
from tests.world.ports import Blobs, Books, CountingStore
from tests.world.time import Clock


@dataclass
class Engine(World):
    """Also the port of effects, which are kept in a list."""

    effects: list[Effect] = field(default_factory=list)

    @classmethod
    def in_memory(cls, *, lag: Micros = 0, **ports: Any) -> Self:
        """Its store counts reads, and its indexes lag by `lag`."""
        clock, blobs = Clock(), Blobs()
        store = CountingStore(clock.now, lag)
        defaults = {"store": store, "blobs": blobs, "logs": BlobLogs(store, blobs), "catalog": Books()}
        return cls._over(clock, **{**defaults, **ports})

    def submit(self, effect: Effect) -> None:
        self.effects.append(effect)

    def reconciler(self, **changes: Any) -> Reconciler:
        return Reconciler(
            self.plane.store,
            self.clock,
            wake=self.plane.wake,
            notify_agents=self.plane.notify_agents,
            effects=self,
            catalog=self.plane.catalog,
            backends=self.plane.backends,
            **changes,
        )

    def fleet(self, name: str, **configuration: Any) -> Fleet:
        fleet = b.fleet(name, created_at=self.at, last_processed_at=self.at)
        body = FleetBody(fleet_id=fleet.id, spec=b.fleet_spec(name=name, **configuration).model_dump_json())
        pointer = nouns.pointer(keys.fleet_name(b.PROJECT, name), fleet.id)
        self.store.commit([nouns.put(fleet), nouns.put(body), pointer])
        return fleet

    def hosts(self, count: int, name: str = "hosts", status: InstanceStatus = InstanceStatus.idle) -> list[Instance]:
        """A fleet of hosts whose agents have reported."""
        fleet = self.fleet(name, ssh_config={"hosts": [f"h{n}" for n in range(count)]})
        made = [self.host(fleet, number, status) for number in range(count)]
        self.save(self.again(fleet).with_(next_instance_num=count))
        return made

    def host(self, fleet: Fleet, number: int, status: InstanceStatus = InstanceStatus.idle) -> Instance:
        at, has = self.at, b.resources(cpus=8, gb=32, disk=Disk(size_mib=200_000), cpu_arch="x86")
        since = {"created_at": at, "last_processed_at": at, "started_at": at, "idle_since": None}
        host = b.host(number, fleet, status=status, has=has, **since)
        self.save(host, b.presence_of(host, last=at, promise=HOUR, boot="", facts=b.host_facts()))
        return host.with_(version=1)

    def run(self, name: str, *, due: bool = True, priority: int = 0, **configuration: Any) -> Job:
        """A submitted run of one job."""
        at = self.at
        spec = b.run_spec(run_name=name, **{"resources": {"cpu": "1..", "memory": "1GB.."}, **configuration})
        texts = tuple(each.model_dump_json() for each in job_specs(spec, images=b.Images()))
        run = b.run(name, priority=priority, submitted_at=at, last_processed_at=at)
        job = b.job(run, due_at=at if due else at + HOUR)
        self.save(run, RunBody(run_id=run.id, run_spec=spec.model_dump_json(), job_specs=texts), job)
        return job.with_(version=1)
