"""What an execution is told that starts the nodes of a gang, stage by stage."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.gangs import Gang
from chalicelib.planning.kernel.executions import CANCELLED, NOT_YET, StepAnswer, StepCall
from chalicelib.planning.kernel.plan import Plan
from chalicelib.planning.placing.gang_workflow import GangStart
from chalicelib.planning.runs.gang_executions import await_stage, start_answer
from chalicelib.planning.runs.snapshot import RunSnapshot
from tests.planning.situations.gangs import gang_of, nodes
from tests.world import nouns as b

UNIT = nodes()
THERE = b.machine(0), b.machine(1)
SEALED = gang_of(UNIT, *THERE, status="sealed", token="t", awaits="barrier")  # it waits for its nodes' addresses
OVER, WAITS = StepAnswer({}, settled=True), StepAnswer()
NOT_YET_ANSWER = StepAnswer(error=NOT_YET)
LEAVING = StepAnswer(error=NOT_YET, message="its places are being given back")


def ended(message: str) -> StepAnswer:
    return StepAnswer(error=CANCELLED, message=message, settled=True)


def seen(*gangs: Gang) -> RunSnapshot:
    first = UNIT[0]
    jobs, specs = tuple(item.job for item in UNIT), tuple(item.spec for item in UNIT)
    return RunSnapshot(
        b.NOW, first.run, first.run_spec, specs, jobs, {each.id: each for each in THERE}, {}, gangs=gangs
    )


@pytest.mark.parametrize(
    ("found", "call", "answer"),
    [
        (SEALED, StepCall("rest"), OVER),
        (SEALED, StepCall("barrier"), NOT_YET_ANSWER),
        (SEALED, StepCall("barrier", token="t"), WAITS),
        (SEALED, StepCall("barrier", token="of another state"), NOT_YET_ANSWER),
        (SEALED.with_(token=""), StepCall("barrier"), NOT_YET_ANSWER),
        (SEALED.with_(addresses=("a", "b")), StepCall("barrier", token="t"), OVER),
        (SEALED, StepCall("reserve", undo=True), LEAVING),
        (gang_of(UNIT, status="undone", message="no room"), StepCall("rest"), ended("no room")),
        (gang_of(UNIT, status="undone"), StepCall("reserve", undo=True), OVER),
        (None, StepCall("rest"), ended("this attempt to start the nodes has ended")),
        (None, StepCall("reserve", undo=True), OVER),
        (SEALED.with_(attempt=7), StepCall("rest"), ended("this attempt to start the nodes has ended")),
    ],
)
def test_what_the_gang_says_about_a_stage(found: Gang | None, call: StepCall, answer: StepAnswer) -> None:
    assert start_answer(seen(*([found] if found else [])), GangStart.of(SEALED), call) == answer


@pytest.mark.parametrize(
    ("found", "call", "saved"),
    [
        (SEALED, StepCall("barrier", token="new"), {"token": "new", "awaits": "barrier"}),
        (SEALED, StepCall("barrier"), None),
        (SEALED, StepCall("rest", token="new"), None),  # that stage is over
        (None, StepCall("barrier", token="new"), None),
    ],
)
def test_the_token_of_a_state_is_kept_only_if_it_has_to_wait(
    found: Gang | None, call: StepCall, saved: dict[str, Any] | None
) -> None:
    plan = await_stage(seen(*([found] if found else [])), GangStart.of(SEALED), call)
    if saved is None:
        assert plan == Plan()
    else:
        assert [noun for step in plan.steps for noun in step.saves] == [SEALED.with_(**saved)]
