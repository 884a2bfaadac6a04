"""The snapshot for a pass over a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from chalicelib.domain.gangs import Gang
from chalicelib.domain.instances import Instance, Presence
from chalicelib.domain.instants import Micros
from chalicelib.domain.job_specs import JobSpec, spec_of
from chalicelib.domain.jobs import Job
from chalicelib.domain.noun import Noun
from chalicelib.domain.runs import Run
from chalicelib.domain.services import SERVER, Traffic
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.domain.volumes import Volume
from chalicelib.planning.kernel.snapshot import FleetView


class Sample(NamedTuple):
    """How busy a job's GPUs were at one moment, in percent; None: unknown."""

    at: Micros
    gpus: tuple[float | None, ...]


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
    volumes: Mapping[str, Volume] = field(default_factory=dict)  # the volumes of its jobs, by id
    named: Mapping[str, Volume] = field(default_factory=dict)  # the volumes that its nodes wait for, by name
    imported: frozenset[str] = frozenset()  # fleets of other projects that this one may use; read if a job is on one
    doors: tuple[str, ...] = (SERVER,)  # of a service: the doors that take its requests
    traffic: tuple[Traffic, ...] = ()  # what each door has reported
    former: Mapping[int, tuple[JobSpec, ...]] = field(default_factory=dict)  # of earlier deployments of a service

    def spec_of(self, job: Job) -> JobSpec | None:
        """The spec of a job in its own deployment."""
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
