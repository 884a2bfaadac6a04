"""One pass over a run: the nouns so far, and the draft of the resulting step."""

from __future__ import annotations

from functools import cached_property

from chalicelib.domain.instances import Instance, Presence
from chalicelib.domain.instants import Micros
from chalicelib.domain.job_specs import JobSpec
from chalicelib.domain.jobs import Job
from chalicelib.planning.jobs.replica_groups import first_replicas
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.runs.snapshot import RunSnapshot


class RunPass:
    def __init__(self, snapshot: RunSnapshot) -> None:
        self.snapshot, self.now, self.run = snapshot, snapshot.now, snapshot.run
        self.draft = Draft(snapshot.now, snapshot.run.ended_by)  # consequences of a stop are attributed to its user
        self.jobs = {job.id: job for job in snapshot.jobs}
        self.instances = dict(snapshot.instances)
        self.deadlines: list[Micros] = []

    @cached_property
    def starting(self) -> dict[tuple[int, int], JobSpec]:
        """The specs of the jobs that a start of the run submits, by slot."""
        run, specs = self.snapshot.run, self.snapshot.job_specs
        starting = first_replicas(specs, run.scales) if run.scales else specs
        return {(spec.replica_num, spec.job_num): spec for spec in starting}

    def spec_of(self, job: Job) -> JobSpec | None:
        return self.snapshot.spec_of(job) if self.run.scales else self.starting.get(job.slot)

    def latest(self) -> list[Job]:
        """The newest submission of every node of every replica."""
        found: dict[tuple[int, int], Job] = {}
        for job in self.jobs.values():
            if job.slot not in found or found[job.slot].submission_num < job.submission_num:
                found[job.slot] = job
        return [found[slot] for slot in sorted(found)]

    def where(self, job: Job) -> tuple[Instance | None, Presence | None]:
        if job.assignment is None:
            return None, None
        instance_id = job.assignment.instance_id
        return self.instances.get(instance_id), self.snapshot.presences.get(instance_id)

    def check_by(self, deadline: Micros | None) -> None:
        """Have the next pass run by this deadline, if there is one."""
        if deadline is not None:
            self.deadlines.append(deadline)

    def update_job(self, job: Job) -> None:
        self.jobs[job.id] = job
        self.draft.save(job)
