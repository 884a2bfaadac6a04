"""Runs of several replicas of several nodes: what one job's end does to its replica, and that others don't notice."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.jobs import Assignment, Job, JobStatus
from chalicelib.domain.reasons import InstanceReason, JobReason, RunReason
from chalicelib.domain.runs import Run, RunStatus
from chalicelib.machines.run import BACKOFF
from chalicelib.planning.kernel.plan import Plan
from chalicelib.planning.runs.replicas import backoff
from chalicelib.planning.runs.run import decide_run
from chalicelib.planning.runs.snapshot import RunSnapshot
from tests.harness.examples import many
from tests.world import nouns as b
from tests.world.nouns import lint

RETRY = {"on_events": ["error", "no-capacity"], "duration": "1h"}
EXITED = JobReason.container_exited_with_error
Slot = tuple[int, int]


def test_each_retry_waits_longer_up_to_ten_minutes() -> None:
    assert [backoff(attempt) // b.SECOND for attempt in range(8)] == [15, 15, 30, 60, 120, 300, 600, 600]


class Replicas:
    """A run of some replicas of some nodes, all of them running, each job on its own machine."""

    def __init__(self, replicas: int, nodes: int, **spec: Any) -> None:
        self.spec, self.now = b.run_spec(**{"retry": RETRY, **spec}), b.NOW + b.SECOND
        self.run, self.nodes = b.run(status=RunStatus.running, due_at=b.NOW), nodes
        one = b.job_spec(self.spec)
        self.job_specs = tuple(
            one.with_(replica_num=replica, job_num=node, jobs_per_replica=nodes)
            for replica in range(replicas)
            for node in range(nodes)
        )
        self.jobs: dict[str, Job] = {}
        self.instances: dict[str, Instance] = {}
        for each in self.job_specs:
            self.place(b.job(self.run, replica=each.replica_num, node=each.job_num), JobStatus.running)

    def place(self, job: Job, status: JobStatus) -> None:
        free = b.machine(len(self.instances))
        instance = b.holding(free, job)
        where = Assignment(
            instance_id=instance.id,
            instance_name=instance.name,
            fleet_id=instance.fleet_id,
            fleet_name=instance.fleet_name,
            offer=instance.offer,
            assigned_at=self.now,
        )
        stamps = {"provisioned_at": self.now, "running_at": self.now, "due_at": None}
        self.instances[instance.id] = instance
        self.jobs[job.id] = job.with_(status=status, assignment=where, **stamps)

    def decide(self, after: int = 0) -> Plan:
        """Look, so many seconds later."""
        self.now += after * b.SECOND
        presences = {id: b.presence_of(instance, last=self.now) for id, instance in self.instances.items()}
        jobs = tuple(self.jobs.values())
        snapshot = RunSnapshot(self.now, self.run, self.spec, self.job_specs, jobs, self.instances, presences)
        plan = decide_run(snapshot)
        assert lint(snapshot, plan) == []
        for step in plan.steps:
            for noun in step.saves:
                if isinstance(noun, Run):
                    self.run = noun
                elif isinstance(noun, Job):
                    self.jobs[noun.id] = noun
                elif isinstance(noun, Instance):
                    self.instances[noun.id] = noun
        return plan

    def __getitem__(self, slot: Slot) -> Job:
        return max((job for job in self.jobs.values() if job.slot == slot), key=lambda job: job.submission_num)

    def ends(self, slot: Slot, reason: JobReason = EXITED) -> None:
        """Its agent says that the task is over and gone."""
        job = self[slot]
        self.jobs[job.id] = job.with_(status=JobStatus.terminating, reason=reason, exit_status=1)
        self.leaves(slot)

    def leaves(self, slot: Slot) -> None:
        """Its agent says that nothing of a job that is ending is left."""
        job = self[slot]
        final = JobStatus.done if job.reason is JobReason.done_by_runner else JobStatus.failed
        final = JobStatus.terminated if job.reason is JobReason.terminated_by_server else final
        self.jobs[job.id] = job.with_(status=final, finished_at=self.now, last_processed_at=self.now, due_at=None)
        if job.assignment is not None:
            place = self.instances[job.assignment.instance_id]
            self.instances[place.id] = place.with_(claims=(), status=InstanceStatus.idle, idle_since=self.now)

    def statuses(self) -> dict[Slot, str]:
        return {
            spec_slot: self[spec_slot].status.value for spec_slot in sorted({job.slot for job in self.jobs.values()})
        }


# --- one job's end ----------------------------------------------------------------------------------------------------


def test_a_failure_ends_its_siblings_at_once_and_no_other_replica_notices() -> None:
    world = Replicas(2, 2)
    others = [world[1, 0], world[1, 1]]
    world.ends((0, 0))
    world.decide()
    sibling = world[0, 1]
    assert (sibling.status, sibling.reason) == (JobStatus.terminating, JobReason.terminated_by_server)
    assert (sibling.message, sibling.stop_sent_at) == ("to be resubmitted", world.now)
    assert [world[1, 0], world[1, 1]] == others
    assert (world.run.status, world.run.retries) == (RunStatus.running, ())


def test_a_replica_starts_again_as_a_whole_when_all_of_it_has_left_its_machines() -> None:
    world = Replicas(2, 2)
    world.ends((0, 0))
    world.decide()
    world.decide(after=40)
    assert world.run.retries == ()  # its sibling is still there
    world.leaves((0, 1))
    left_at = world.now
    plan = world.decide()
    (retry,) = world.run.retries
    assert (retry.replica, retry.attempt, retry.resume_at) == (0, 1, left_at + BACKOFF[0])
    assert plan.next_wake == world.run.due_at == retry.resume_at
    assert world.run.status == RunStatus.running and world.run.fleet_id is not None
    assert world.run.message == "replica 0 will be retried: train-0-0 exited (1)"
    world.decide(after=14)
    assert world[0, 0].submission_num == 0
    plan = world.decide(after=1)
    assert {(job.slot, job.submission_num) for job in world.jobs.values() if not job.finished} == {
        ((0, 0), 1),
        ((0, 1), 1),
        ((1, 0), 0),
        ((1, 1), 0),
    }
    assert f"queue/{b.PROJECT}" in plan.steps[0].wake
    assert [event.message for event in plan.steps[0].events] == ["resubmitted, attempt 2"] * 2
    assert (world.run.status, world.run.message) == (RunStatus.running, "")


def test_a_failure_that_retry_does_not_cover_ends_the_whole_run_at_once() -> None:
    world = Replicas(2, 2, retry={"on_events": ["no-capacity"]})
    world.ends((0, 0))
    world.decide()
    assert (world.run.status, world.run.reason) == (RunStatus.terminating, RunReason.job_failed)
    left = [world[slot] for slot in ((0, 1), (1, 0), (1, 1))]
    assert {(job.status, job.reason, job.message) for job in left} == {
        (JobStatus.terminating, JobReason.terminated_by_server, "")
    }


def test_a_job_that_waits_for_a_place_is_over_at_once_when_its_replica_starts_again() -> None:
    world = Replicas(1, 2)
    queued = world[0, 1]
    world.leaves((0, 1))
    world.jobs[queued.id] = b.job(world.run, node=1, message="waiting for free capacity")
    world.ends((0, 0))
    world.decide()
    assert world[0, 1].status == JobStatus.terminated
    assert (world.run.status, world.run.resubmission_attempt) == (RunStatus.pending, 1)


def test_a_job_that_is_done_runs_again_with_its_replica() -> None:
    """The nodes of a replica work together: one alone can't go on from where it stopped."""
    world = Replicas(2, 2)
    world.ends((0, 1), JobReason.done_by_runner)
    world.decide()
    world.ends((0, 0))
    world.decide()
    world.decide(after=15)
    assert {slot: world[slot].submission_num for slot in ((0, 0), (0, 1))} == {(0, 0): 1, (0, 1): 1}


