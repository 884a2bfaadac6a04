"""Workflows that a state machine's execution drives: whatever is lost between the two, each step counts once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from chalicelib.domain.instants import HOUR, MINUTE, Micros
from chalicelib.domain.workflows import Driver, Workflow, WorkflowStatus
from chalicelib.engine.log_context import ids
from chalicelib.errors import NotYet, Transient, Unfit
from chalicelib.machines.workflow import CALL_DUE_WITHIN, MOST_STARTS
from chalicelib.planning.kernel.executions import CANCELLED
from chalicelib.planning.kernel.workflows import Definition
from tests.engine.test_workflows import TENT, Meadow
from tests.engine.workflow_kit import Course, Crash
from tests.world.step_functions import CutOff

STEPS = [step.name for step in TENT.steps]


def driven(meadow: Meadow, definition: Definition = TENT) -> Course:
    return Course(definition, meadow, None, Driver.execution)


def test_an_execution_makes_every_attempt() -> None:
    course = driven(meadow := Meadow(wet=0))
    course.take_pass()
    assert (course.workflow.driver, course.performer.made) == (Driver.execution, [])
    assert course.play().status is WorkflowStatus.done
    assert [step for step, _ in course.performer.made] == STEPS and meadow.places == {"poles": "w", "sheet": "w"}
    assert course.executions.started == ["w"]


@pytest.mark.parametrize("driver", Driver)
def test_what_is_logged_meanwhile_names_the_workflow_and_its_subject(driver: Driver) -> None:
    """An operator looks for a host by its instance."""

    class Watched(Meadow):
        def do(self, step: str, workflow: Workflow) -> Mapping[str, str] | None:
            kind, _, subject = workflow.subject.partition("/")
            logged.append(dict(ids()))
            assert logged[-1] == {"workflow_id": workflow.id, f"{kind}_id": subject}
            return super().do(step, workflow)

    logged: list[dict[str, str]] = []
    assert Course(TENT, Watched(wet=1), None, driver).play().status is WorkflowStatus.done
    assert len(logged) >= len(STEPS) and ids() == {}


def test_a_start_that_is_lost_is_repeated() -> None:
    course = driven(Meadow(wet=1))
    course.executions.lost = lambda call: call == "start" and len(course.executions.started) == 1
    ended = course.play()
    assert (ended.status, ended.driver) == (WorkflowStatus.done, Driver.execution)
    assert course.executions.started == ["w", "w"]


def test_if_no_execution_comes_the_looks_take_over() -> None:
    course = driven(Meadow(wet=1))
    course.executions.lost = lambda call: call == "start"
    began, ended = course.engine.at, course.play()
    assert (ended.status, ended.driver) == (WorkflowStatus.done, Driver.passes)
    assert len(course.executions.started) == MOST_STARTS
    assert course.engine.at - began < MOST_STARTS * CALL_DUE_WITHIN + 2 * MINUTE


@pytest.mark.parametrize("at", STEPS)
def test_an_execution_that_is_deleted_is_replaced_by_the_looks(at: str) -> None:
    """Its name is taken: it can't be started again."""
    course = driven(meadow := Meadow(wet=1))
    perform = course.invoked

    def invoked(payload: Mapping[str, Any]) -> Mapping[str, str]:
        answer = perform(payload)
        if payload["step"] == at:
            course.executions.executions["w"].stop()
        return answer

    course.executions.invoke = invoked
    ended = course.play()
    assert ended.status is WorkflowStatus.done and meadow.places == {"poles": "w", "sheet": "w"}
    assert [step for step, _ in course.performer.made] == STEPS


def test_one_that_comes_after_the_looks_took_over_finds_the_steps_done() -> None:
    course = driven(Meadow(wet=1))
    course.executions.lost = lambda call: call == "start"
    course.play()
    course.executions.lost = lambda call: False
    course.executions.start(TENT.name, "w")
    course.drain()
    assert course.executions.executions["w"].ended == "SUCCEEDED"
    assert [step for step, _ in course.performer.made] == STEPS


def test_one_that_comes_while_the_looks_drive_takes_it_back() -> None:
    course = driven(Meadow(wet=2))
    course.executions.lost = lambda call: call == "start"
    while course.workflow.step < STEPS.index("dry"):
        course.take_pass()
        course.engine.at = max(course.engine.at + 1, course.workflow.due_at or 0)
    course.executions.lost = lambda call: False
    course.executions.start(TENT.name, "w")
    ended = course.play()
    course.drain()
    assert (ended.status, ended.driver) == (WorkflowStatus.done, Driver.execution)
    assert course.executions.executions["w"].ended == "SUCCEEDED"
    assert [step for step, _ in course.performer.made] == STEPS


@pytest.mark.parametrize("at", STEPS)
@pytest.mark.parametrize("twice", ["at once", "after its reply was lost"])
def test_a_call_that_comes_twice_makes_the_step_once(at: str, twice: str) -> None:
    course = driven(Meadow(wet=0))
    perform, calls = course.invoked, list[str]()

    def invoked(payload: Mapping[str, Any]) -> Mapping[str, str]:
        calls.append(payload["step"])
        answer = perform(payload)
        if payload["step"] == at and calls.count(at) == 1:
            if twice == "at once":
                return perform(payload)
            raise CutOff("the reply is lost")
        return answer

    course.executions.invoke = invoked
    assert course.play().status is WorkflowStatus.done
    course.drain()
    assert [step for step, _ in course.performer.made] == STEPS
    assert course.executions.executions["w"].ended == "SUCCEEDED"


