"""A job that waits for capacity."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from chalicelib.domain.job_specs import JobSpec
from chalicelib.domain.jobs import Assignment, Job
from chalicelib.domain.runs import Run
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.planning.matching.requirements import JobRequirements, requirements_of
from chalicelib.planning.volumes.mounts import named_volumes
from chalicelib.planning.volumes.sites import Site


@dataclass(frozen=True)
class QueuedJob:
    """A job waiting for capacity. `run_spec` has its profile merged into the configuration."""

    job: Job
    run: Run
    spec: JobSpec
    run_spec: RunSpec
    sites: tuple[Site, ...] | None = None  # where its volumes are; None: it has none

    alone: bool = False  # its run has no other job
    beside: Assignment | None = None  # the place of another job of its run, if they reach each other

    @cached_property
    def volumes(self) -> tuple[tuple[str, ...], ...]:
        """The names of its volumes, by mount."""
        return named_volumes(self.spec.volumes)

    @cached_property
    def requirements(self) -> JobRequirements:
        """Its requirements, including the sites of its volumes. The fleet of its run's other jobs is required only if
        they reach each other: otherwise a later replica may go wherever the first could."""
        requirements = requirements_of(self.run_spec, self.spec, self.beside)
        return requirements if self.sites is None else requirements.at(self.sites)