def test_a_sibling_that_fails_of_itself_is_judged_by_itself() -> None:
    world = Replicas(1, 2)
    world.ends((0, 0))
    place = world[0, 1].assignment
    assert place is not None
    ended = world.instances[place.instance_id].with_(
        status=InstanceStatus.terminating, reason=InstanceReason.terminated_by_user
    )
    world.instances[ended.id] = ended
    world.decide()
    assert world[0, 1].reason is JobReason.terminated_by_server and not world[0, 1].ended_with_replica
    assert (world.run.status, world.run.reason) == (RunStatus.terminating, RunReason.job_failed)


# --- counted apart ----------------------------------------------------------------------------------------------------


def fail_and_wait(world: Replicas, replica: int) -> int:
    """A replica of one node fails; how many seconds until it is submitted again."""
    world.ends((replica, 0))
    world.decide()
    return next((r.resume_at or 0) - world.now for r in world.run.retries if r.replica == replica) // b.SECOND


def test_pauses_grow_by_replica() -> None:
    world = Replicas(3, 1)
    assert fail_and_wait(world, 0) == 15
    world.decide(after=15)
    assert fail_and_wait(world, 0) == 30  # it never had a place
    assert fail_and_wait(world, 1) == 15
    assert {retry.replica: retry.attempt for retry in world.run.retries} == {0: 2, 1: 1}
    assert world.run.resubmission_attempt == 2
    world.decide(after=30)
    world.place(world[0, 0], JobStatus.provisioning)
    world.decide()
    assert {retry.replica: retry.attempt for retry in world.run.retries} == {1: 1}
    assert fail_and_wait(world, 0) == 15


