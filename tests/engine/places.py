"""A small plane for the engine's tests: a store in memory, a clock set by hand, hosts and runs written as the use cases
write them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.fleets import Fleet, FleetBody
from chalicelib.domain.ids import derive
from chalicelib.domain.instances import HostFacts, Instance, InstanceStatus, Presence, instance_id
from chalicelib.domain.instants import HOUR, SECOND, Micros
from chalicelib.domain.jobs import Job
from chalicelib.domain.offers import Disk, InstanceType, Offer, Resources
from chalicelib.domain.runs import Run, RunBody
from chalicelib.domain.specs.fleets import FleetSpec
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.engine.reconcile import Reconciler
from chalicelib.planning.jobs import job_specs
from chalicelib.planning.offers import OfferBook
from chalicelib.planning.plan import Effect
from chalicelib.store import keys, nouns
from chalicelib.store.memory import MemoryStore
from chalicelib.store.port import Index, Key, Page, Record
from chalicelib.usecases.context import Images

PROJECT = derive("test", "project", 1)
FACTS = HostFacts(cpus=8, memory_mib=32_768, disk_mib=200_000, arch="x86", hostname="host")


class Counting(MemoryStore):
    """Counts what is read."""

    def __init__(self, place: Place, max_lag: Micros = 0) -> None:
        super().__init__(clock=place.now, rng=random.Random(1), max_lag=max_lag)
        self.read = 0
        self.keys: list[Key] = []

    def get(self, key: Key) -> Record | None:
        self.read += 1
        self.keys.append(key)
        return super().get(key)

    def query(
        self,
        index: Index,
        partition: str,
        *,
        low: str = "",
        high: str = "",
        limit: int = 100,
        cursor: str | None = None,
        reverse: bool = False,
    ) -> Page:
        page = super().query(index, partition, low=low, high=high, limit=limit, cursor=cursor, reverse=reverse)
        self.read += len(page.records)
        return page


class Books:
    def __init__(self, offers: Iterable[Offer] = ()) -> None:
        self._book = OfferBook(offers)

    def book(self, project_id: str) -> OfferBook:
        return self._book


@dataclass
class Place:
    at: Micros = 1_800_000_000 * SECOND
    lag: Micros = 0
    offers: Sequence[Offer] = ()
    facts: dict[str, BackendFacts] = field(default_factory=dict)
    woken: list[str] = field(default_factory=list)
    rung: list[str] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = Counting(self, self.lag)

    def now(self) -> Micros:
        return self.at

    def submit(self, effect: Effect) -> None:
        self.effects.append(effect)

    def reconciler(self, **changes: object) -> Reconciler:
        return Reconciler(
            self.store,
            self,
            wake=self.woken.extend,
            news=self.rung.extend,
            effects=self,
            catalog=Books(self.offers),
            facts=self.facts,
            **changes,  # type: ignore[arg-type]
        )

    def fleet(self, name: str, **configuration: object) -> Fleet:
        fleet = Fleet(
            id=derive(PROJECT, "fleet", name),
            project_id=PROJECT,
            name=name,
            created_at=self.at,
            last_processed_at=self.at,
        )
        spec = FleetSpec.model_validate({"configuration": {"type": "fleet", "name": name, **configuration}})
        body = FleetBody(fleet_id=fleet.id, spec=spec.model_dump_json())
        pointer = nouns.pointer(keys.fleet_name(PROJECT, name), fleet.id)
        self.store.commit([nouns.put(fleet), nouns.put(body), pointer])
        return fleet

    def hosts(self, count: int, name: str = "hosts", status: InstanceStatus = InstanceStatus.idle) -> list[Instance]:
        """A fleet of hosts whose agents have been heard."""
        fleet = self.fleet(name, ssh_config={"hosts": [f"h{n}" for n in range(count)]})
        made = [self.host(fleet, number, status) for number in range(count)]
        current = nouns.find(self.store, Fleet, keys.fleet(fleet.id))
        assert current is not None
        self.store.commit([nouns.put(current.with_(next_instance_num=count))])
        return made

    def host(self, fleet: Fleet, number: int, status: InstanceStatus = InstanceStatus.idle) -> Instance:
        kind = InstanceType(
            name="instance",
            resources=Resources(cpus=8, memory_mib=32_768, disk=Disk(size_mib=200_000), cpu_arch="x86"),
        )
        host = Instance(
            id=instance_id(fleet.id, number),
            project_id=PROJECT,
            fleet_id=fleet.id,
            fleet_name=fleet.name,
            num=number,
            name=f"{fleet.name}-{number}",
            status=status,
            offer=Offer(backend="remote", instance=kind, region="remote", price=0.0),
            created_at=self.at,
            last_processed_at=self.at,
            started_at=self.at,
        )
        heard = Presence(
            instance_id=host.id, project_id=PROJECT, last_seen=self.at, seen_until=self.at + HOUR, facts=FACTS
        )
        self.store.commit([nouns.put(host), nouns.put(heard)])
        return host.with_(version=1)

    def run(self, name: str, *, due: bool = True, priority: int = 0, **configuration: object) -> Job:
        """A submitted run of one job."""
        run_id = derive(PROJECT, "run", name)
        spec = RunSpec.model_validate(
            {
                "run_name": name,
                "configuration": {
                    "type": "task",
                    "commands": ["true"],
                    "resources": {"cpu": "1..", "memory": "1GB.."},
                    **configuration,
                },
            }
        )
        texts = tuple(each.model_dump_json() for each in job_specs(spec, images=Images()))
        run = Run(
            id=run_id,
            project_id=PROJECT,
            user_id="user",
            user_name="user",
            name=name,
            priority=priority,
            submitted_at=self.at,
            last_processed_at=self.at,
        )
        job = Job(
            id=derive(run_id, "job", 0, 0, 0),
            run_id=run_id,
            run_name=name,
            project_id=PROJECT,
            priority=priority,
            submitted_at=self.at,
            last_processed_at=self.at,
            due_at=self.at if due else self.at + HOUR,
        )
        body = RunBody(run_id=run_id, run_spec=spec.model_dump_json(), job_specs=texts)
        self.store.commit([nouns.put(noun) for noun in (run, body, job)])
        return job.with_(version=1)

    def current(self, job: Job) -> Job:
        found = nouns.find(self.store, Job, nouns.key_of(job))
        assert found is not None
        return found

    def instance(self, instance: Instance) -> Instance:
        found = nouns.find(self.store, Instance, keys.instance(instance.id))
        assert found is not None
        return found
