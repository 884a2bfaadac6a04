"""What a run's jobs amount to, when they took too long, when to try again, and when it is over."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.instances import InstanceStatus
from chalicelib.domain.jobs import Assignment, Job, JobStatus, Mounted
from chalicelib.domain.offers import CONTAINER
from chalicelib.domain.reasons import InstanceReason, JobReason, RunReason
from chalicelib.domain.runs import ReplicaRetry, Run, RunStatus
from chalicelib.machines.job import PULL_TIMEOUT, TO_START
from chalicelib.machines.run import BACKOFF
from chalicelib.machines.volume import TO_ATTACH
from chalicelib.planning.kernel.plan import Plan
from chalicelib.planning.kernel.requests import stop_run
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.runs.endings import grace_of
from chalicelib.planning.runs.run import decide_run
from chalicelib.planning.runs.snapshot import RunSnapshot, Sample
from tests.world import nouns as b
from tests.world.nouns import lint

PASS_AT = b.NOW + b.SECOND
DISK = Mounted(id="disk", name="data", path="/data")
POD = b.offer("pod", instance_runtime=CONTAINER)
SPOT_POD = b.offer("pod", instance_runtime=CONTAINER, has=b.resources(spot=True))
RETRY = {"on_events": ["error", "no-capacity"], "duration": "1h"}


class World:
    """A run with one job on one instance, as a test wants it, and the decision about it."""

    def __init__(
        self, status: str = "running", *, run: str | None = None, spec: dict[str, Any] | None = None, **job: Any
    ) -> None:
        self.spec = b.run_spec(**(spec or {}))
        self.run = b.run(status=RunStatus(run or ("running" if status != "submitted" else "submitted")), due_at=b.NOW)
        self.instance = b.machine(0)
        self.job = b.job(self.run, due_at=None).with_(status=JobStatus(status), **job)
        if status != "submitted":
            self.instance = b.holding(self.instance, self.job)
            self.job = self._placed(self.job)
        self.presence: Any = b.presence_of(self.instance)
        self.older: tuple[Job, ...] = ()
        self.usage: dict[str, tuple[Sample, ...]] = {}
        self.now = PASS_AT

    def _placed(self, job: Job) -> Job:
        i = self.instance
        where = Assignment(
            instance_id=i.id,
            instance_name=i.name,
            fleet_id=i.fleet_id,
            fleet_name=i.fleet_name,
            offer=i.offer,
            assigned_at=b.NOW,
        )
        return job.with_(assignment=where, provisioned_at=b.NOW, running_at=job.running_at or b.NOW)

    @property
    def snapshot(self) -> RunSnapshot:
        presences = {self.instance.id: self.presence} if self.presence else {}
        jobs = (*self.older, self.job)
        instances = {self.instance.id: self.instance} if self.instance else {}
        return RunSnapshot(
            self.now, self.run, self.spec, (b.job_spec(self.spec),), jobs, instances, presences, self.usage
        )

    def decide(self) -> Plan:
        plan = decide_run(self.snapshot)
        assert lint(self.snapshot, plan) == []
        for step in plan.steps:
            for noun in step.saves:
                if isinstance(noun, Run):
                    self.run = noun
                elif isinstance(noun, Job):
                    if noun.id != self.job.id and noun.submission_num > self.job.submission_num:
                        self.older = (*self.older, self.job)
                    self.job = noun
                else:
                    self.instance = noun
        return plan


# --- the fold ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "run"),
    [("submitted", "submitted"), ("provisioning", "provisioning"), ("pulling", "provisioning"), ("running", "running")],
)
def test_the_run_is_what_its_job_is(job: str, run: str) -> None:
    world = World(job, run="submitted")
    world.decide()
    assert world.run.status == run


def test_the_run_is_of_the_fleet_its_job_is_on_and_says_what_it_waits_for() -> None:
    world = World("running", run="submitted")
    world.decide()
    assert world.run.fleet_name == "cloud"
    waits = World("submitted", message="waiting for free capacity")
    waits.decide()
    assert waits.run.message == "waiting for free capacity"


def test_a_jobs_own_time_is_over_once_the_run_was_looked_at() -> None:
    """From then on the run's due time covers the job; one that waits in the queue keeps its own."""
    world = World("running")
    world.job = world.job.with_(due_at=b.NOW)
    world.decide()
    assert world.job.due_at is None and world.run.due_at is not None
    waits = World("submitted")
    waits.job = waits.job.with_(due_at=b.NOW)
    waits.decide()
    assert waits.job.due_at == b.NOW