def test_how_long_it_has_been_failing_is_counted_by_replica() -> None:
    """A run two hours old; replica 0 ran until now, replica 1 never had a machine."""
    for replica, reason in ((0, None), (1, RunReason.retry_limit_exceeded)):
        world = Replicas(2, 1)
        first = world[1, 0]
        world.jobs[first.id] = b.job(world.run, replica=1)
        world.now += 2 * 60 * b.MINUTE
        ran = world[0, 0]
        world.jobs[ran.id] = ran.with_(last_processed_at=world.now)
        world.ends((replica, 0), JobReason.failed_to_start_due_to_no_capacity)
        world.decide()
        assert world.run.reason == reason


def test_a_failure_that_is_not_covered_counts_before_one_that_is_too_late() -> None:
    world = Replicas(2, 1)
    late = world[0, 0]
    world.jobs[late.id] = b.job(world.run)
    world.now += 2 * 60 * b.MINUTE
    world.ends((0, 0), JobReason.failed_to_start_due_to_no_capacity)
    world.ends((1, 0), JobReason.interrupted_by_no_capacity)
    world.decide()
    assert (world.run.reason, world.run.message) == (RunReason.job_failed, "train-0-1 interrupted")


def test_a_run_waits_when_all_of_it_does_and_goes_on_with_the_first_of_its_replicas() -> None:
    world = Replicas(3, 1)
    world.ends((2, 0), JobReason.done_by_runner)
    world.ends((0, 0))
    world.decide()
    assert world.run.status == RunStatus.running
    world.now += 5 * b.SECOND
    world.ends((1, 0))
    world.decide()
    first = world.now + 10 * b.SECOND
    assert (world.run.status, world.run.resume_at, world.run.due_at) == (RunStatus.pending, first, first)
    assert (world.run.message, world.run.fleet_id) == ("will be retried: train-0-0 exited (1)", None)
    world.decide(after=10)
    assert world.run.status == RunStatus.submitted
    assert {slot: world[slot].submission_num for slot in ((0, 0), (1, 0), (2, 0))} == {(0, 0): 1, (1, 0): 0, (2, 0): 0}
    world.decide(after=5)
    assert world[1, 0].submission_num == 1
    for replica in range(2):
        world.ends((replica, 0), JobReason.done_by_runner)
    world.decide()
    assert (world.run.status, world.run.reason) == (RunStatus.done, RunReason.all_jobs_done)
    assert world.run.retries == ()


def test_a_stop_ends_what_waits_and_what_runs() -> None:
    world = Replicas(2, 1)
    world.ends((0, 0))
    world.decide()
    world.run = world.run.with_(status=RunStatus.terminating, reason=RunReason.stopped_by_user)
    world.decide(after=60)
    assert world.statuses() == {(0, 0): "failed", (1, 0): "terminating"}
    assert world.run.due_at == world.now + b.MINUTE  # no retry is due any more
    world.leaves((1, 0))
    world.decide()
    assert (world.run.status, world.run.retries) == (RunStatus.terminated, ())


@pytest.mark.parametrize(("replicas", "nodes"), [(1, 1), (4, 1), (1, 4), (3, 2)])
def test_a_run_is_done_when_all_of_it_is(replicas: int, nodes: int) -> None:
    world = Replicas(replicas, nodes)
    slots = sorted(world.statuses())
    for slot in slots:
        assert world.run.status == RunStatus.running
        world.ends(slot, JobReason.done_by_runner)
        world.decide()
    assert (world.run.status, world.run.reason) == (RunStatus.done, RunReason.all_jobs_done)


# --- any history ------------------------------------------------------------------------------------------------------

REASONS = (EXITED, EXITED, JobReason.done_by_runner, JobReason.interrupted_by_no_capacity)
step = st.tuples(
    st.sampled_from(["end", "end", "leave", "place", "look", "look", "wait", "stop"]),
    st.integers(0, 5),
    st.integers(0, 11),
)


