"""A run that its job takes along."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.jobs import JobStatus
from chalicelib.domain.runs import Retry, Run, RunStatus
from chalicelib.machines.run import LOOK
from chalicelib.planning.following import follow
from chalicelib.planning.transitions import Draft
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
    before, found, told = after(run, job)
    assert found.status == moved and told == (run != moved)
    assert (found is before) == (run == moved)


def test_it_is_in_the_fleet_of_its_first_job_and_waits_for_nothing() -> None:
    retries = (Retry(replica=0, attempt=1, resume_at=NOW), Retry(replica=3, attempt=1, resume_at=NOW))
    _, found, _ = after("submitted", "provisioning", message="waiting", retries=retries)
    fleet = b.machine(0).fleet_id
    assert (found.fleet_id, found.message, found.retries) == (fleet, "", retries[1:])
    _, found, _ = after("submitted", "provisioning", fleet_id="f", fleet_name="of another job")
    assert (found.fleet_id, found.fleet_name) == ("f", "of another job")


@pytest.mark.parametrize(("due", "kept"), [(5, 5), (0, LOOK), (None, LOOK)])
def test_what_is_looked_at_anyway_stays_due_as_it_is(due: int | None, kept: int) -> None:
    _, found, _ = after("submitted", "running", due_at=None if due is None else NOW + due)
    assert found.due_at == NOW + kept
