"""Workflows: whatever goes wrong at whatever step, a workflow finishes or leaves nothing behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import pytest

from chalicelib.domain.events import Event, EventType
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.domain.workflows import Driver, Workflow, WorkflowStatus
from chalicelib.engine.workflows import WORKFLOWS
from chalicelib.errors import NotYet, Transient, Unfit
from chalicelib.planning.kernel.executions import BEHIND, NOT_YET, StepCall
from chalicelib.planning.kernel.workflows import Definition, WorkflowSnapshot, WorkflowStep, step_answer
from chalicelib.store import nouns
from tests.engine.workflow_kit import Course, Fault, check, faults

TENT = Definition(
    "pitch_tent",
    (
        WorkflowStep("place", "find a place", timeout=10 * SECOND, undo=False),
        WorkflowStep("poles", "put up the poles", timeout=20 * SECOND),
        WorkflowStep("sheet", "spread the sheet", timeout=20 * SECOND),
        WorkflowStep("dry", "let it dry", timeout=5 * SECOND, patience=MINUTE, undo=False),
    ),
)


class Meadow:
    """Where tents are pitched. It takes a while until a sheet is dry."""

    def __init__(self, wet: int = 3) -> None:
        self.places: dict[str, str] = {}
        self.wet = wet
        self.performer = self

    def left(self) -> object:
        return dict(self.places)

    def do(self, step: str, workflow: Workflow) -> Mapping[str, str] | None:
        if step == "dry":
            self.wet -= 1
            if self.wet >= 0:
                raise NotYet("the sheet is wet")
            return None
        if step == "sheet" and workflow.state.get("poles") != "3":
            raise Unfit("a sheet needs poles")
        if step != "place":
            self.places[step] = workflow.id
        return {"poles": "3"} if step == "poles" else None

    def undo(self, step: str, workflow: Workflow) -> None:
        if step == "poles" and "sheet" in self.places:
            raise Transient("the sheet must go first")
        self.places.pop(step, None)


def test_its_steps_are_done_in_order() -> None:
    meadow = Meadow()
    course = check(TENT, meadow, None)
    assert course.performer.made == [("place", False), ("poles", False), ("sheet", False), ("dry", False)]
    assert meadow.places == {"poles": "w", "sheet": "w"}
    assert course.workflow.state == {"poles": "3"}


@pytest.mark.parametrize("fault", list(faults(TENT)), ids=str)
@pytest.mark.parametrize("driver", list(Driver))
def test_whatever_goes_wrong_it_is_done_or_leaves_nothing(fault: Fault, driver: Driver) -> None:
    check(TENT, Meadow(wet=1), fault, driver)


def test_an_attempt_that_another_one_overtook_is_not_made() -> None:
    """A queue may deliver it late, or twice."""
    course = Course(TENT, Meadow(), None)
    course.engine.reconciler(load=course.load).run([course.workflow.unit])
    (attempt,) = course.engine.effects
    course.execute(replace(attempt, act_until=attempt.act_until + 1))
    assert course.performer.made == []
    course.execute(attempt)
    made = list(course.performer.made)
    course.execute(attempt)
    assert course.performer.made == made != []


@pytest.mark.parametrize("kind", ["poles", "sheet"])
def test_a_step_that_keeps_failing_is_given_up_after_its_attempts(kind: str) -> None:
    tried: list[str] = []

    class Stormy(Meadow):
        def do(self, step: str, workflow: Workflow) -> Mapping[str, str] | None:
            tried.append(step)
            if step == kind:
                raise Transient("a storm")
            return super().do(step, workflow)

    meadow = Stormy()
    course = Course(TENT, meadow, None)
    assert course.play().status is WorkflowStatus.undone
    assert tried.count(kind) == TENT.named(kind).attempts
    assert (course.workflow.reason, course.workflow.message) == ("Transient", "a storm")
    assert meadow.left() == {}


def test_pauses_after_failures_grow() -> None:
    times: list[int] = []

    class Stormy(Meadow):
        def do(self, step: str, workflow: Workflow) -> Mapping[str, str] | None:
            if step == "poles":
                times.append(course.engine.at)
                raise Transient("a storm")
            return super().do(step, workflow)

    course = Course(TENT, Stormy(), None)
    course.play()
    pauses = [round((after - before) / SECOND, 1) for before, after in pairwise(times)]
    assert pauses == [2.0, 4.0]


def test_a_step_that_waits_too_long_is_given_up_with_what_it_waits_for() -> None:
    meadow = Meadow(wet=10_000)
    began = (course := Course(TENT, meadow, None)).engine.at
    ended = course.play()
    assert (ended.status, ended.reason, ended.message) == (WorkflowStatus.undone, "timeout", "the sheet is wet")
    assert MINUTE <= course.engine.at - began < 2 * MINUTE


def test_what_a_step_waits_for_is_looked_at_again_after_its_pause() -> None:
    times: list[int] = []

    class Slow(Meadow):
        def do(self, step: str, workflow: Workflow) -> Mapping[str, str] | None:
            if step == "dry":
                times.append(course.engine.at)
            return super().do(step, workflow)

    course = Course(TENT, Slow(wet=3), None)
    course.play()
    pauses = [round((after - before) / SECOND) for before, after in pairwise(times)]
    assert pauses == [TENT.named("dry").poll_pause // SECOND] * 3


def test_a_failure_of_very_many_words_is_cut_in_the_history() -> None:
    class Wordy(Meadow):
        def do(self, step: str, workflow: Workflow) -> Mapping[str, str] | None:
            if step == "sheet":
                raise Unfit("w" * 5000)
            return super().do(step, workflow)

    course = Course(TENT, Wordy(), None)
    course.play()
    records = course.engine.store.query("main", "events/p", limit=50).records
    (failed,) = [event for record in records if (event := nouns.read(Event, record)).type is EventType.failed]
    assert failed.message == f"Unfit: {'w' * 500}"


def test_undoing_is_never_given_up() -> None:
    class Stuck(Meadow):
        calm = 30

        def undo(self, step: str, workflow: Workflow) -> None:
            self.calm -= 1
            if self.calm > 0:
                raise Unfit("the poles are stuck")
            super().undo(step, workflow)

    meadow = Stuck(wet=10_000)
    course = Course(TENT, meadow, None)
    assert course.play().status is WorkflowStatus.undone
    assert meadow.left() == {}


def test_an_attempt_in_flight_is_left_alone() -> None:
    """Another process is making it: a pass waits until it can't be any more."""
    course = Course(TENT, Meadow(), None)
    engine = course.engine
    engine.reconciler(load=course.load).run([course.workflow.unit])
    assert len(engine.effects) == 1
    course.cancel()
    engine.at += 9 * SECOND
    engine.reconciler(load=course.load).run([course.workflow.unit])
    assert len(engine.effects) == 1, "even a cancelled workflow waits for the attempt"
    engine.at += SECOND
    engine.reconciler(load=course.load).run([course.workflow.unit])
    assert course.workflow.status is WorkflowStatus.undone, "nothing was done that could be undone"


