"""What is left of a deleted project ends, and is looked after until it has."""

from __future__ import annotations

from typing import Any

from chalicelib.domain.closings import Closing
from chalicelib.domain.fleets import FleetStatus
from chalicelib.domain.reasons import RunReason
from chalicelib.domain.runs import RunStatus
from chalicelib.planning.projects.deletion import CALLS_LAST, CHECK_CLOSING_EVERY, ClosingSnapshot, decide_closing
from tests.world import nouns as b
from tests.world.nouns import lint


def decided(
    runs: tuple[Any, ...] = (), fleets: tuple[Any, ...] = (), due_at: int | None = b.NOW, since: int = CALLS_LAST
) -> dict[str, Any]:
    """The nouns after one look, by kind."""
    closing = Closing(id=b.PROJECT, began_at=b.NOW - since, due_at=due_at)
    snapshot = ClosingSnapshot(b.NOW, closing, runs, fleets)
    plan = decide_closing(snapshot)
    assert lint(snapshot, plan) == []
    return {noun.kind: noun for step in plan.steps for noun in step.saves}


def test_a_run_is_stopped_and_a_fleet_deleted() -> None:
    after = decided((b.run(),), (b.fleet(),))
    assert (after["run"].status, after["run"].reason) == (RunStatus.terminating, RunReason.stopped_by_user)
    assert after["run"].message == "its project was deleted"
    assert after["fleet"].status is FleetStatus.terminating
    assert after["closing"].due_at == b.NOW + CHECK_CLOSING_EVERY


def test_what_already_ends_is_looked_at_again_until_it_has() -> None:
    ending = b.run(status=RunStatus.terminating, reason=RunReason.stopped_by_user)
    assert decided((ending,)).keys() == {"closing"}
    assert decided((ending,), due_at=b.NOW + 1) == {}


def test_with_nothing_left_it_is_over() -> None:
    assert decided()["closing"].due_at is None


def test_a_run_may_still_come_from_a_call_that_was_on_its_way() -> None:
    assert decided(since=CALLS_LAST - 1)["closing"].due_at == b.NOW + CHECK_CLOSING_EVERY


def test_it_is_over_at_once_even_if_a_later_look_was_planned() -> None:
    assert decided(due_at=b.NOW + CHECK_CLOSING_EVERY)["closing"].due_at is None