def test_a_lost_callback_is_asked_for_again() -> None:
    course = driven(Meadow(wet=1))
    lost = list[str]()
    course.executions.lost = lambda call: call == "succeed" and not lost and not lost.append(call)  # type: ignore[func-returns-value]
    assert course.play().status is WorkflowStatus.done
    course.drain()
    assert lost and course.executions.executions["w"].ended == "SUCCEEDED"


def test_a_step_is_waited_for_without_asking_again() -> None:
    """The execution asks once; whoever makes it true wakes the workflow, and its time is the record's."""
    course, steps = driven(Meadow(wet=10_000)), list[str]()
    perform = course.invoked

    def invoked(payload: Mapping[str, Any]) -> Mapping[str, str]:
        steps.append(payload["step"])
        return perform(payload)

    course.executions.invoke = invoked
    ended = course.play()
    course.drain()
    assert (ended.status, ended.reason, ended.message) == (WorkflowStatus.undone, "timeout", "the sheet is wet")
    assert steps == ["place", "poles", "sheet", "dry", "sheet", "poles"]
    assert course.executions.executions["w"].data["failure"] == {"Error": CANCELLED, "Cause": "the sheet is wet"}


def test_the_looks_drive_on_what_they_had_begun_only_once_no_attempt_is_in_flight() -> None:
    """State machines were added while a workflow ran."""
    course = Course(TENT, Meadow(wet=1), None, Driver.passes)
    course.engine.reconciler(load=course.load).run([course.workflow.unit])
    (attempt,) = course.engine.effects
    course.engine.effects.clear()
    course.driver = Driver.execution
    course.take_pass()
    assert course.executions.started == []
    course.execute(attempt)
    assert course.play().status is WorkflowStatus.done
    assert [step for step, _ in course.performer.made] == STEPS


def test_without_state_machines_the_looks_go_on() -> None:
    """They were removed while an execution drove."""
    course = driven(Meadow(wet=1))
    course.take_pass()
    course.executions.executions.clear()
    course.driver = Driver.passes
    assert course.play().driver is Driver.passes


def test_an_error_keeps_its_name() -> None:
    class Poor(Meadow):
        def do(self, step: str, workflow: Workflow) -> Mapping[str, str] | None:
            if step == "sheet":
                raise Unfit("it has a hole")
            return super().do(step, workflow)

    course = driven(Poor())
    assert course.play().reason == "Unfit"
    course.drain()
    assert course.executions.executions["w"].data["failure"] == {"Error": "Unfit", "Cause": "it has a hole"}


def test_an_execution_that_gives_a_step_up_has_it_undone() -> None:
    """No attempt at it answers: its functions die, each time."""
    meadow = Meadow(wet=1)

    class Deadly(Meadow):
        def do(self, step: str, workflow: Workflow) -> Mapping[str, str] | None:
            if step == "sheet":
                raise Crash("out of memory")
            return meadow.do(step, workflow)

        def undo(self, step: str, workflow: Workflow) -> None:
            meadow.undo(step, workflow)

    course = driven(Deadly())
    ended = course.play()
    course.drain()
    assert (ended.status, ended.reason) == (WorkflowStatus.undone, "timeout")
    assert meadow.left() == {} and course.executions.executions["w"].ended == "FAILED"


def test_undoing_waits_and_is_asked_for_again() -> None:
    tried: list[Micros] = []

    class Sticky(Meadow):
        def do(self, step: str, workflow: Workflow) -> Mapping[str, str] | None:
            if step == "sheet":
                raise Unfit("it has a hole")
            return super().do(step, workflow)

        def undo(self, step: str, workflow: Workflow) -> None:
            if step == "poles":
                tried.append(course.engine.at)
                if len(tried) < 5:
                    raise NotYet("they are frozen in") if len(tried) % 2 else Transient("they stick")
            super().undo(step, workflow)

    course = driven(meadow := Sticky())
    assert course.play().status is WorkflowStatus.undone
    course.drain()
    assert len(tried) == 5 and meadow.left() == {}
    assert tried[-1] - tried[0] < HOUR and course.executions.executions["w"].ended == "FAILED"


def test_a_state_that_asks_about_a_forgotten_workflow_is_told_to_undo() -> None:
    course = driven(Meadow(wet=1))
    with pytest.raises(Exception, match="no longer exists") as raised:
        course.executions.invoke({"workflow": "other", "step": "place", "undo": False})
    assert type(raised.value).__name__ == CANCELLED


def test_whoever_asks_for_an_unknown_step_is_refused() -> None:
    course = driven(Meadow(wet=1))
    course.take_pass()
    with pytest.raises(Exception, match="flag"):
        course.executions.invoke({"workflow": "w", "step": "flag", "undo": False})
