"""Snapshots out of the store: everything a decision may know, read before it starts.

An index may lag, a read by key doesn't. So an index is used to find names only; whatever a decision may change is read
again by its key, and what a hint names is looked at even when no index shows it yet. A stale read that slips through
costs a conflict at commit, never a wrong write.

Two caches keep a look cheap. Specs are immutable and are parsed once. Status items are parsed once a version: a noun is
frozen, so one that reads byte for byte as before is the one we have.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import orjson
from pydantic import ValidationError

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.fleets import Fleet, FleetBody
from chalicelib.domain.instances import Instance, InstanceStatus, Presence, instance_id
from chalicelib.domain.instants import Micros
from chalicelib.domain.job_specs import JobSpec
from chalicelib.domain.jobs import LIVE_ON_INSTANCE, Job, JobStatus
from chalicelib.domain.noun import Noun
from chalicelib.domain.runs import Run, RunBody
from chalicelib.domain.specs.fleets import FleetSpec
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.engine.ports import Catalog
from chalicelib.errors import Bug
from chalicelib.planning.combine import merged_run
from chalicelib.planning.snapshots import (
    FleetSnapshot,
    FleetView,
    InstanceSnapshot,
    QueuedJob,
    QueueSnapshot,
    RunSnapshot,
)
from chalicelib.store import keys, nouns
from chalicelib.store.kept import Lru
from chalicelib.store.port import Index, Key, Record, Store

N = TypeVar("N", bound=Noun)
V = TypeVar("V")

log = logging.getLogger(__name__)

YOUNG = 32  # a fleet's newest instances, looked for by key too
PAGE = 500  # records a query; one page holds most fleets and queues


class Reader:
    """Nouns, parsed once, and the snapshot of one instance: all that an effect needs."""

    def __init__(self, store: Store, facts: Mapping[str, BackendFacts]) -> None:
        self.store, self.facts = store, facts
        self._fleet_specs: Lru[FleetSpec] = Lru(128)
        self._parsed: Lru[tuple[int, bytes, Noun]] = Lru(4096)
        self._gone: Lru[bool] = Lru(4096)  # terminated instances: they never come back, so they aren't asked for again

    def instance(self, instance_id: str, now: Micros) -> InstanceSnapshot | None:
        instance, presence = self._find_both(instance_id)
        if instance is None:
            return None
        wanted = [
            keys.job(claim.run_id, claim.replica_num, claim.job_num, claim.submission_num) for claim in instance.claims
        ]
        jobs = [job for job in self._find_many(Job, wanted) if job]
        # Only a machine that is bought can be one too many; a host of somebody else's is judged by itself.
        view = self.fleet_view(instance.fleet_id, [instance], alone=not instance.bought)
        if view is None:
            raise Bug(f"instance {instance.id} belongs to fleet {instance.fleet_id}, which isn't there")
        return InstanceSnapshot(now, instance, presence, view, tuple(jobs), self.facts.get(instance.offer.backend))

    def fleet_view(
        self, fleet_id: str, known: Sequence[Instance] = (), *, alone: bool = False, fresh: bool = False
    ) -> FleetView | None:
        """A fleet with its live instances. `known` were read by key just now and win over the index; `alone` asks for
        no others; `fresh` reads them all by key."""
        fleet = self._find(Fleet, keys.fleet(fleet_id))
        return None if fleet is None else self._view(fleet, known, alone=alone, fresh=fresh)

    def fleet_spec(self, fleet_id: str, spec_num: int) -> FleetSpec:
        def parse() -> FleetSpec:
            body = nouns.find(self.store, FleetBody, keys.fleet_body(fleet_id, spec_num))
            if body is None:
                raise Bug(f"fleet {fleet_id} has no spec number {spec_num}")
            return FleetSpec.model_validate_json(body.spec)

        return self._fleet_specs.get((fleet_id, spec_num), parse)

    def _view(self, fleet: Fleet, known: Sequence[Instance], *, alone: bool = False, fresh: bool = False) -> FleetView:
        live = {} if alone else self._listed(fleet, fresh)
        live.update((instance.id, instance) for instance in known)
        ordered = sorted(
            (i for i in live.values() if i.status is not InstanceStatus.terminated), key=lambda i: (i.num, i.epoch)
        )
        return FleetView(fleet, self.fleet_spec(fleet.id, fleet.spec_num), tuple(ordered))

    def _listed(self, fleet: Fleet, fresh: bool) -> dict[str, Instance]:
        """The fleet's instances: those the index shows, read again where a decision may change them, and the youngest,
        which it may not show yet, by the ids that follow from their numbers."""
        listed = [self._parse(Instance, record) for record in self._all("gsi1", keys.instances_of(fleet.id))]
        shown = {i.id for i in listed}
        young = range(max(0, fleet.next_instance_num - YOUNG), fleet.next_instance_num)
        hidden = [i for num in young if (i := instance_id(fleet.id, num)) not in shown and not self._gone.peek(i)]
        again = [i.id for i in listed if fresh or has_room(i)]
        current = {i.id: i for i in self._find_many(Instance, [keys.instance(i) for i in (*again, *hidden)]) if i}
        for found in current.values():
            if found.status is InstanceStatus.terminated:
                self._gone.keep(found.id, True)
        return {i.id: i for i in listed} | current

    def _find_both(self, instance_id: str) -> tuple[Instance | None, Presence | None]:
        status, heard = self.store.get_many([keys.instance(instance_id), keys.presence(instance_id)])
        return (
            None if status is None else self._parse(Instance, status),
            None if heard is None else self._parse(Presence, heard),
        )

    def _find(self, kind: type[N], key: Key) -> N | None:
        record = self.store.get(key)
        return None if record is None else self._parse(kind, record)

    def _find_many(self, kind: type[N], found: Sequence[Key]) -> list[N | None]:
        if not found:
            return []
        return [None if record is None else self._parse(kind, record) for record in self.store.get_many(found)]

    def _all(self, index: Index, partition: str, *, low: str = "", high: str = "") -> Iterable[Record]:
        cursor: str | None = None
        while True:
            page = self.store.query(index, partition, low=low, high=high, limit=PAGE, cursor=cursor)
            yield from page.records
            if page.cursor is None:
                return
            cursor = page.cursor

    def _parse(self, kind: type[N], record: Record) -> N:
        kept = self._parsed.peek(record.key)
        if kept is not None and kept[0] == record.version and kept[1] == record.body and isinstance(kept[2], kind):
            return kept[2]
        noun = nouns.read(kind, record)
        self._parsed.keep(record.key, (record.version, record.body, noun))
        return noun


class Loader(Reader):
    """The snapshots of every kind of unit."""

    def __init__(self, store: Store, catalog: Catalog, facts: Mapping[str, BackendFacts]) -> None:
        super().__init__(store, facts)
        self.catalog = catalog
        self._run_specs: Lru[tuple[RunSpec, tuple[JobSpec, ...]]] = Lru(512)

    def run(self, run_id: str, now: Micros) -> RunSnapshot | None:
        run: Run | None = None
        jobs: list[Job] = []
        for record in self._all("main", f"run/{run_id}", low="job/"):  # bodies sort before jobs: not read
            if record.key.sk == keys.STATUS:
                run = self._parse(Run, record)
            else:
                jobs.append(self._parse(Job, record))
        if run is None:
            return None
        run_spec, job_specs = self.run_spec(run.id, run.deployment_num)
        where = list(
            dict.fromkeys(j.assignment.instance_id for j in jobs if j.assignment and j.status in LIVE_ON_INSTANCE)
        )
        found = self._find_many(Instance, [keys.instance(i) for i in where])
        heard = self._find_many(Presence, [keys.presence(i) for i in where])
        return RunSnapshot(
            now=now,
            run=run,
            run_spec=run_spec,
            job_specs=job_specs,
            jobs=tuple(jobs),
            instances={instance.id: instance for instance in found if instance},
            presences={presence.instance_id: presence for presence in heard if presence},
        )

    def fleet(self, fleet_id: str, now: Micros) -> FleetSnapshot | None:
        view = self.fleet_view(fleet_id, fresh=True)
        if view is None:
            return None
        return FleetSnapshot(now, view, self.catalog.book(view.fleet.project_id), self.facts)

    # --- the queue ---------------------------------------------------------------------------------------------------

    def fleet_views(self, project_id: str, hinted: Iterable[str] = ()) -> tuple[FleetView, ...]:
        """Every fleet of a project. Hinted instances and those with a free place are read by key."""
        known = [found for found in self._find_many(Instance, [keys.instance(i) for i in hinted]) if found]
        named = self._all("main", f"project/{project_id}", low="fleet-name/", high="fleet-name0")  # no index: no lag
        listed = [keys.fleet(orjson.loads(record.body)["id"]) for record in named]
        fleets = [fleet for fleet in self._find_many(Fleet, listed) if fleet and not fleet.deleted]
        return tuple(self._view(fleet, [i for i in known if i.fleet_id == fleet.id]) for fleet in fleets)

    def queue_page(self, project_id: str, cursor: str | None, limit: int) -> tuple[list[Job], str | None]:
        """The next waiting jobs in order, each as it is now."""
        page = self.store.query("gsi1", keys.queue_of(project_id), limit=limit, cursor=cursor)
        return self._waiting(record.key for record in page.records), page.cursor

    def queued_of(self, run_ids: Iterable[str], project_id: str) -> list[Job]:
        """The waiting jobs of these runs, whatever the queue index knows of them."""
        jobs = [
            self._parse(Job, record)
            for run in run_ids
            for record in self._all("main", f"run/{run}", low="job/", high="job0")
        ]
        return sorted((job for job in jobs if _waits(job) and job.project_id == project_id), key=order)

    def queue(self, project_id: str, jobs: Sequence[Job], fleets: tuple[FleetView, ...], now: Micros) -> QueueSnapshot:
        runs = dict.fromkeys(job.run_id for job in jobs)
        found = {run.id: run for run in self._find_many(Run, [keys.run(run_id) for run_id in runs]) if run}
        queued = []
        for job in jobs:
            try:
                queued.append(self._queued(job, found.get(job.run_id)))
            except (Bug, ValidationError):  # one broken job must not stop the queue behind it
                log.exception("job %s of run %s can't be read and stays in the queue", job.id, job.run_id)
        return QueueSnapshot(now, project_id, tuple(queued), fleets, self.catalog.book(project_id), self.facts)

    def _queued(self, job: Job, run: Run | None) -> QueuedJob:
        if run is None:
            raise Bug(f"job {job.id} waits for a place, but its run {job.run_id} isn't there")
        run_spec, job_specs = self.run_spec(job.run_id, job.deployment_num)
        spec = next((s for s in job_specs if (s.replica_num, s.job_num) == job.slot), None)
        if spec is None:
            raise Bug(f"job {job.id} has no spec for replica {job.replica_num}, node {job.job_num}")
        return QueuedJob(job, run, spec, run_spec)

    def still_waiting(self, jobs: Iterable[Job]) -> list[Job]:
        """These jobs as they are now, without those that found a place or an end meanwhile."""
        return self._waiting(nouns.key_of(job) for job in jobs)

    def run_spec(self, run_id: str, deployment_num: int) -> tuple[RunSpec, tuple[JobSpec, ...]]:
        """The run's spec with its profile merged in, and the spec of each job."""

        def parse() -> tuple[RunSpec, tuple[JobSpec, ...]]:
            body = nouns.find(self.store, RunBody, keys.run_body(run_id, deployment_num))
            if body is None:
                raise Bug(f"run {run_id} has no spec at deployment {deployment_num}")
            spec = RunSpec.model_validate_json(body.run_spec)
            return spec.with_(configuration=merged_run(spec)), tuple(
                JobSpec.model_validate_json(text) for text in body.job_specs
            )

        return self._run_specs.get((run_id, deployment_num), parse)

    def _waiting(self, found: Iterable[Key]) -> list[Job]:
        return [job for job in self._find_many(Job, list(found)) if job and _waits(job)]


def order(job: Job) -> str:
    """Where a job stands in its queue."""
    return keys.queue_sort(job.priority, job.submitted_at, job.id)


def has_room(instance: Instance) -> bool:
    live = instance.status not in (InstanceStatus.terminating, InstanceStatus.terminated)
    return live and instance.free_blocks > 0 and not instance.unreachable


def room(fleets: Iterable[FleetView]) -> int | None:
    """How many more jobs could find a place at the very most: free blocks plus instances still to be bought. None: no
    bound. Only an estimate of how far to read; what fits where is decided elsewhere."""
    total = 0
    for view in fleets:
        total += sum(instance.free_blocks for instance in view.instances if has_room(instance))
        nodes = view.spec.configuration.nodes
        if nodes is None:
            continue
        if nodes.max is None:
            return None
        total += max(0, nodes.max - len(view.instances))
    return total


def _waits(job: Job) -> bool:
    return job.status is JobStatus.submitted and job.assignment is None