def test_reaching_a_machine_forgets_earlier_retries() -> None:
    world = World("provisioning", run="submitted")
    world.run = world.run.with_(retries=(ReplicaRetry(attempt=3),))
    world.decide()
    assert world.run.resubmission_attempt == 0


def test_a_second_look_writes_nothing() -> None:
    world = World("running")
    world.decide()
    world.now += b.SECOND
    assert world.decide().steps == ()


# --- ends -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "exit_status", "status", "run_reason"),
    [
        (JobReason.done_by_runner, 0, "done", RunReason.all_jobs_done),
        (JobReason.container_exited_with_error, 3, "failed", RunReason.job_failed),
        (JobReason.max_duration_exceeded, None, "failed", RunReason.job_failed),
    ],
)
def test_a_run_ends_as_its_job_ended(reason: JobReason, exit_status: int, status: str, run_reason: RunReason) -> None:
    from chalicelib.domain.reasons import job_outcome

    world = World("running", reason=reason, exit_status=exit_status)
    world.job = world.job.with_(status=JobStatus(job_outcome(reason)), finished_at=b.NOW)
    world.instance = b.machine(0)
    world.decide()
    assert (world.run.status, world.run.reason) == (status, run_reason)
    assert world.run.due_at is None


def test_a_run_whose_job_is_done_ends_when_the_job_is_gone_from_its_host() -> None:
    world = World("terminating", reason=JobReason.done_by_runner)
    world.decide()
    assert (world.run.status, world.run.reason) == (RunStatus.terminating, RunReason.all_jobs_done)
    assert world.job.status == JobStatus.terminating


@pytest.mark.parametrize(
    ("reason", "job_reason", "kill_after"),
    [
        (RunReason.stopped_by_user, JobReason.terminated_by_user, 10),
        (RunReason.aborted_by_user, JobReason.aborted_by_user, 0),
    ],
)
def test_a_stop_is_passed_on_to_the_job(reason: RunReason, job_reason: JobReason, kill_after: int) -> None:
    world = World("running")
    world.run = world.run.with_(status=RunStatus.terminating, reason=reason)
    world.decide()
    assert (world.job.status, world.job.reason) == (JobStatus.terminating, job_reason)
    assert (world.job.stop_sent_at, world.job.kill_at) == (PASS_AT, PASS_AT + kill_after * b.SECOND)


def test_a_run_that_ends_is_not_due_for_a_retry_that_will_not_come() -> None:
    world = World("running")
    retries = (ReplicaRetry(attempt=1, resume_at=PASS_AT + b.SECOND),)
    world.run = world.run.with_(status=RunStatus.terminating, reason=RunReason.stopped_by_user, retries=retries)
    world.job = world.job.with_(status=JobStatus.terminating, reason=JobReason.terminated_by_user, kill_at=None)
    world.decide()
    assert world.run.status == RunStatus.terminating and (world.run.due_at or 0) > PASS_AT + b.SECOND


def test_a_stopped_run_that_waits_ends_at_once() -> None:
    world = World("submitted")
    world.run = world.run.with_(status=RunStatus.terminating, reason=RunReason.stopped_by_user)
    world.decide()
    assert (world.run.status, world.job.status) == (RunStatus.terminated, JobStatus.terminated)


def test_what_follows_from_a_stop_is_told_as_the_doing_of_who_stopped() -> None:
    for actor in (("u2", "bob"), None):
        world = World("submitted")
        requested = stop_run(world.run, RunReason.stopped_by_user, Draft(b.NOW, actor))
        world.run = requested.steps[0].saves[0]
        plan = world.decide()
        events = [event for step in plan.steps for event in step.events]
        assert {event.targets[0].type for event in events} >= {"run", "job"}
        assert {event.actor_name for event in events} == {actor and actor[1]}


def test_an_abort_does_not_wait_for_a_graceful_stop_that_is_under_way() -> None:
    world = World("terminating", reason=JobReason.terminated_by_user, kill_at=b.NOW + b.MINUTE)
    world.run = world.run.with_(status=RunStatus.terminating, reason=RunReason.aborted_by_user)
    world.decide()
    assert world.job.kill_at == PASS_AT


def test_a_job_whose_machine_never_came_up_ends_at_once_when_stopped() -> None:
    world = World("provisioning", run="provisioning")
    world.instance = world.instance.with_(status=InstanceStatus.provisioning, started_at=None)
    world.presence = None
    world.run = world.run.with_(status=RunStatus.terminating, reason=RunReason.stopped_by_user)
    world.decide()
    assert world.run.status == RunStatus.terminated
    assert world.instance.claims == ()


