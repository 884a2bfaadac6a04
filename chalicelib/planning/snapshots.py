"""What a decision sees: everything it may know, read before it starts, `now` included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.fleets import Fleet
from chalicelib.domain.instances import Instance, Presence
from chalicelib.domain.instants import Micros
from chalicelib.domain.job_specs import JobSpec
from chalicelib.domain.jobs import Job
from chalicelib.domain.runs import Run
from chalicelib.domain.specs.fleets import FleetSpec
from chalicelib.domain.specs.runs import RunSpec

if TYPE_CHECKING:
    from chalicelib.planning.offers import OfferBook


@dataclass(frozen=True)
class FleetView:
    """A fleet with its spec and its instances that aren't terminated."""

    fleet: Fleet
    spec: FleetSpec
    instances: tuple[Instance, ...] = ()


@dataclass(frozen=True)
class QueuedJob:
    """A job that waits for a place. `run_spec` has its profile merged into the configuration."""

    job: Job
    run: Run
    spec: JobSpec
    run_spec: RunSpec


@dataclass(frozen=True)
class QueueSnapshot:
    """For `queue/<project>`: the head of the queue, in order, and every place it could go to."""

    now: Micros
    project_id: str
    queue: tuple[QueuedJob, ...]
    fleets: tuple[FleetView, ...]
    offers: OfferBook
    facts: Mapping[str, BackendFacts] = field(default_factory=dict)


@dataclass(frozen=True)
class RunSnapshot:
    """For `run/<id>`: the run, all its jobs, and the instances its live jobs are on."""

    now: Micros
    run: Run
    run_spec: RunSpec
    job_specs: tuple[JobSpec, ...]
    jobs: tuple[Job, ...]
    instances: Mapping[str, Instance] = field(default_factory=dict)
    presences: Mapping[str, Presence] = field(default_factory=dict)


@dataclass(frozen=True)
class InstanceSnapshot:
    """For `instance/<id>`, and for what came of an effect on it."""

    now: Micros
    instance: Instance
    presence: Presence | None
    fleet: FleetView  # all the fleet's instances, this one included
    jobs: tuple[Job, ...]  # those that hold a claim here
    facts: BackendFacts | None = None


@dataclass(frozen=True)
class FleetSnapshot:
    """For `fleet/<id>`."""

    now: Micros
    view: FleetView
    offers: OfferBook
    facts: Mapping[str, BackendFacts] = field(default_factory=dict)