def happens(world: Replicas, op: str, at: int, n: int) -> None:
    slots = sorted(world.statuses())
    slot = slots[at % len(slots)]
    job = world[slot]
    if op == "end" and job.status in (JobStatus.running, JobStatus.provisioning):
        world.ends(slot, REASONS[n % len(REASONS)])
    elif op == "leave" and job.status == JobStatus.terminating:
        world.leaves(slot)
    elif op == "place":
        for other in slots:
            if other[0] == slot[0] and world[other].status == JobStatus.submitted:
                world.place(world[other], JobStatus.running if n % 2 else JobStatus.provisioning)
    elif op == "wait":
        world.now += (1, 5, 15, 60, 700, 4000)[n % 6] * b.SECOND
    elif op == "stop" and n == 0 and world.run.status != RunStatus.terminating and not world.run.finished:
        world.run = world.run.with_(status=RunStatus.terminating, reason=RunReason.stopped_by_user, due_at=world.now)
    elif op == "look":
        take_pass(world)


def take_pass(world: Replicas) -> None:
    """Decide, and check that no promise is broken."""
    jobs, calm = dict(world.jobs), {job.replica_num for job in world.jobs.values()}
    for slot in world.statuses():
        if world[slot].status in (JobStatus.terminating, JobStatus.failed, JobStatus.terminated):
            calm.discard(slot[0])
    world.decide()
    for id, before in jobs.items():
        assert not before.finished or world.jobs[id] == before, "an ended job never changes"
    for replica in {job.replica_num for job in world.jobs.values()}:
        members = [job for job in world.jobs.values() if job.replica_num == replica]
        latest = max(job.submission_num for job in members)
        nodes = sorted((job.submission_num, job.job_num) for job in members)
        assert nodes == [(num, node) for num in range(latest + 1) for node in range(world.nodes)], "all nodes, or none"
        early = {job.id for job in members if job.submission_num < latest}
        assert all(world.jobs[id].finished for id in early), "submitted again before the last submission was over"
        held = {claim.job_id for instance in world.instances.values() for claim in instance.claims}
        assert not held & early, "submitted again while a sibling holds a place"
        late = any(job.reason == JobReason.waiting_runner_limit_exceeded for job in members)  # its own end, then
        if replica in calm and not late and world.run.status not in (RunStatus.terminating, *FINAL):
            assert all(jobs.get(job.id) == job for job in members), "another replica's end is none of its business"
    live = [job for job in world.jobs.values() if not job.finished]
    assert not live or world.run.status not in (RunStatus.pending, *FINAL)
    assert world.run.finished or (world.run.due_at or 0) > world.now, "nobody looks again"
    waits = [retry.resume_at for retry in world.run.retries if retry.resume_at is not None]
    ending = world.run.status in (RunStatus.terminating, *FINAL)
    assert ending or not waits or (world.run.due_at or 0) <= max(min(waits), world.now + 1), "a retry is late"


FINAL = (RunStatus.done, RunStatus.failed, RunStatus.terminated)


@settings(max_examples=many(100), deadline=None)
@given(st.integers(1, 3), st.integers(1, 3), st.booleans(), st.lists(step, max_size=60))
@pytest.mark.slow
def test_any_history_is_safe_and_comes_to_an_end(
    replicas: int, nodes: int, all_events: bool, steps: list[tuple[str, int, int]]
) -> None:
    world = Replicas(replicas, nodes, retry=True if all_events else RETRY)
    for op, at, n in steps:
        happens(world, op, at, n)
    for _ in range(40):  # from here on everything goes well, and only deadlines bring a look
        take_pass(world)
        if world.run.finished:
            break
        for slot in sorted(world.statuses()):
            if world[slot].status == JobStatus.submitted:
                world.place(world[slot], JobStatus.running)
            elif world[slot].status in (JobStatus.running, JobStatus.provisioning):
                world.ends(slot, JobReason.done_by_runner)
            elif world[slot].status == JobStatus.terminating:
                world.leaves(slot)
        world.now = max(world.now, world.run.due_at or 0)
    assert world.run.finished and world.run.reason is not None
    assert not any(instance.claims for instance in world.instances.values())


def test_what_a_commit_in_parts_had_no_room_for_is_submitted_with_the_same_number() -> None:
    world = Replicas(2, 3)
    world.ends((0, 0))
    world.decide()
    for node in (1, 2):
        world.leaves((0, node))
    world.decide()
    waits = world.run
    world.decide(after=15)
    del world.jobs[world[0, 2].id]
    world.run = waits  # the run is committed with the last part
    plan = world.decide()
    made = [(noun.slot, noun.submission_num) for step in plan.steps for noun in step.saves if isinstance(noun, Job)]
    assert made == [((0, 2), 1)]
