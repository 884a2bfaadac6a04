"""Workflows: each look at one, each outcome of an attempt, and each question of an execution."""

from __future__ import annotations

from typing import Any

from chalicelib.domain.instants import HOUR, MINUTE, SECOND
from chalicelib.domain.workflows import Driver, Workflow, WorkflowStatus, workflow_id
from chalicelib.planning.kernel.executions import StepCall
from chalicelib.planning.kernel.snapshot import NounsSnapshot
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.kernel.workflows import (
    Definition,
    StepDone,
    StepWaits,
    WorkflowSnapshot,
    WorkflowStep,
    begin,
    decide_call,
    decide_step,
    decide_workflow,
)
from tests.planning.situations.kit import BEFORE, NOW, Decided, situation
from tests.world import nouns as b

ACT_UNTIL = NOW + MINUTE
TENT = Definition(
    "pitch_tent",
    (
        WorkflowStep("place", "find a place", timeout=10 * SECOND, undo=False),
        WorkflowStep("poles", "put up the poles", timeout=20 * SECOND, patience=HOUR),
        WorkflowStep("rug", "roll out the rug", timeout=30 * SECOND, when="rug"),
        WorkflowStep("sheet", "spread the sheet", timeout=40 * SECOND),
    ),
)
ID = workflow_id("instance/i", TENT.name)
CALLED: dict[str, Any] = {"driver": Driver.execution, "starts": 1}
WAITED: dict[str, Any] = {**CALLED, "token": "t"}
UNDOING: dict[str, Any] = {"status": WorkflowStatus.undoing, "reason": "Unfit", "message": "too small"}


def workflow(step: str, **fields: Any) -> Workflow:
    known: dict[str, Any] = {"version": 1, "began_at": BEFORE, "step_at": BEFORE + MINUTE, "last_processed_at": BEFORE}
    return Workflow(
        id=ID,
        project_id=b.PROJECT,
        definition=TENT.name,
        name="tent",
        subject="instance/i",
        backend="ssh",
        step=TENT.index(step),
        **{**known, "due_at": NOW, **fields},
    )


def snapshot(of: Workflow, *, executions: bool = False) -> WorkflowSnapshot:
    return WorkflowSnapshot(NOW, of, TENT, executions)


def decided(step: str, *, executions: bool = False, **fields: Any) -> Decided:
    seen = snapshot(workflow(step, **fields), executions=executions)
    return seen, decide_workflow(seen)


def tried(step: str, outcome: Any, **fields: Any) -> Decided:
    seen = snapshot(workflow(step, **{"act_until": ACT_UNTIL, "due_at": ACT_UNTIL, **fields}))
    return seen, decide_step(seen, outcome)


def called(step: str, call: StepCall, **fields: Any) -> Decided:
    seen = snapshot(workflow(step, **fields), executions=True)
    return seen, decide_call(seen, call)


def drafted(change: Any, of: Workflow) -> Decided:
    draft = Draft(NOW)
    change(draft, of)
    return NounsSnapshot(NOW, () if change is begin else (of,)), draft.plan()


situation("workflow: it begins", drafted, begin, workflow("place").with_(due_at=None, version=0))

# --- a look at it -----------------------------------------------------------------------------------------------------

situation(
    "workflow: due, among others",
    decided,
    "poles",
    executions=True,
    comes_to="tent: driver, starts; StartExecution; again in 120 s",
)
situation("workflow: due, waited for by one", decided, "poles", **WAITED)
situation(
    "workflow: due, waited for by one, among others",
    decided,
    "poles",
    executions=True,
    **WAITED,
    comes_to="tent: act_until; DoStep; again in 20 s",
)
situation(
    "workflow: undoing what wasn't needed",
    decided,
    "rug",
    **UNDOING,
    comes_to="tent: step, step_at, act_until; DoStep; again in 20 s",
)
situation("workflow: undoing what can't be", decided, "place", **UNDOING, comes_to="tent undoing → undone (Unfit)")

# --- what came of an attempt ------------------------------------------------------------------------------------------

DONE, WAITS = (
    StepDone(f"workflow/{ID}", ACT_UNTIL, (("poles", "3"),)),
    StepWaits(f"workflow/{ID}", ACT_UNTIL, "no wind"),
)
situation(
    "workflow: place is done, waited for by one",
    tried,
    "place",
    DONE,
    **WAITED,
    failures=2,
    state={"a": "b"},
)
situation(
    "workflow: waiting in its last moment, driven by an execution",
    tried,
    "poles",
    WAITS,
    step_at=NOW - HOUR + 1,
    **WAITED,
    comes_to="tent: act_until; again in 0.000001 s",
)

# --- what an execution asks for ---------------------------------------------------------------------------------------

DO, UNDO = StepCall("poles", token="t2"), StepCall("poles", undo=True)
situation(
    "workflow: asked to undo the poles at place",
    called,
    "place",
    UNDO,
    **CALLED,
    comes_to="tent running → undone (timeout)",
)
situation("workflow: asked for the poles at sheet", called, "sheet", DO, **CALLED, comes_to="nothing")
situation("workflow: asked for by the first execution", called, "poles", DO)
situation(
    "workflow: asked for while an attempt is under way",
    called,
    "poles",
    DO,
    **CALLED,
    act_until=NOW + 1,
    comes_to="nothing",
)
situation(
    "workflow: asked for when it is done", called, "poles", DO, **CALLED, status=WorkflowStatus.done, comes_to="nothing"
)
situation(
    "workflow: asked for when it is undone",
    called,
    "poles",
    DO,
    **CALLED,
    status=WorkflowStatus.undone,
    comes_to="nothing",
)