@pytest.mark.parametrize(("duration", "grace"), [(None, 10), ("1m", 60), ("off", None)])
def test_a_job_may_take_as_long_to_leave_as_its_user_says(duration: str | None, grace: int | None) -> None:
    assert grace_of(b.job_spec(b.run_spec(stop_duration=duration))) == (None if grace is None else grace * b.SECOND)


# --- time and lost machines -------------------------------------------------------------------------------------------


def test_a_task_that_never_starts_is_given_up() -> None:
    world = World("provisioning", run="provisioning")
    world.now = b.NOW + 11 * b.MINUTE
    world.presence = b.presence_of(world.instance, last=world.now)
    world.decide()
    assert world.job.reason == JobReason.waiting_runner_limit_exceeded


@pytest.mark.parametrize(("disks", "longer"), [((), 0), ((DISK,), TO_ATTACH)])
def test_a_task_with_disks_may_start_later_as_they_are_attached_first(disks: tuple[Mounted, ...], longer: int) -> None:
    world = World("provisioning", run="provisioning")
    world.job = world.job.with_(assignment=world.job.assignment.with_(volumes=disks))
    for late, status in ((-1, JobStatus.provisioning), (0, JobStatus.terminating)):
        world.now = b.NOW + TO_START + longer + late
        world.presence = b.presence_of(world.instance, last=world.now)
        world.decide()
        assert world.job.status == status


def test_a_pull_may_take_twenty_minutes() -> None:
    world = World("pulling", run="provisioning", pulling_at=b.NOW)
    world.now = b.NOW + PULL_TIMEOUT - 1
    world.presence = b.presence_of(world.instance, last=world.now)
    world.decide()
    assert world.job.status == JobStatus.pulling
    world.now += 1
    world.decide()
    assert world.job.reason == JobReason.waiting_runner_limit_exceeded


def test_an_agent_that_forgets_max_duration_is_not_relied_on() -> None:
    world = World("running", spec={"max_duration": "1h"})
    world.now = b.NOW + 61 * b.MINUTE
    world.presence = b.presence_of(world.instance, last=world.now)
    world.decide()
    assert world.job.reason == JobReason.max_duration_exceeded


def test_a_silent_host_is_first_noted_then_lost() -> None:
    world = World("running")
    world.now = b.NOW + b.MINUTE + 1
    plan = world.decide()
    assert world.job.disconnected_at == world.now
    assert world.job.status == JobStatus.running
    assert plan.next_wake is not None
    world.now += b.MINUTE
    world.decide()
    assert (world.job.reason, world.job.status) == (JobReason.instance_unreachable, JobStatus.failed)
    assert world.instance.claims == ()
    assert world.run.status == RunStatus.failed


def test_a_silent_host_may_still_write_to_the_volumes_of_its_job() -> None:
    world = World("terminating", disconnected_at=b.NOW - b.DAY, reason=JobReason.instance_unreachable)
    world.job = world.job.with_(assignment=world.job.assignment.with_(volumes=(DISK,)))
    world.now = b.NOW + b.DAY
    world.decide()
    assert world.job.status == JobStatus.terminating and world.instance.claims
    world.instance = world.instance.with_(status=InstanceStatus.terminated)
    world.decide()
    assert world.job.status == JobStatus.failed


def test_a_plane_that_was_away_itself_gives_hosts_time_to_report() -> None:
    world = World("running")
    world.now = b.NOW + b.DAY
    world.decide()
    assert world.job.status == JobStatus.running
    world.presence = b.presence_of(world.instance, last=world.now + b.SECOND)
    world.now += 2 * b.SECOND
    world.decide()
    assert world.job.disconnected_at is None


def test_a_spot_machine_that_falls_silent_was_interrupted() -> None:
    world = World("running", disconnected_at=b.NOW - b.DAY)
    spot = b.offer(has=b.resources(spot=True))
    world.job = world.job.with_(assignment=world.job.assignment.with_(offer=spot))
    world.now = b.NOW + 2 * b.MINUTE
    world.decide()
    assert world.job.reason == JobReason.interrupted_by_no_capacity


