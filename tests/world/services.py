"""The small world with services in it: versions of their specs, a door that counts, and applications that get ready."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from chalicelib.domain.instances import Instance
from chalicelib.domain.job_specs import JobSpec, spec_of
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.runs import Run
from chalicelib.domain.services import BUCKET, SERVER, Bucket, Traffic
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.planning.jobs.jobs import job_specs
from chalicelib.planning.jobs.replica_groups import first_replicas, first_scales
from chalicelib.planning.kernel.plan import Plan
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.runs.run import decide_run
from chalicelib.planning.runs.snapshot import RunSnapshot
from tests.world import nouns as b
from tests.world.decisions import SmallWorld


def service(**config: Any) -> RunSpec:
    config = {"type": "service", "port": 8000, **({} if "groups" in config else {"commands": ["serve"]}), **config}
    return RunSpec.model_validate({"run_name": "chat", "configuration": config})


@dataclass
class ServiceWorld(SmallWorld):
    versions: dict[str, list[RunSpec]] = field(default_factory=dict)  # of each service, the newest last
    traffic: dict[str, Traffic] = field(default_factory=dict)
    broken: dict[tuple[str, int], int] = field(default_factory=dict)  # versions whose application exits at once: how
    stuck: set[tuple[str, int]] = field(default_factory=set)  # versions whose application never gets ready

    # --- making it ----------------------------------------------------------------------------------------------------

    def serve(self, **config: Any) -> Run:
        spec = service(**config)
        scales = first_scales(spec.configuration)
        begins = {"scales": scales, "submitted_at": self.now, "last_processed_at": self.now, "due_at": self.now}
        run = b.run(f"run-{len(self.runs)}", **begins)
        if not any(scale.desired for scale in scales):
            run = run.with_(status="pending")
        self.runs[run.id], self.specs[run.id], self.shapes[run.id] = run, spec, (0, 1)
        self.versions[run.id] = [spec]
        for each in first_replicas(self._derived(spec), scales):
            job = b.job(run, replica=each.replica_num, replica_group=each.replica_group, due_at=self.now)
            self.jobs[job.id] = job
        return run

    def apply(self, run: Run, **config: Any) -> None:
        """What the use case does: another version of the spec."""
        run, spec = self.runs[run.id], service(**config)
        self.specs[run.id] = spec
        self.versions[run.id].append(spec)
        self._save(run.with_(deployment_num=run.deployment_num + 1, due_at=self.now))

    @staticmethod
    def _derived(spec: RunSpec) -> tuple[JobSpec, ...]:
        return job_specs(spec, images=b.Images())

    def job_specs(self, run_id: str) -> tuple[JobSpec, ...]:
        return self._derived(self.specs[run_id]) if run_id in self.versions else super().job_specs(run_id)

    def spec_of(self, job: Job) -> JobSpec:
        if job.run_id not in self.versions:
            return super().spec_of(job)
        found = spec_of(self._derived(self.versions[job.run_id][job.deployment_num]), job)
        assert found is not None, f"{job.name} has no spec"
        return found

    # --- deciding -----------------------------------------------------------------------------------------------------

    def pass_run(self, run: Run) -> None:
        if run.id not in self.versions:
            super().pass_run(run)
            return
        snapshot = self.look_at(run)
        plan = decide_run(snapshot)
        self._check_guarded(snapshot, plan)
        self.commit(plan, snapshot)

    def _check_guarded(self, snapshot: RunSnapshot, plan: Plan) -> None:
        """Replicas come and are drained only with a write of the run, which fails if the run has changed meanwhile."""
        draining = {job.id: job.draining_at for job in snapshot.jobs}
        saved = [noun for step in plan.steps for noun in step.saves]
        moved = [n.name for n in saved if isinstance(n, Job) and draining.get(n.id, -1) != n.draining_at]
        assert not moved or any(isinstance(noun, Run) for noun in saved), f"{moved} without their run"

    def look_at(self, run: Run) -> RunSnapshot:
        jobs = tuple(job for job in self.jobs.values() if job.run_id == run.id)
        older = {job.deployment_num for job in jobs} - {run.deployment_num}
        return RunSnapshot(
            self.now,
            run,
            self.specs[run.id],
            self.job_specs(run.id),
            jobs,
            self.instances,
            self.presences,
            former={num: self._derived(self.versions[run.id][num]) for num in older},
            traffic=tuple(each for each in self.traffic.values() if each.run_id == run.id),
        )

    # --- the application ----------------------------------------------------------------------------------------------

    def _task(self, draft: Draft, job: Job, instance: Instance, exits: int | None) -> Instance:
        if job.run_id in self.versions and job.status == JobStatus.running:
            version = job.run_id, job.deployment_num
            if version in self.broken:
                exits = self.broken[version]
            elif exits is None and job.ready_at is None and version not in self.stuck:
                draft.save(job.with_(ready_at=self.now))
        return super()._task(draft, job, instance, exits)

    def serving(self, run: Run) -> list[Job]:
        """Who gets requests."""
        running = (job for job in self.jobs.values() if job.run_id == run.id and job.status == JobStatus.running)
        return [job for job in running if job.ready_at is not None and job.draining_at is None]

    def live(self, run: Run) -> list[Job]:
        return [job for job in self.jobs.values() if job.run_id == run.id and not job.finished]

    # --- the door -----------------------------------------------------------------------------------------------------

    def report(self, run: Run, requests: int = 0, busy: float = 0.0, held: int = 0) -> None:
        """One bucket, which ends now; draining replicas are let go unless requests are under way."""
        known = self.traffic.get(run.id) or Traffic(run_id=run.id, door=SERVER, at=self.now)
        bucket = Bucket(at=self.now - BUCKET, requests=requests, busy=busy + held)
        draining = [job.id for job in self.live(run) if job.draining_at is not None]
        self.traffic[run.id] = known.with_(
            at=self.now,
            quiet=not (requests or busy or held),
            held=held,
            buckets=(*known.buckets[-29:], bucket),
            let_go=() if busy else tuple(draining),
        )

    # --- rounds -------------------------------------------------------------------------------------------------------

    def round(self, run: Run, times: int = 1) -> None:
        """An ordinary moment: the queue, the agents, the run."""
        for _ in range(times):
            self.pass_queue()
            for instance_id in list(self.instances):
                self.pass_instance(instance_id)
            for instance_id in self.alive():
                self.sync(instance_id)
            self.pass_run(self.runs[run.id])

    def sure(self, run: Run) -> Plan:
        """What another look would do."""
        return decide_run(self.look_at(self.runs[run.id]))
