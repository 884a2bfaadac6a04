"""A run that its job takes along, and ends with."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.jobs import JobStatus
from chalicelib.domain.reasons import JobReason, job_outcome
from chalicelib.domain.runs import ReplicaRetry, Run, RunStatus
from chalicelib.machines.run import CHECK_RUN_EVERY
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.placing.run_progress import follow
from chalicelib.planning.runs.run import decide_run
from chalicelib.planning.runs.snapshot import RunSnapshot
from chalicelib.planning.runs.sole_job import finish
from tests.planning.situations.kit import NOW, placed
from tests.world import nouns as b


def after(run: str, job: str, **known: Any) -> tuple[Run, Run, int]:
    """A run before and after its job's move, and how many events that told."""
    machine, of = b.machine(0), b.run().with_(status=RunStatus(run), **known)
    draft = Draft(NOW)
    one = placed(machine, b.job(of)).with_(status=JobStatus(job))
    return of, follow(draft, of, one), len(draft.step().events)


@pytest.mark.parametrize(
    ("run", "job", "moved"),
    [
        ("submitted", "provisioning", "provisioning"),
        ("submitted", "pulling", "provisioning"),
        ("submitted", "running", "running"),
        ("provisioning", "running", "running"),
        ("provisioning", "pulling", "provisioning"),
        ("running", "provisioning", "running"),
        ("pending", "running", "pending"),
        ("terminating", "running", "terminating"),
        ("done", "running", "done"),
    ],
)
def test_a_run_goes_only_forward_and_tells_each_move_once(run: str, job: str, moved: str) -> None:
    before, found, wakes = after(run, job)
    assert found.status == moved and wakes == (run != moved)
    assert (found is before) == (run == moved)


def test_it_is_in_the_fleet_of_its_first_job_and_waits_for_nothing() -> None:
    retries = (ReplicaRetry(replica=0, attempt=1, resume_at=NOW), ReplicaRetry(replica=3, attempt=1, resume_at=NOW))
    _, found, _ = after("submitted", "provisioning", message="waiting", retries=retries)
    fleet = b.machine(0).fleet_id
    assert (found.fleet_id, found.message, found.retries) == (fleet, "", retries[1:])
    _, found, _ = after("submitted", "provisioning", fleet_id="f", fleet_name="of another job")
    assert (found.fleet_id, found.fleet_name) == ("f", "of another job")


@pytest.mark.parametrize(("due", "pause"), [(5, 5), (0, CHECK_RUN_EVERY), (None, CHECK_RUN_EVERY)])
def test_what_is_looked_at_anyway_stays_due_as_it_is(due: int | None, pause: int) -> None:
    _, found, _ = after("submitted", "running", due_at=None if due is None else NOW + due)
    assert found.due_at == NOW + pause


def ended(reason: JobReason, nodes: int = 1, **config: Any) -> tuple[Run, Run, Run]:
    """A running run, as its job ended it, and as its own pass would have: that is the one to compare with."""
    spec, machine, of = (
        b.run_spec(**config),
        b.machine(0),
        b.run(status=RunStatus.running, due_at=NOW + CHECK_RUN_EVERY),
    )
    specs = tuple(b.job_spec(spec).with_(job_num=num, jobs_per_replica=nodes) for num in range(nodes))
    over = {"status": JobStatus(job_outcome(reason)), "reason": reason, "exit_status": 7, "finished_at": NOW}
    jobs = [placed(machine, b.job(of, node=num)).with_(**over) for num in range(nodes)]
    plan = decide_run(RunSnapshot(NOW, of, spec, specs, tuple(jobs), {machine.id: machine}, {}, {}))
    own = next(noun for step in plan.steps for noun in step.saves if isinstance(noun, Run))
    return of, finish(Draft(NOW), of, jobs[-1], spec, specs), own


@pytest.mark.parametrize("reason", list(JobReason))
def test_a_run_of_one_job_ends_with_it_as_its_own_pass_would_end_it(reason: JobReason) -> None:
    before, found, own = ended(reason)
    assert found == own and found.finished and not before.finished


@pytest.mark.parametrize("reason", [JobReason.done_by_runner, JobReason.container_exited_with_error])
@pytest.mark.parametrize("config", [{"schedule": {"cron": "0 5 * * *"}}, {"nodes": 2}])
def test_what_comes_after_the_job_is_left_to_the_runs_pass(reason: JobReason, config: dict[str, Any]) -> None:
    before, found, _ = ended(reason, **config)
    assert found is before


def test_a_failure_that_may_be_retried_is_left_to_it_too_but_not_a_success() -> None:
    before, found, own = ended(JobReason.container_exited_with_error, retry=True)
    assert found is before and own.status is RunStatus.pending
    before, found, own = ended(JobReason.done_by_runner, retry=True)
    assert found == own and found.status is RunStatus.done


def test_who_stops_a_run_meanwhile_is_the_reason_of_its_end() -> None:
    stopping = b.run(status=RunStatus.terminating)
    job = b.job(stopping).with_(status=JobStatus.done, reason=JobReason.done_by_runner)
    spec = b.run_spec()
    assert finish(Draft(NOW), stopping, job, spec, (b.job_spec(spec),)) is stopping
