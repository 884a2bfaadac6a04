"""What a decision sees: everything it may know, read before it starts, including `now`.

A snapshot holds its nouns as they were read; a plan's changes are checked against them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from chalicelib.domain.certificates import Certificate
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.fleets import Fleet
from chalicelib.domain.gangs import Gang
from chalicelib.domain.gateways import Gateway
from chalicelib.domain.instances import Instance, Presence
from chalicelib.domain.instants import Micros
from chalicelib.domain.job_specs import JobSpec, spec_of
from chalicelib.domain.jobs import Job
from chalicelib.domain.noun import Noun
from chalicelib.domain.runs import Run
from chalicelib.domain.services import SERVER, Traffic
from chalicelib.domain.specs.fleets import FleetSpec
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.domain.volumes import Volume
from chalicelib.domain.workflows import Workflow
from chalicelib.planning.mounts import named_volumes
from chalicelib.planning.sites import Site

if TYPE_CHECKING:
    from chalicelib.planning.offers import OfferBook
    from chalicelib.planning.quotas import QuotaUsage
    from chalicelib.planning.unused import Sample


class Snapshot(Protocol):
    @property
    def now(self) -> Micros: ...

    @property
    def unit(self) -> str:
        """The unit being decided: `run/<id>`; empty outside a pass."""

    def nouns(self) -> Iterator[Noun]:
        """Every noun that was read."""

    def views(self) -> tuple[FleetView, ...]:
        """The fleets that were read with all their instances."""


@dataclass(frozen=True)
class FleetView:
    """A fleet with its spec and its live instances, terminating ones included. An imported one has the name by which
    this project knows it, `<project>/<name>`, and no instance that other projects' jobs may not use."""

    fleet: Fleet
    spec: FleetSpec
    instances: tuple[Instance, ...] = ()
    imported: bool = False

    def nouns(self) -> Iterator[Noun]:
        yield self.fleet
        yield from self.instances


@dataclass(frozen=True)
class NounsSnapshot:
    """A few nouns as just read, for a user's request or an agent's report."""

    now: Micros
    given: tuple[Noun, ...]
    unit: str = ""

    def nouns(self) -> Iterator[Noun]:
        yield from self.given

    def views(self) -> tuple[FleetView, ...]:
        return ()


@dataclass(frozen=True)
class QueuedJob:
    """A job waiting for capacity. `run_spec` has its profile merged into the configuration."""

    job: Job
    run: Run
    spec: JobSpec
    run_spec: RunSpec
    sites: tuple[Site, ...] | None = None  # where its volumes are; None: it has none

    alone: bool = False  # its run has no other job
    fleet_id: str | None = None  # where others of its run are that it reaches

    @cached_property
    def volumes(self) -> tuple[tuple[str, ...], ...]:
        """The names of its volumes, by mount."""
        return named_volumes(self.spec.volumes)


@dataclass(frozen=True)
class QueueSnapshot:
    """For `queue/<project>`: the head of the queue, in order, and everything its jobs could be placed on."""

    now: Micros
    project_id: str
    queue: tuple[QueuedJob, ...]
    fleets: tuple[FleetView, ...]
    offers: OfferBook
    facts: Mapping[str, BackendFacts] = field(default_factory=dict)
    gangs: Mapping[str, Gang] = field(default_factory=dict)  # by the id of the first node's job
    volumes: Mapping[str, Volume] = field(default_factory=dict)  # by name, those that its jobs name
    ahead: tuple[QueuedJob, ...] = ()  # tasks on several nodes that wait further ahead than this part of the queue
    usage: QuotaUsage | None = None  # None: the project has no quota

    @property
    def unit(self) -> str:
        return f"queue/{self.project_id}"

    def nouns(self) -> Iterator[Noun]:
        for item in (*self.ahead, *self.queue):
            yield from (item.job, item.run)
        yield from self.gangs.values()
        yield from self.volumes.values()
        if self.usage is not None:
            yield self.usage.quota
        for view in self.fleets:
            yield from view.nouns()

    def views(self) -> tuple[FleetView, ...]:
        return self.fleets