def test_a_state_may_ask_again_from_the_moment_on_at_which_no_attempt_is_in_flight() -> None:
    course = Course(TENT, Meadow(), None)
    course.engine.reconciler(load=course.load).run([course.workflow.unit])
    (attempt,) = course.engine.effects
    for ahead, error in ((1, BEHIND), (0, NOT_YET)):
        snapshot = WorkflowSnapshot(attempt.act_until - ahead, course.workflow, TENT)
        assert step_answer(snapshot, StepCall("place")).error == error


@pytest.mark.parametrize(
    ("undo", "status", "error"),
    [(False, WorkflowStatus.running, "Transient"), (True, WorkflowStatus.undoing, NOT_YET)],
)
def test_a_step_that_failed_is_asked_for_again_by_its_error_and_its_undoing_by_none(
    undo: bool, status: WorkflowStatus, error: str
) -> None:
    course = Course(TENT, Meadow(), None)
    failed = course.workflow.with_(status=status, reason="Transient", act_until=None)
    assert step_answer(WorkflowSnapshot(course.engine.at, failed, TENT), StepCall("place", undo=undo)).error == error


def test_the_history_says_what_was_done_and_undone() -> None:
    course = Course(TENT, Meadow(), Fault("refused", "sheet"))
    course.play()
    records = course.engine.store.query("main", "events/p", limit=50).records
    assert [nouns.read(Event, record).message for record in records] == [
        "workflow started: pitch tent",
        "done: find a place",
        "done: put up the poles",
        "Unfit: refused",
        "workflow running → undoing: refused",
        "undone: spread the sheet",
        "undone: put up the poles",
        "workflow undoing → undone",
    ]


def test_every_declared_workflow_can_be_told_apart() -> None:
    for name, definition in WORKFLOWS.items():
        assert name == definition.name
        assert len({step.name for step in definition.steps}) == len(definition.steps)
