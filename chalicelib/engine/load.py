"""Loading snapshots from the store: everything that a decision may use, read before it starts."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import orjson
from pydantic import ValidationError

from chalicelib.domain import keys
from chalicelib.domain.bundles import others, others_among
from chalicelib.domain.certificates import Certificate
from chalicelib.domain.closings import Closing
from chalicelib.domain.fleets import Fleet
from chalicelib.domain.gangs import Gang, gang_lead
from chalicelib.domain.gateways import Gateway
from chalicelib.domain.instances import Instance, Presence
from chalicelib.domain.instants import SECOND, Micros, sortable
from chalicelib.domain.job_specs import JobSpec, spec_of
from chalicelib.domain.jobs import LIVE_ON_INSTANCE, Assignment, Job, JobStatus
from chalicelib.domain.keys import Key
from chalicelib.domain.runs import Run
from chalicelib.domain.services import ROUTER, SERVER, Traffic, door_of
from chalicelib.domain.volumes import Volume
from chalicelib.domain.workflows import Workflow
from chalicelib.engine.ports import Backends, Catalog
from chalicelib.engine.quotas import token_usage
from chalicelib.engine.read import Reader, has_room
from chalicelib.engine.workflows import WORKFLOWS
from chalicelib.errors import Bug
from chalicelib.planning.gateways.gateway_machines import as_fleet
from chalicelib.planning.gateways.gateways import staying
from chalicelib.planning.gateways.snapshots import CertificateSnapshot, GatewaySnapshot
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.kernel.workflows import Definition, WorkflowSnapshot
from chalicelib.planning.machines.fleet import ends_instances, has_minimum
from chalicelib.planning.machines.hosts import workflow_ids
from chalicelib.planning.machines.instance import needs_fleet_size
from chalicelib.planning.machines.snapshots import FleetSnapshot, InstanceSnapshot
from chalicelib.planning.matching.market_answers import Answers
from chalicelib.planning.matching.queued_job import QueuedJob
from chalicelib.planning.placing.quotas import QuotaUsage
from chalicelib.planning.placing.snapshot import QueueSnapshot
from chalicelib.planning.projects.deletion import ClosingSnapshot
from chalicelib.planning.runs.replicas import was_removed
from chalicelib.planning.runs.snapshot import RunSnapshot, Sample
from chalicelib.planning.runs.utilization import STALE
from chalicelib.planning.volumes.mounts import may_mount, named_volumes
from chalicelib.planning.volumes.snapshot import VolumeSnapshot
from chalicelib.planning.volumes.volumes import unused_until
from chalicelib.store import nouns
from chalicelib.store.listing import all_of

log = logging.getLogger(__name__)

PAGE = 500  # waiting jobs per query; one page holds most queues
MOST_SAMPLES = 2000  # of a job in one pass; its agent takes a fifth of that in the longest window


class Loader:
    """Loads the snapshots of every kind of unit."""

    def __init__(
        self,
        read: Reader,
        catalog: Catalog,
        backends: Backends,
        workflows: Mapping[str, Definition] = WORKFLOWS,
        *,
        executions: bool = False,
    ) -> None:
        """`executions`: state machines drive the workflows."""
        self.read, self.catalog, self.backends, self.workflows = read, catalog, backends, workflows
        self._executions = executions
        self.store = read.store

    def run(self, run_id: str, now: Micros) -> RunSnapshot | None:
        run, jobs = self.read.run_and_jobs(run_id)
        if run is None:
            return None
        specs = self.read.job_specs(run.id, run.deployment_num)
        former = self._former(run, jobs)
        gangs = self._gangs(jobs) if any(spec.jobs_per_replica > 1 for spec in specs) else []
        on = [job.assignment.instance_id for job in jobs if job.assignment and job.status in LIVE_ON_INSTANCE]
        where = list(dict.fromkeys((*on, *(place for gang in gangs if gang.holds for place in gang.places))))
        found = self.read.find_many(Instance, [keys.instance(i) for i in where])
        on_shared_hosts = any(each is not None and each.project_id != run.project_id for each in found)
        shared = self.read.imported_fleets(run.project_id) if on_shared_hosts else []
        presence_record = self.read.find_many(Presence, [keys.presence(i) for i in where])
        had = {each.id for job in jobs if job.assignment and not job.finished for each in job.assignment.volumes}
        waits = any(gang.holds for gang in gangs)
        names = {name for spec in specs for each in named_volumes(spec.volumes) for name in each} if waits else set()
        doors, traffic = self._doors(run)
        return RunSnapshot(
            now=now,
            run=run,
            run_spec=self.read.run_spec(run.id, run.deployment_num),
            job_specs=specs,
            jobs=jobs,
            instances={instance.id: instance for instance in found if instance},
            presences={presence.instance_id: presence for presence in presence_record if presence},
            usage=self._usage(specs, former, jobs, now),
            gangs=tuple(gangs),
            volumes={v.id: v for v in self.read.find_many(Volume, [keys.volume(i) for i in sorted(had)]) if v},
            named=self.read.volumes_named(run.project_id, names),
            imported=frozenset(fleet.id for _, fleet in shared),
            doors=doors,
            traffic=traffic,
            former=former,
        )

    def _doors(self, run: Run) -> tuple[tuple[str, ...], tuple[Traffic, ...]]:
        """The doors that receive a service's requests, and the traffic reported by its doors. Traffic at other doors,
        from before the service was moved, is ignored."""
        if not run.scales or run.finished:
            return (), ()
        open, known = self._at(run.gateway_id) if run.gateway_id else ((SERVER,), (SERVER,))
        found = all_of(self.store, "main", keys.traffic(run.id, "").pk)
        presence_record = (record for record in found if record.key.sk in known or record.key.sk.startswith(ROUTER))
        return open, tuple(nouns.read(Traffic, record) for record in presence_record)

    def _at(self, gateway_id: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The doors of a gateway: those that take requests, and all."""
        gateway = self.read.find(Gateway, keys.gateway(gateway_id))
        if gateway is None:
            return (), ()
        parts = (gateway.running, gateway.replicas)
        open, known = (tuple(door_of(gateway_id, each.num) for each in part) for part in parts)
        return open, known

    def _former(self, run: Run, jobs: Iterable[Job]) -> dict[int, tuple[JobSpec, ...]]:
        """The specs of earlier deployments that a service's replicas still have. Replicas that were scaled down are
        left out: their number only grows."""
        newest = {job.slot: job for job in jobs} if run.scales else {}
        nums = {job.deployment_num for job in newest.values() if not was_removed(job)}
        return {num: self.read.job_specs(run.id, num) for num in nums - {run.deployment_num}}

    def _gangs(self, jobs: Iterable[Job]) -> list[Gang]:
        """The gangs of the newest submission of each replica."""
        newest: dict[tuple[str, int], int] = {}
        for job in jobs:
            replica = job.run_id, job.replica_num
            newest[replica] = max(job.submission_num, newest.get(replica, 0))
        wanted = [keys.gang(run_id, replica, num) for (run_id, replica), num in newest.items()]
        return [gang for gang in self.read.find_many(Gang, wanted) if gang]

    def _usage(
        self,
        specs: Sequence[JobSpec],
        former: Mapping[int, Sequence[JobSpec]],
        jobs: Iterable[Job],
        now: Micros,
    ) -> dict[str, tuple[Sample, ...]]:
        """The GPU utilization of jobs with a `utilization_policy`, for the time window of that policy."""
        if not any(spec.utilization_policy for each in (specs, *former.values()) for spec in each):
            return {}
        found = {}
        for job in jobs:
            if job.status is not JobStatus.running or job.running_at is None:
                continue
            spec = spec_of(former.get(job.deployment_num, specs), job)
            policy = None if spec is None else spec.utilization_policy
            if policy is None:
                continue
            window = policy.time_window * SECOND
            if now >= job.running_at + window:
                since = sortable(max(job.running_at, now - window - STALE))
                points = islice(all_of(self.store, "main", keys.metric(job.id, 0).pk, low=since), MOST_SAMPLES)
                found[job.id] = tuple(_sample(orjson.loads(point.body)) for point in points)
        return found

    def instance(self, instance_id: str, now: Micros) -> InstanceSnapshot | None:
        status, presence_record, _ = self.read.machine(instance_id)
        if status is None:
            return None
        instance = self.read.parse(Instance, status)
        presence = None if presence_record is None else self.read.parse(Presence, presence_record)
        wanted = [
            keys.job(claim.run_id, claim.replica_num, claim.job_num, claim.submission_num) for claim in instance.claims
        ]
        jobs = [job for job in self.read.find_many(Job, wanted) if job]
        view = self._gateway_of(instance) if instance.of_gateway else self._fleet_of(instance, now)
        facts = self.backends.facts(instance.project_id).get(instance.offer.backend)
        bundle = self.read.find_many(Instance, [keys.instance(each) for each in others(instance)])
        workflows = self._workflows(instance)
        bought_with = others_among(instance, bundle)
        return InstanceSnapshot(now, instance, presence, view, tuple(jobs), facts, workflows, bought_with)

    def _fleet_of(self, instance: Instance, now: Micros) -> FleetView:
        fleet = self.read.find(Fleet, keys.fleet(instance.fleet_id))
        if fleet is None:
            raise Bug(f"instance {instance.id} belongs to fleet {instance.fleet_id}, which doesn't exist")
        alone = not needs_fleet_size(instance, fleet, self.read.fleet_spec(fleet.id, fleet.spec_num), now)
        return self.read.view(fleet, [instance], alone=alone)

    def _gateway_of(self, instance: Instance) -> FleetView:
        gateway = self.read.find(Gateway, keys.gateway(instance.fleet_id))
        if gateway is None:
            raise Bug(f"instance {instance.id} belongs to gateway {instance.fleet_id}, which doesn't exist")
        return as_fleet(gateway)

    def _workflows(self, instance: Instance) -> tuple[Workflow, ...]:
        wanted = [keys.workflow(each) for each in workflow_ids(instance)]
        return tuple(each for each in self.read.find_many(Workflow, wanted) if each)

    def fleet(self, fleet_id: str, now: Micros) -> FleetSnapshot | None:
        fleet = self.read.find(Fleet, keys.fleet(fleet_id))
        if fleet is None:
            return None
        spec = self.read.fleet_spec(fleet.id, fleet.spec_num)
        each = ends_instances(fleet, spec) or has_minimum(spec)
        each = each or bool(fleet.networks or fleet.groups or fleet.to_add)
        view = self.read.view(fleet, again=lambda instance: each)
        project_id = fleet.project_id
        return FleetSnapshot(now, view, self.catalog.book(project_id), self.backends.facts(project_id))

    def closing(self, project_id: str, now: Micros) -> ClosingSnapshot | None:
        closing = self.read.find(Closing, keys.closing(project_id))
        if closing is None:
            return None
        read = self.read
        runs, fleets, volumes = read.live_runs(project_id), read.fleets(project_id), read.volumes(project_id)
        gateways = read.gateways(project_id)
        return ClosingSnapshot(now, closing, tuple(runs), tuple(fleets), tuple(volumes), tuple(gateways))

    def workflow(self, workflow_id: str, now: Micros) -> WorkflowSnapshot | None:
        workflow = self.read.find(Workflow, keys.workflow(workflow_id))
        if workflow is None:
            return None
        definition = self.workflows.get(workflow.definition)
        if definition is None:
            raise Bug(f"workflow {workflow.name} is a {workflow.definition}, which isn't declared")
        return WorkflowSnapshot(now, workflow, definition, self._executions)

    def volume(self, volume_id: str, now: Micros) -> VolumeSnapshot | None:
        volume = self.read.find(Volume, keys.volume(volume_id))
        if volume is None:
            return None
        at = volume.attachments
        jobs = self.read.find_many(Job, [keys.job(a.run_id, a.replica_num, a.job_num, a.submission_num) for a in at])
        instances = self.read.find_many(Instance, [keys.instance(i) for i in dict.fromkeys(a.instance_id for a in at)])
        return VolumeSnapshot(
            now,
            volume,
            self.backends.facts(volume.project_id).get(volume.backend),
            jobs={job.id: job for job in jobs if job},
            instances={instance.id: instance for instance in instances if instance},
            wanted=self._is_named_by_runs(volume, now),
        )

    def certificate(self, certificate_id: str, now: Micros) -> CertificateSnapshot | None:
        certificate = self.read.find(Certificate, keys.certificate(certificate_id))
        if certificate is None:
            return None
        return CertificateSnapshot(now, certificate, self.read.find(Gateway, keys.gateway(certificate.gateway_id)))

    def gateway(self, gateway_id: str, now: Micros) -> GatewaySnapshot | None:
        gateway = self.read.find(Gateway, keys.gateway(gateway_id))
        if gateway is None:
            return None
        replica_hosts = self.read.find_many(Instance, [keys.instance(each.instance_id) for each in gateway.replicas])
        machines = {each.id: each for each in replica_hosts if each}
        if gateway.ending or staying(gateway, machines) >= gateway.wanted:
            return GatewaySnapshot(now, gateway, machines)
        if not gateway.fleet:
            facts = self.backends.facts(gateway.project_id)
            offers, asked = self.catalog.book(gateway.project_id), gateway.orders.markets
            answers = self.catalog.answers(gateway.project_id, [(each.backend, each.key) for each in asked])
            return GatewaySnapshot(now, gateway, machines, offers=offers, facts=facts, answers=answers)
        pointer = nouns.find_target(self.store, keys.fleet_name(gateway.project_id, gateway.fleet))
        fleet = None if pointer is None else self.read.find(Fleet, keys.fleet(pointer[0]))
        if fleet is None or fleet.deleted:
            return GatewaySnapshot(now, gateway, machines, fleet_exists=False)
        known = [each for each in machines.values() if each.fleet_id == fleet.id]
        view = self.read.view(fleet, known, again=lambda instance: instance.gateway is None)
        hosts = sorted(view.instances, key=lambda each: each.num)
        return GatewaySnapshot(now, gateway, machines, tuple(hosts))

    def _is_named_by_runs(self, volume: Volume, now: Micros) -> bool:
        """Whether a live run names a volume that would otherwise be deleted as unused. The runs are read only then."""
        until = unused_until(volume)
        if until is None or until > now:
            return False
        specs = (self.read.run_spec(run.id, run.deployment_num) for run in self.read.live_runs(volume.project_id))
        return any(may_mount(spec.configuration.volumes, volume.name) for spec in specs)

    # --- the queue ---------------------------------------------------------------------------------------------------

    def has_waiting_jobs(self, project_id: str, hinted: Sequence[str]) -> bool:
        """Whether jobs may be waiting; if not, the fleets needn't be read at all."""
        return bool(hinted or self.store.query("gsi1", keys.queue_of(project_id), limit=1).records)

    def queue_page(self, project_id: str, cursor: str | None, limit: int) -> tuple[list[Job], str | None]:
        """The next waiting jobs in order, each in its current state."""
        page = self.store.query("gsi1", keys.queue_of(project_id), limit=limit, cursor=cursor)
        return self._waiting(record.key for record in page.records), page.cursor

    def queued_of(self, run_ids: Iterable[str], project_id: str) -> list[Job]:
        """The waiting jobs of these runs, even if the queue's index doesn't show them yet."""
        jobs = [job for run_id in run_ids for job in self.read.jobs(run_id)]
        return sorted((job for job in jobs if _waits(job) and job.project_id == project_id), key=order)

    def queue(
        self,
        project_id: str,
        jobs: Sequence[Job],
        fleets: tuple[FleetView, ...],
        now: Micros,
        ahead: Sequence[Job] = (),
        usage: QuotaUsage | None = None,
    ) -> QueueSnapshot:
        """`ahead`: first nodes that wait further ahead in the queue."""
        queued, before = self._all_queued(jobs), self._all_queued(ahead)
        gangs = self._gangs(item.job for item in (*queued, *before) if item.spec.jobs_per_replica > 1)
        return QueueSnapshot(
            now,
            project_id,
            queue=tuple(queued),
            fleets=fleets,
            offers=self.catalog.book(project_id),
            facts=self.backends.facts(project_id),
            gangs={gang_lead(gang): gang for gang in gangs},
            ahead=tuple(before),
            answers=self._answers(project_id, queued),
            usage=usage,
            tokens=token_usage(self.read, (item.run.limit for item in queued if item.run.limit is not None), now),
            volumes=self.read.volumes_named(
                project_id, {name for item in (*queued, *before) for each in item.volumes for name in each}
            ),
        )

    def _answers(self, project_id: str, queued: Sequence[QueuedJob]) -> Answers:
        queries = [(query.backend, query.key) for item in queued for query in item.job.markets]
        return self.catalog.answers(project_id, queries) if queries else {}

    def _all_queued(self, jobs: Sequence[Job]) -> list[QueuedJob]:
        runs = dict.fromkeys(job.run_id for job in jobs)
        found = {run.id: run for run in self.read.find_many(Run, [keys.run(run_id) for run_id in runs]) if run}
        queued = []
        for job in jobs:
            try:
                item = self._queued(job, found.get(job.run_id))
                queued += [item, *self._other_nodes(item)]
            except (Bug, ValidationError):  # one broken job must not stop the queue behind it
                log.exception("job %s of run %s can't be read and stays in the queue", job.id, job.run_id)
        return queued

    def _other_nodes(self, lead: QueuedJob) -> list[QueuedJob]:
        """The other nodes of an attempt that have been written; they aren't in the queue themselves."""
        first = lead.job
        wanted = [
            keys.job(first.run_id, first.replica_num, num, first.submission_num)
            for num in range(1, lead.spec.jobs_per_replica)
        ]
        return [self._queued(job, lead.run) for job in self.read.find_many(Job, wanted) if job]

    def _queued(self, job: Job, run: Run | None) -> QueuedJob:
        if run is None:
            raise Bug(f"job {job.id} is waiting, but its run {job.run_id} doesn't exist")
        specs, spec = self.read.job_specs(job.run_id, job.deployment_num), self.read.job_spec(job)
        run_spec = self.read.run_spec(job.run_id, job.deployment_num)
        beside = self._beside(run) if spec.networked else None
        return QueuedJob(job, run, spec, run_spec, alone=len(specs) == 1 and not run.scales, beside=beside)

    def _beside(self, run: Run) -> Assignment | None:
        """The place of one of the run's jobs that have one already."""
        _, jobs = self.read.run_and_jobs(run.id)
        live = (job for job in jobs if not job.finished and job.status is not JobStatus.terminating)
        return next((job.assignment for job in live if job.assignment is not None), None)

    def still_waiting(self, jobs: Iterable[Job]) -> list[Job]:
        """These jobs in their current state, without those that were placed or have ended meanwhile."""
        return self._waiting(nouns.key_of(job) for job in jobs)

    def _waiting(self, found: Iterable[Key]) -> list[Job]:
        return [job for job in self.read.find_many(Job, list(found)) if job and _waits(job)]


def _sample(point: Mapping[str, Any]) -> Sample:
    return Sample(point["at"], tuple(gpu.get("util_percent") for gpu in point["gpus"]))


def order(job: Job) -> str:
    """A job's sort key in its queue."""
    return keys.queue_sort(job.priority, job.submitted_at, job.id)


def room(fleets: Iterable[FleetView]) -> int | None:
    """An upper bound of the number of jobs that could be placed: free blocks plus instances still to be bought. None:
    no bound. It only limits how far the queue is read; placement is decided elsewhere."""
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
    return job.queued
