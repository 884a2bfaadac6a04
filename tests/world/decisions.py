"""A world small enough to try everything: the decisions under test, and around them a store, a cloud and agents that
misbehave on request. It decides nothing itself: every status comes from a plan or from an agent's report.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from chalicelib.domain.events import Event
from chalicelib.domain.fleets import Fleet, FleetStatus
from chalicelib.domain.gangs import Gang, gang_lead
from chalicelib.domain.instances import Handle, Instance, InstanceStatus, Presence
from chalicelib.domain.instants import MINUTE, Micros
from chalicelib.domain.job_specs import JobSpec
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.noun import Noun
from chalicelib.domain.offers import Offer
from chalicelib.domain.reasons import JobReason, RunReason
from chalicelib.domain.runs import Run, RunStatus
from chalicelib.domain.specs.fleets import FleetSpec
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.machines.fleet import FLEET
from chalicelib.planning.kernel.executions import StartExecution
from chalicelib.planning.kernel.plan import Effect, Outcome, Plan
from chalicelib.planning.kernel.purchases import Bought, Create, Describe, Left, NotBought, NotDone, Seen
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.machines.fleet import decide_fleet
from chalicelib.planning.machines.instance import decide_instance
from chalicelib.planning.machines.outcomes import decide_outcome
from chalicelib.planning.machines.snapshots import FleetSnapshot, InstanceSnapshot
from chalicelib.planning.matching.offer_book import OfferBook
from chalicelib.planning.matching.queued_job import QueuedJob
from chalicelib.planning.placing.queue import decide_queue
from chalicelib.planning.placing.snapshot import QueueSnapshot
from chalicelib.planning.runs.run import decide_run
from chalicelib.planning.runs.snapshot import RunSnapshot
from tests.world import nouns as b
from tests.world.nouns import lint

FACTS = b.host_facts(4, 16, disk_mib=100_000, runtimes=("process", "docker"))


@dataclass
class SmallWorld:
    now: Micros = b.NOW
    runs: dict[str, Run] = field(default_factory=dict)
    specs: dict[str, RunSpec] = field(default_factory=dict)
    shapes: dict[str, tuple[int, int]] = field(default_factory=dict)  # replicas and nodes per replica, by run
    jobs: dict[str, Job] = field(default_factory=dict)
    gangs: dict[str, Gang] = field(default_factory=dict)
    instances: dict[str, Instance] = field(default_factory=dict)
    presences: dict[str, Presence] = field(default_factory=dict)
    fleets: dict[str, tuple[Fleet, FleetSpec]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)  # committed, not yet executed
    machines: set[str] = field(default_factory=set)  # what exists at the cloud, by instance
    silent: set[str] = field(default_factory=set)  # instances whose agent doesn't get through
    offers: tuple[Offer, ...] = ()

    # --- making it ----------------------------------------------------------------------------------------------------

    def add_fleet(self, name: str, *, hosts: int = 0, blocks: Any = 1, nodes: Any = None, **config: Any) -> None:
        fleet = b.fleet(name, due_at=self.now, to_create=config.pop("to_create", 0))
        self.fleets[fleet.id] = (fleet, b.fleet_spec(nodes=nodes, blocks=blocks, **config))
        self.add_hosts(name, hosts)

    def add_hosts(self, name: str, count: int) -> None:
        fleet = self.fleets[b.fleet(name).id][0]
        first = sum(i.fleet_id == fleet.id for i in self.instances.values())
        for num in range(first, first + count):
            host = b.host(num, fleet, status=InstanceStatus.pending, started_at=None, idle_since=None, due_at=self.now)
            self.instances[host.id] = host.with_(internal_ip=f"10.0.0.{num + 1}")

    def submit(self, *, replicas: int = 1, nodes: int = 1, **config: Any) -> Run:
        run = b.run(f"run-{len(self.runs)}", submitted_at=self.now, last_processed_at=self.now, due_at=self.now)
        self.runs[run.id], self.specs[run.id], self.shapes[run.id] = run, b.run_spec(**config), (replicas, nodes)
        for spec in self.job_specs(run.id):
            first: dict[str, Any] = (
                {} if spec.job_num == 0 else {"due_at": None}
            )  # only the first node stands in the queue
            job = b.job(run, replica=spec.replica_num, node=spec.job_num, **first)
            self.jobs[job.id] = job
        return run

    def job_specs(self, run_id: str) -> tuple[JobSpec, ...]:
        one, (replicas, nodes) = b.job_spec(self.specs[run_id]), self.shapes[run_id]
        return tuple(
            one.with_(replica_num=replica, job_num=node, jobs_per_replica=nodes)
            for replica in range(replicas)
            for node in range(nodes)
        )

    def spec_of(self, job: Job) -> JobSpec:
        return next(spec for spec in self.job_specs(job.run_id) if (spec.replica_num, spec.job_num) == job.slot)

    def stop(self, run: Run, *, abort: bool = False) -> None:
        """What the use case does."""
        if not run.finished and run.status != RunStatus.terminating:
            draft = Draft(self.now)
            reason = RunReason.aborted_by_user if abort else RunReason.stopped_by_user
            draft.move_run(run, "end", reason=reason, due_at=self.now)
            self.commit(Plan((draft.step(),)))

    def delete_fleet(self, name: str) -> None:
        """What the use case does, except that it refuses a fleet in use; here it may be in use."""
        fleet = self.fleets.get(b.fleet(name).id, (None, None))[0]
        if fleet is not None and fleet.status == FleetStatus.active:
            draft = Draft(self.now)
            draft.move(FLEET, fleet, "delete", due_at=self.now)
            self.commit(Plan((draft.step(),)))

    # --- deciding -----------------------------------------------------------------------------------------------------

    def commit(self, plan: Plan, snapshot: Any = None) -> None:
        if snapshot is not None:
            assert lint(snapshot, plan) == []
        for step in plan.steps:
            for noun in step.saves:
                self._save(noun)
            self.events += step.events
            self.effects += step.effects
        self.check_safety()

    def _save(self, noun: Noun) -> None:
        saved: Any = noun.with_(version=noun.version + 1)
        if isinstance(saved, Fleet):
            self.fleets[saved.id] = (saved, self.fleets[saved.id][1])
        else:
            collection: Any = {Run: self.runs, Job: self.jobs, Gang: self.gangs, Instance: self.instances}[type(noun)]
            old = collection.get(saved.id)
            assert not (isinstance(old, Job) and old.finished), f"{saved.name} is over and is changed"
            collection[saved.id] = saved

    def _view(self, fleet_id: str) -> FleetView:
        live = [i for i in self.instances.values() if i.fleet_id == fleet_id and i.status != InstanceStatus.terminated]
        return FleetView(*self.fleets[fleet_id], tuple(sorted(live, key=lambda i: i.num)))

    def pass_queue(self) -> None:
        leads = [job for job in self.jobs.values() if job.queued and job.job_num == 0]
        leads.sort(key=lambda job: (-job.priority, job.submitted_at, job.id))
        waiting = [job for lead in leads for job in self._nodes(lead)]
        several = {run for run in self.runs if self.shapes[run] != (1, 1)}
        items = tuple(
            QueuedJob(
                job,
                self.runs[job.run_id],
                self.spec_of(job),
                self.specs[job.run_id],
                alone=job.run_id not in several,
            )
            for job in waiting
        )
        views = tuple(self._view(fleet) for fleet in self.fleets)
        gangs = {gang_lead(gang): gang for gang in self.gangs.values()}
        snapshot = QueueSnapshot(self.now, b.PROJECT, items, views, OfferBook(self.offers), b.FACTS, gangs=gangs)
        self.commit(decide_queue(snapshot), snapshot)

    def _nodes(self, lead: Job) -> list[Job]:
        """The jobs of the lead's attempt, by rank."""
        attempt = lead.run_id, lead.replica_num, lead.submission_num
        found = [job for job in self.jobs.values() if (job.run_id, job.replica_num, job.submission_num) == attempt]
        return sorted(found, key=lambda job: job.job_num)

    def pass_run(self, run: Run) -> None:
        jobs = tuple(job for job in self.jobs.values() if job.run_id == run.id)
        spec = self.specs[run.id]
        newest = {job.replica_num: job.submission_num for job in sorted(jobs, key=lambda job: job.submission_num)}
        gangs = [g for g in self.gangs.values() if g.run_id == run.id and newest[g.replica_num] == g.submission_num]
        snapshot = RunSnapshot(
            self.now,
            run,
            spec,
            self.job_specs(run.id),
            jobs,
            self.instances,
            self.presences,
            gangs=tuple(gangs),
        )
        self.commit(decide_run(snapshot), snapshot)

    def _instance_snapshot(self, instance_id: str) -> InstanceSnapshot:
        instance = self.instances[instance_id]
        jobs = tuple(self.jobs[claim.job_id] for claim in instance.claims)
        presence = self.presences.get(instance_id)
        return InstanceSnapshot(
            self.now, instance, presence, self._view(instance.fleet_id), jobs, b.FACTS.get(instance.offer.backend)
        )

    def pass_instance(self, instance_id: str) -> None:
        snapshot = self._instance_snapshot(instance_id)
        self.commit(decide_instance(snapshot), snapshot)

    def pass_fleet(self, fleet_id: str) -> None:
        snapshot = FleetSnapshot(self.now, self._view(fleet_id), OfferBook(self.offers), b.FACTS)
        self.commit(decide_fleet(snapshot), snapshot)

    def conclude(self, outcome: Outcome) -> None:
        snapshot = self._instance_snapshot(outcome.unit.partition("/")[2])
        self.commit(decide_outcome(snapshot, outcome), snapshot)

    # --- the cloud ----------------------------------------------------------------------------------------------------

    def execute(self, fault: int = 0) -> None:
        """Execute the oldest committed effect. `fault` picks what goes wrong; 0: nothing."""
        if not self.effects:
            return
        effect = self.effects.pop(0)
        if isinstance(effect, StartExecution):  # there are no state machines here
            return
        instance = self.instances[effect.unit.partition("/")[2]]
        if isinstance(effect, Create):
            if instance.status == InstanceStatus.pending and instance.act_until == effect.act_until:
                self._buy(effect, instance, fault)
        elif isinstance(effect, Describe):
            if fault != 3:
                there = instance.id in self.machines
                self.conclude(Seen(effect.unit, instance.epoch, "running" if there else "gone"))
        else:
            self._give_back(instance, fault)

    def _buy(self, effect: Create, instance: Instance, fault: int) -> None:
        purchase = (instance.epoch, effect.act_until)
        if fault not in (1, 4):  # 3: created, but the plane crashed before it could record that
            self.machines.add(instance.id)
        match fault:
            case 1:
                self.conclude(NotBought(effect.unit, "InsufficientCapacity", "none left", None, *purchase))
            case 2:  # created, but the reply was lost
                self.conclude(NotBought(effect.unit, "Transient", "reset", 5, *purchase))
            case 4:
                self.conclude(NotBought(effect.unit, "Throttled", "slow down", 5, *purchase))
            case 0:
                self.instances[instance.id] = instance.with_(
                    handles=(Handle(kind="vm", id=instance.id),), version=instance.version + 1
                )
                self.conclude(Bought(effect.unit, *purchase))

    def _give_back(self, instance: Instance, fault: int) -> None:
        if instance.status != InstanceStatus.terminating or fault == 3:
            return
        unit = f"instance/{instance.id}"
        if fault == 1:
            self.conclude(NotDone(unit, "Transient", "not yet", None, instance.epoch))
            return
        if not fault:
            self.machines.discard(instance.id)
        self.conclude(Left(unit, instance.epoch, self.now, instance.act_until, "vm" if fault else ""))

    # --- the agents ---------------------------------------------------------------------------------------------------

    def alive(self) -> list[str]:
        """Instances whose agent gets through."""
        gone = (InstanceStatus.terminated,)
        return [
            i.id
            for i in self.instances.values()
            if i.id not in self.silent and i.status not in gone and (not i.bought or i.id in self.machines)
        ]

    def sync(self, instance_id: str, exits: int | None = None) -> None:
        """One call of an agent: its promise, and a step for each task. `exits`: running tasks end with this status."""
        instance = self.instances[instance_id]
        presence = b.presence_of(instance, last=self.now, promise=MINUTE, facts=FACTS)
        self.presences[instance_id] = presence
        if instance.status not in (InstanceStatus.idle, InstanceStatus.busy, InstanceStatus.terminating):
            return
        draft = Draft(self.now)
        for claim in instance.claims:
            instance = self._task(draft, self.jobs[claim.job_id], instance, exits)
        self.commit(Plan((draft.step(),)))

    def _task(self, draft: Draft, job: Job, instance: Instance, exits: int | None) -> Instance:
        if job.status == JobStatus.provisioning:
            draft.move_job(job, "pull")
        elif job.status == JobStatus.pulling:
            draft.move_job(job, "run")
        elif job.status == JobStatus.running and exits is not None:
            reason = JobReason.container_exited_with_error if exits else JobReason.done_by_runner
            draft.end_job(job, reason, exit_status=exits)
        elif job.status == JobStatus.terminating:
            return draft.finish_job(job, instance)[1] or instance
        return instance

    # --- time ---------------------------------------------------------------------------------------------------------

    def due(self) -> dict[tuple[str, str], Micros]:
        """The due index: every unit with a deadline."""
        found: dict[tuple[str, str], Micros] = {}

        def add(kind: str, unit: str, at: Micros | None) -> None:
            if at is not None:
                found[kind, unit] = min(at, found.get((kind, unit), at))

        nouns: list[Iterable[Noun]] = [self.runs.values(), self.jobs.values(), self.gangs.values()]
        nouns += [self.instances.values(), [fleet for fleet, _ in self.fleets.values()]]
        for noun in chain.from_iterable(nouns):
            if (due := noun.place().due) is not None:
                add(due.kind, "" if due.kind == "queue" else due.unit.partition("/")[2], due.at)
        return found

    def pass_over(self, kind: str, unit: str) -> None:
        if kind == "queue":
            self.pass_queue()
        elif kind == "run":
            self.pass_run(self.runs[unit])
        elif kind == "instance":
            self.pass_instance(unit)
        else:
            self.pass_fleet(unit)

    def settle(self, rounds: int = 400) -> None:
        """Faults have stopped. Every wake-up is lost: only deadlines start a pass. Ends when nothing is in progress."""
        self.silent.clear()
        for _ in range(rounds):
            if self.over():
                return
            due = self.due()
            assert due or self.effects, f"nothing is due and this isn't over: {self.describe()}"
            self.now = max(self.now + 1, min(due.values(), default=self.now))
            for instance_id in self.alive():
                self.sync(instance_id, exits=0)
            for (kind, unit), at in sorted(due.items()):
                if at <= self.now:
                    self.pass_over(kind, unit)
            while self.effects:
                self.execute()
        raise AssertionError(f"still not over: {self.describe()}")

    def over(self) -> bool:
        runs = all(run.finished for run in self.runs.values())
        return runs and not self.machines and not any(self._under_way(i) for i in self.instances.values())

    @staticmethod
    def _under_way(instance: Instance) -> bool:
        return instance.bought and instance.status != InstanceStatus.terminated

    def describe(self) -> str:
        runs = [f"{run.name} {run.status} {run.due_at}" for run in self.runs.values() if not run.finished]
        jobs = [f"{job.name} {job.status} {job.message}" for job in self.jobs.values() if not job.finished]
        instances = [f"{i.name} {i.status} {i.due_at}" for i in self.instances.values() if self._under_way(i)]
        return f"{runs} {jobs} {instances} {self.machines} at {self.now}"

    # --- safety -------------------------------------------------------------------------------------------------------

    def check_safety(self) -> None:
        held: dict[str, str] = {}
        for instance in self.instances.values():
            blocks = [block for claim in instance.claims for block in claim.blocks]
            assert len(blocks) == len(set(blocks)), f"two jobs on one block of {instance.name}"
            assert instance.busy_blocks <= instance.total_blocks
            for claim in instance.claims:
                job = self.jobs[claim.job_id]
                assert claim.blocks, f"{job.name} holds a place without a block"
                assert not job.finished, f"{job.name} is over and still holds {instance.name}"
                assert job.id not in held, f"{job.name} holds two places"
                held[job.id] = instance.id
        for job in self.jobs.values():
            live = job.assignment is not None and not job.finished
            if live and job.assignment is not None:
                assert held.get(job.id) == job.assignment.instance_id, f"{job.name} has lost its claim"
        for fleet, spec in self.fleets.values():
            nodes = spec.configuration.nodes
            if nodes is not None and nodes.max is not None:
                assert len(self._view(fleet.id).instances) <= nodes.max, f"{fleet.name} has too many instances"
        for machine in self.machines:
            ended = self.instances[machine].status == InstanceStatus.terminated
            assert not ended, f"the machine of {self.instances[machine].name} leaks"
        for run in self.runs.values():
            own_jobs = [job for job in self.jobs.values() if job.run_id == run.id]
            assert not run.finished or all(job.finished for job in own_jobs), (
                f"{run.name} is over and a job of it lives"
            )
            assert run.status != RunStatus.pending or all(job.finished for job in own_jobs), (
                f"{run.name} has a live job"
            )
            for replica in range(self.shapes[run.id][0]):
                self._check_submissions([job for job in own_jobs if job.replica_num == replica], self.shapes[run.id][1])

    @staticmethod
    def _check_submissions(jobs: list[Job], nodes: int) -> None:
        """A replica is submitted as a whole, and again when nothing of it is left on a machine or in the queue."""
        slots = sorted((job.submission_num, job.job_num) for job in jobs)
        latest = max(job.submission_num for job in jobs)
        assert slots == [(submission, node) for submission in range(latest + 1) for node in range(nodes)]
        early = [job.name for job in jobs if job.submission_num < latest and not job.finished]
        assert not early, f"{early} live, and their replica was submitted again"