@pytest.mark.parametrize(
    ("instance", "reason"),
    [
        (
            {"reason": InstanceReason.provisioning_timeout, "started_at": None},
            JobReason.waiting_instance_limit_exceeded,
        ),
        ({"reason": InstanceReason.unreachable}, JobReason.instance_unreachable),
        ({"reason": InstanceReason.error}, JobReason.instance_unreachable),
        ({"reason": InstanceReason.error, "taken_back_at": b.NOW}, JobReason.interrupted_by_no_capacity),
        (
            {"reason": InstanceReason.error, "offer": b.offer(has=b.resources(spot=True))},
            JobReason.interrupted_by_no_capacity,
        ),
        ({"reason": InstanceReason.error, "offer": POD}, JobReason.instance_unreachable),
        ({"reason": InstanceReason.error, "offer": SPOT_POD}, JobReason.instance_unreachable),
        (
            {"reason": InstanceReason.error, "offer": POD, "taken_back_at": b.NOW, "started_at": None},
            JobReason.interrupted_by_no_capacity,
        ),
        ({"reason": InstanceReason.terminated_by_user}, JobReason.terminated_by_server),
        ({"reason": InstanceReason.terminated_by_user, "offer": SPOT_POD}, JobReason.terminated_by_server),
    ],
)
def test_a_job_ends_with_its_machine_and_says_why(instance: dict[str, Any], reason: JobReason) -> None:
    world = World("running")
    world.instance = world.instance.with_(status=InstanceStatus.terminated, **instance)
    world.decide()
    assert world.job.reason == reason
    assert world.job.finished
    assert world.instance.claims == ()


# --- retry ------------------------------------------------------------------------------------------------------------


def failed(reason: JobReason, **spec: Any) -> World:
    world = World("running", spec=spec, reason=reason, exit_status=1)
    world.job = world.job.with_(status=JobStatus.failed, finished_at=b.NOW, last_processed_at=b.NOW)
    world.instance = b.machine(0)
    return world


def test_a_covered_failure_is_tried_again_after_a_pause() -> None:
    world = failed(JobReason.container_exited_with_error, retry=RETRY)
    world.decide()
    assert (world.run.status, world.run.resubmission_attempt) == (RunStatus.pending, 1)
    assert world.run.resume_at == world.run.due_at == b.NOW + BACKOFF[0]
    assert world.run.fleet_id is None
    world.now = world.run.resume_at - 1
    world.decide()
    assert world.job.submission_num == 0
    world.now += 1
    plan = world.decide()
    assert (world.run.status, world.job.submission_num, world.job.status) == ("submitted", 1, "submitted")
    assert world.job.id != world.older[0].id
    assert f"queue/{b.PROJECT}" in plan.steps[0].wake


def test_pauses_grow_to_ten_minutes() -> None:
    world = failed(JobReason.failed_to_start_due_to_no_capacity, retry=RETRY)
    world.run = world.run.with_(retries=(ReplicaRetry(attempt=40),))
    world.decide()
    assert world.run.resume_at == b.NOW + 10 * b.MINUTE


@pytest.mark.parametrize(
    ("reason", "retry", "want"),
    [
        (JobReason.container_exited_with_error, None, RunReason.job_failed),
        (JobReason.container_exited_with_error, {"on_events": ["no-capacity"]}, RunReason.job_failed),
        (JobReason.failed_to_start_due_to_no_capacity, {"on_events": ["error"]}, RunReason.job_failed),
        (JobReason.interrupted_by_no_capacity, {"on_events": ["interruption"]}, None),
        (JobReason.instance_unreachable, True, None),
    ],
)
def test_only_what_retry_covers_is_tried_again(reason: JobReason, retry: Any, want: RunReason | None) -> None:
    world = failed(reason, retry=retry)
    world.decide()
    assert world.run.reason == want
    assert world.run.status == (RunStatus.pending if want is None else RunStatus.failed)


def test_a_run_that_never_got_a_machine_gives_up_after_its_retry_duration() -> None:
    world = failed(JobReason.failed_to_start_due_to_no_capacity, retry={"duration": "1h"})
    world.job = world.job.with_(assignment=None, last_processed_at=b.NOW + 59 * b.MINUTE)
    world.now = b.NOW + 60 * b.MINUTE
    world.decide()
    assert world.run.status == RunStatus.pending
    late = failed(JobReason.failed_to_start_due_to_no_capacity, retry={"duration": "1h"})
    late.job = late.job.with_(assignment=None)
    late.now = b.NOW + 60 * b.MINUTE + 1
    late.decide()
    assert (late.run.status, late.run.reason) == (RunStatus.failed, RunReason.retry_limit_exceeded)


def test_a_run_that_waits_to_be_tried_again_can_be_stopped() -> None:
    world = failed(JobReason.container_exited_with_error, retry=RETRY)
    world.decide()
    world.run = world.run.with_(status=RunStatus.terminating, reason=RunReason.stopped_by_user)
    world.decide()
    assert world.run.status == RunStatus.terminated
