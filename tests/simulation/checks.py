"""What must hold at every moment (SAFETY) and in the end (LIVENESS), checked against what really is: the table, the
cloud, and the tasks on the hosts."""

from __future__ import annotations

from collections.abc import Sequence

from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.jobs import LIVE_ON_INSTANCE, Job, JobStatus
from chalicelib.domain.reasons import JobReason
from chalicelib.domain.runs import Run, RunStatus
from chalicelib.machines.instance import INSTANCE
from chalicelib.machines.job import JOB
from chalicelib.machines.run import RUN
from chalicelib.machines.table import Machine
from chalicelib.planning.lint import reaches
from chalicelib.store import keys, nouns
from chalicelib.store.port import Change, Put, Record
from tests.simulation.hosts import Hosts
from tests.simulation.plane import Site
from tests.simulation.world import Violation


class Watch:
    """Sees every commit as it happens."""

    def __init__(self, site: Site, hosts: Hosts) -> None:
        self.site, self.hosts = site, hosts
        self.runs: dict[str, Run] = {}
        self.jobs: dict[str, Job] = {}
        self.instances: dict[str, Instance] = {}
        self.most: dict[str, int | None] = {}  # instances that a fleet may have
        site.store.after = self.committed

    def committed(self, changes: Sequence[Change]) -> None:
        touched: list[Job | Instance] = []
        for change in changes:
            if not isinstance(change, Put):
                continue
            record = change.record
            if record.key.pk.startswith("run/") and record.key.sk.startswith("job/"):
                touched.append(self._job(record))
            elif record.key.pk.startswith("run/") and record.key.sk == keys.STATUS:
                run = nouns.read(Run, record)
                self._moved(RUN, self.runs.get(run.id), run)
                self.runs[run.id] = run
            elif record.key.pk.startswith("instance/") and record.key.sk == keys.STATUS:
                touched.append(self._instance(record))
        for noun in touched:
            self._claims(noun)

    # --- SAFETY ------------------------------------------------------------------------------------------------------

    def _job(self, record: Record) -> Job:
        job = nouns.read(Job, record)
        old = self.jobs.get(job.id)
        self._moved(JOB, old, job)
        if job.finished and (old is None or not old.finished):
            self._true_end(job)
        self.jobs[job.id] = job
        return job

    def _true_end(self, job: Job) -> None:
        """A job is called done, failed or lost only where that is what happened."""
        task = self.hosts.tasks.get(job.id)
        if job.status is JobStatus.done or job.reason is JobReason.container_exited_with_error:
            if task is None or task.state != "exited" or task.exit_status != job.exit_status:
                raise Violation(f"job {job.name} ended {job.status} with {job.exit_status}, but its task is {task}")
            stored = self.site.plane.logs.end(job.project_id, job.id)
            if stored != len(task.log):
                raise Violation(f"job {job.name} ended with {stored} of {len(task.log)} bytes of its log")
        if job.reason is JobReason.executor_error:
            raise Violation(f"job {job.name} is called lost ({job.message}), but no task was")
        if job.status in (JobStatus.terminated, JobStatus.aborted) and job.reason in (
            JobReason.terminated_by_user,
            JobReason.aborted_by_user,
        ):
            run = self.runs[job.run_id]
            if run.reason is None or not run.reason.value.endswith("_by_user"):
                raise Violation(f"job {job.name} was ended by a user who never asked for it")

    def _instance(self, record: Record) -> Instance:
        instance = nouns.read(Instance, record)
        old = self.instances.get(instance.id)
        self._moved(INSTANCE, old, instance)
        ended = instance.status is InstanceStatus.terminated
        if ended and instance.bought and (old is None or old.status is not InstanceStatus.terminated):
            left = self._resources_of(instance.id)
            if left:
                raise Violation(f"instance {instance.name} is called gone, but there is {left}")
        if old is not None and not ended:
            kept = {(handle.kind, handle.id) for handle in instance.handles}
            dropped = [handle for handle in old.handles if (handle.kind, handle.id) not in kept]
            if dropped:
                raise Violation(f"instance {instance.name} forgets its handles {dropped}")
        self.instances[instance.id] = instance
        self._limit(instance.fleet_id)
        return instance

    def _limit(self, fleet_id: str) -> None:
        most = self.most.get(fleet_id)
        live = [
            i for i in self.instances.values() if i.fleet_id == fleet_id and i.status is not InstanceStatus.terminated
        ]
        if most is not None and len(live) > most:
            raise Violation(f"the fleet may have {most} instances and has {[i.name for i in live]}")

    def _resources_of(self, instance_id: str) -> list[str]:
        return [
            body["id"] for body in self.site.cloud.resources() if dict(body["tags"])["dstack-instance"] == instance_id
        ]

    def _moved(self, machine: Machine, old: Run | Job | Instance | None, new: Run | Job | Instance) -> None:
        if old is None or old.status == new.status:
            return
        if old.status in machine.terminal or new.status not in reaches(machine, old.status):
            raise Violation(f"{machine.noun} {new.name} went from {old.status} to {new.status}")

    def _claims(self, noun: Job | Instance) -> None:
        """A block belongs to one job; a job that holds a place has its claim there and nowhere else."""
        if isinstance(noun, Instance):
            blocks = [block for claim in noun.claims for block in claim.blocks]
            if len(blocks) != len(set(blocks)) or not set(blocks) <= set(range(noun.total_blocks)):
                raise Violation(f"instance {noun.name} has given away the blocks {blocks}")
            if noun.status is InstanceStatus.terminated:
                return
            for claim in noun.claims:
                job = self.jobs.get(claim.job_id)
                if job is None or job.finished or job.assignment is None or job.assignment.instance_id != noun.id:
                    raise Violation(f"instance {noun.name} holds a place for {claim.job_id}, which is {job}")
        elif noun.status in LIVE_ON_INSTANCE and noun.assignment is not None:
            instance = self.instances[noun.assignment.instance_id]
            if noun.id not in {claim.job_id for claim in instance.claims}:
                raise Violation(f"job {noun.name} is {noun.status} on {instance.name} without a claim there")

    def bought_once(self) -> None:
        """At most one machine for one purchase, whoever made it."""
        seen: dict[str, str] = {}
        for body in self.site.cloud.machines():
            if body["ends_at"] is None and body["interrupted_at"] is None:
                if body["name"] in seen:
                    raise Violation(f"bought twice: {seen[body['name']]} and {body['id']} are both {body['name']}")
                seen[body["name"]] = body["id"]

    # --- LIVENESS ----------------------------------------------------------------------------------------------------

    def all_ended(self) -> bool:
        return all(run.finished for run in self.runs.values())

    def nothing_left(self) -> bool:
        ended = all(i.status is InstanceStatus.terminated for i in self.instances.values() if i.bought)
        return ended and not self.site.cloud.resources()

    def stuck(self) -> str:
        runs = [f"{r.name} {r.status} {r.message!r}" for r in self.runs.values() if not r.finished]
        jobs = [f"{j.name} {j.status} {j.message!r}" for j in self.jobs.values() if not j.finished]
        bought = [i for i in self.instances.values() if i.bought and i.status is not InstanceStatus.terminated]
        machines = [f"{i.name} {i.status} {i.message!r}" for i in bought]
        left = [body["id"] for body in self.site.cloud.resources()]
        return f"runs {runs}, jobs {jobs}, instances {machines}, at the cloud {left}"

    def kept(self, submitted: dict[str, str]) -> None:
        """No run is lost, and none ends otherwise than its user and its task had it."""
        for run_id, name in submitted.items():
            run = self.runs.get(run_id)
            if run is None:
                raise Violation(f"run {name} was accepted and is lost")
            jobs = [job for job in self.jobs.values() if job.run_id == run_id]
            if not jobs:
                raise Violation(f"run {name} has no job")
            if any(not job.finished for job in jobs):
                raise Violation(f"run {name} ended before its jobs did")
            if run.status is RunStatus.done and not any(job.status is JobStatus.done for job in jobs):
                raise Violation(f"run {name} is done, but none of its jobs is")