@dataclass(frozen=True)
class RunSnapshot:
    """For `run/<id>`: the run, all its jobs, and the instances its live jobs are on or have reserved."""

    now: Micros
    run: Run
    run_spec: RunSpec
    job_specs: tuple[JobSpec, ...]  # of each job or, of a service, of each replica group
    jobs: tuple[Job, ...]
    instances: Mapping[str, Instance] = field(default_factory=dict)
    presences: Mapping[str, Presence] = field(default_factory=dict)
    usage: Mapping[str, tuple[Sample, ...]] = field(default_factory=dict)  # of jobs with a `utilization_policy`
    gangs: tuple[Gang, ...] = ()  # of its newest submissions
    volumes: Mapping[str, Volume] = field(default_factory=dict)  # by id: those its jobs have
    named: Mapping[str, Volume] = field(default_factory=dict)  # by name: those that its nodes are waiting for
    imported: frozenset[str] = frozenset()  # fleets of other projects that this one may use; read if a job is on one
    doors: tuple[str, ...] = (SERVER,)  # of a service: through which its requests come
    traffic: tuple[Traffic, ...] = ()  # what each of them has seen
    former: Mapping[int, tuple[JobSpec, ...]] = field(default_factory=dict)  # of earlier deployments of a service

    def spec_of(self, job: Job) -> JobSpec | None:
        """The spec of a job: that of its own deployment."""
        return spec_of(self.former.get(job.deployment_num, self.job_specs), job)

    @property
    def unit(self) -> str:
        return f"run/{self.run.id}"

    def nouns(self) -> Iterator[Noun]:
        yield self.run
        yield from self.gangs
        yield from self.jobs
        yield from self.instances.values()
        yield from self.volumes.values()
        yield from self.named.values()

    def views(self) -> tuple[FleetView, ...]:
        return ()


@dataclass(frozen=True)
class InstanceSnapshot:
    """For `instance/<id>`, and for the outcome of an effect on it."""

    now: Micros
    instance: Instance
    presence: Presence | None
    fleet: FleetView  # all the fleet's instances, this one included
    jobs: tuple[Job, ...]  # those that hold a claim here
    facts: BackendFacts | None = None
    workflows: tuple[Workflow, ...] = ()  # of a host that is being added or removed

    @property
    def unit(self) -> str:
        return f"instance/{self.instance.id}"

    def nouns(self) -> Iterator[Noun]:
        yield from self.jobs
        yield from self.workflows
        yield from self.fleet.nouns()
        yield self.instance  # read by key, so it wins over the fleet's copy

    def views(self) -> tuple[FleetView, ...]:
        return (self.fleet,)


@dataclass(frozen=True)
class FleetSnapshot:
    """For `fleet/<id>`."""

    now: Micros
    view: FleetView
    offers: OfferBook
    facts: Mapping[str, BackendFacts] = field(default_factory=dict)

    @property
    def unit(self) -> str:
        return f"fleet/{self.view.fleet.id}"

    def nouns(self) -> Iterator[Noun]:
        yield from self.view.nouns()

    def views(self) -> tuple[FleetView, ...]:
        return (self.view,)


@dataclass(frozen=True)
class CertificateSnapshot:
    """For `certificate/<id>`, and for the outcome of an effect on it."""

    now: Micros
    certificate: Certificate
    gateway: Gateway | None

    @property
    def unit(self) -> str:
        return self.certificate.unit

    def nouns(self) -> Iterator[Noun]:
        yield self.certificate

    def views(self) -> tuple[FleetView, ...]:
        return ()


@dataclass(frozen=True)
class VolumeSnapshot:
    """For `volume/<id>`, and for the outcome of an effect on it."""

    now: Micros
    volume: Volume
    facts: BackendFacts | None = None
    jobs: Mapping[str, Job] = field(default_factory=dict)  # that it is attached for
    instances: Mapping[str, Instance] = field(default_factory=dict)  # that it is attached to
    wanted: bool = False  # a live run names it; looked up once it has been unused for long enough

    @property
    def unit(self) -> str:
        return self.volume.unit

    def nouns(self) -> Iterator[Noun]:
        yield self.volume
        yield from self.jobs.values()
        yield from self.instances.values()

    def views(self) -> tuple[FleetView, ...]:
        return ()


@dataclass(frozen=True)
class GatewaySnapshot:
    """For `gateway/<id>`."""

    now: Micros
    gateway: Gateway
    machines: Mapping[str, Instance] = field(default_factory=dict)  # by id: those that its replicas are on
    hosts: tuple[Instance, ...] = ()  # of its fleet, in order of their numbers; read while a replica has none
    fleet_exists: bool = True
    offers: OfferBook | None = None  # for machines of its own; read while a replica has none
    facts: Mapping[str, BackendFacts] = field(default_factory=dict)

    @property
    def unit(self) -> str:
        return self.gateway.unit

    def nouns(self) -> Iterator[Noun]:
        yield self.gateway
        yield from self.hosts
        yield from self.machines.values()

    def views(self) -> tuple[FleetView, ...]:
        return ()
