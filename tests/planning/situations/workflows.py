"""Workflows: each look at one, each outcome of an attempt, and each question of an execution."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from chalicelib.domain.instants import HOUR, MINUTE, SECOND
from chalicelib.domain.workflows import Driver, Workflow, WorkflowStatus, workflow_id
from chalicelib.planning.kernel.executions import StepCall
from chalicelib.planning.kernel.snapshot import NounsSnapshot
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.kernel.workflows import (
    MOST_STARTS,
    Definition,
    StepDone,
    StepFailed,
    StepWaits,
    WorkflowSnapshot,
    WorkflowStep,
    begin,
    cancel,
    decide_call,
    decide_step,
    decide_workflow,
)
from tests.planning.situations.kit import BEFORE, NOW, Decided, situation
from tests.world import nouns as b

LATER = NOW + MINUTE
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
CANCELLED: dict[str, Any] = {"cancelled": True}


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


def looked_at(step: str, *, executions: bool = False, **fields: Any) -> Decided:
    seen = snapshot(workflow(step, **fields), executions=executions)
    return seen, decide_workflow(seen)


def tried(step: str, outcome: Any, **fields: Any) -> Decided:
    seen = snapshot(workflow(step, **{"act_until": LATER, "due_at": LATER, **fields}))
    return seen, decide_step(seen, outcome)


def called(step: str, call: StepCall, **fields: Any) -> Decided:
    seen = snapshot(workflow(step, **fields), executions=True)
    return seen, decide_call(seen, call)


def drafted(change: Any, of: Workflow) -> Decided:
    draft = Draft(NOW)
    change(draft, of)
    return NounsSnapshot(NOW, () if change is begin else (of,)), draft.plan()


situation("workflow: it begins", drafted, begin, workflow("place").with_(due_at=None, version=0))
for name, fields in (("runs", {}), ("is cancelled", CANCELLED), ("has ended", {"status": WorkflowStatus.done})):
    situation(f"workflow: cancelled when it {name}", drafted, cancel, workflow("poles", **fields))

# --- a look at it -----------------------------------------------------------------------------------------------------

for name, fields in (("", {}), (", driven by an execution", CALLED), (", waited for by one", WAITED)):
    situation(f"workflow: due{name}", looked_at, "poles", **fields)
    situation(f"workflow: due{name}, among others", looked_at, "poles", executions=True, **fields)
    for what, more in (("cancelled", CANCELLED), ("undoing", UNDOING)):
        for executions in (False, True):
            whose = " among others" if executions else ""
            situation(f"workflow: {what}{name}{whose}", looked_at, "sheet", executions=executions, **{**fields, **more})
    situation(f"workflow: not due{name}", looked_at, "poles", **{**fields, "due_at": NOW + 1})
    situation(
        f"workflow: cancelled, and not due{name}", looked_at, "poles", **{**fields, **CANCELLED, "due_at": NOW + 1}
    )
    situation(
        f"workflow: undoing, and not due{name}",
        looked_at,
        "poles",
        **{**fields, **CANCELLED, **UNDOING, "due_at": NOW + 1},
    )
    situation(f"workflow: an attempt is under way{name}", looked_at, "poles", **{**fields, "act_until": NOW + 1})
    situation(f"workflow: an attempt has had its time{name}", looked_at, "poles", **{**fields, "act_until": NOW})
for starts in (1, MOST_STARTS - 1, MOST_STARTS):
    situation(
        f"workflow: {starts} executions came to nothing",
        looked_at,
        "poles",
        executions=True,
        **{**CALLED, "starts": starts},
    )
for ended in (WorkflowStatus.done, WorkflowStatus.undone):
    situation(f"workflow: {ended.value}", looked_at, "poles", status=ended, due_at=None)
situation("workflow: a step that isn't needed", looked_at, "rug", failures=2)
situation("workflow: a step that is needed", looked_at, "rug", state={"rug": "1"})
situation("workflow: undoing what wasn't needed", looked_at, "rug", **UNDOING)
situation("workflow: undoing what can't be", looked_at, "place", **UNDOING)

# --- what came of an attempt ------------------------------------------------------------------------------------------

DONE, WAITS = StepDone(f"workflow/{ID}", LATER, (("poles", "3"),)), StepWaits(f"workflow/{ID}", LATER, "no wind")
for name, fields in (("", {}), (", driven by an execution", CALLED), (", waited for by one", WAITED)):
    for what, more in (("", {}), (", cancelled", CANCELLED), (", undoing", UNDOING)):
        both = {**fields, **more, "failures": 2, "state": {"a": "b"}}
        for step in ("place", "poles", "sheet"):
            situation(f"workflow: {step} is done{name}{what}", tried, step, DONE, **both)
        situation(f"workflow: waiting{name}{what}", tried, "poles", WAITS, **both)
        late = {**both, "step_at": NOW - HOUR}
        situation(f"workflow: waiting for too long{name}{what}", tried, "poles", WAITS, **late)
        for error in ("Transient", "Unfit"):
            failed = StepFailed(f"workflow/{ID}", error, "x" * 600, None, LATER)
            for failures in (0, 2):
                told = f"workflow: {error} after {failures} failures{name}{what}"
                situation(told, tried, "poles", failed, **{**both, "failures": failures})
silent, patient = replace(WAITS, message=""), {"step_at": NOW - HOUR + 1}
situation("workflow: waiting for too long, and not for what", tried, "poles", silent, step_at=NOW - HOUR)
situation("workflow: waiting in its last moment", tried, "poles", WAITS, **patient)
situation("workflow: waiting in its last moment, driven by an execution", tried, "poles", WAITS, **patient, **WAITED)
for wait in (0.5, 90.0):
    failed = StepFailed(f"workflow/{ID}", "Throttled", "no", wait, LATER)
    situation(f"workflow: a failure, to be tried again after {wait}", tried, "poles", failed)
for failures in (1, 8, 30):
    failed = StepFailed(f"workflow/{ID}", "Transient", "no", None, LATER)
    situation(f"workflow: undoing failed {failures} times", tried, "poles", failed, **UNDOING, failures=failures)
situation("workflow: an attempt that was overtaken", tried, "poles", replace(DONE, attempt=LATER - 1))
situation("workflow: an attempt that comes after its end", tried, "poles", DONE, status=WorkflowStatus.undone)

# --- what an execution asks for ---------------------------------------------------------------------------------------

DO, UNDO = StepCall("poles", token="t2"), StepCall("poles", undo=True)
for name, fields in (
    ("", CALLED),
    (", which waits", WAITED),
    (", cancelled", {**CALLED, **CANCELLED}),
    (", undoing", {**CALLED, **UNDOING}),
):
    for at in ("place", "poles", "sheet"):
        situation(f"workflow: asked for the poles at {at}{name}", called, at, DO, **{**CALLED, **fields})
        situation(f"workflow: asked to undo the poles at {at}{name}", called, at, UNDO, **{**CALLED, **fields})
situation("workflow: asked for by the first execution", called, "poles", DO)
situation("workflow: asked for while an attempt is under way", called, "poles", DO, **CALLED, act_until=NOW + 1)
situation("workflow: asked for when an attempt has had its time", called, "poles", DO, **CALLED, act_until=NOW)
for ended in (WorkflowStatus.done, WorkflowStatus.undone):
    situation(f"workflow: asked for when it is {ended.value}", called, "poles", DO, **CALLED, status=ended)
    situation(f"workflow: asked to undo it when it is {ended.value}", called, "poles", UNDO, **CALLED, status=ended)
