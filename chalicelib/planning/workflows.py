"""Workflows: steps in order, each repeatable, and undone in reverse when one fails for good.

A definition only declares its steps; their performers live with the effects. An attempt is committed before it is made,
with the time until which nobody else may make one. If the process dies meanwhile, the first pass after that time makes
the attempt again. So repeating a step must be harmless, and so must undoing one that was begun and never finished.

The unit that a workflow is about creates it, cancels it, and is woken when it ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from chalicelib.domain.events import EventType
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.noun import Noun
from chalicelib.domain.workflows import Workflow, WorkflowStatus
from chalicelib.errors import Bug
from chalicelib.machines.workflow import UNDO_EVERY, UNDO_SELDOM
from chalicelib.planning.failures import meaning
from chalicelib.planning.plan import Effect, Failed, Outcome, Plan
from chalicelib.planning.snapshots import FleetView
from chalicelib.planning.transitions import Draft


@dataclass(frozen=True)
class WorkflowStep:
    name: str
    says: str  # what it does, for people: `install the agent`
    timeout: Micros  # of one attempt; after it the attempt counts as dead and may be repeated
    attempts: int | None = 3  # failures allowed before the workflow is undone; None: unlimited
    pause: Micros = 2 * SECOND  # after a failure; doubled each time
    patience: Micros = 0  # how long it may keep raising NotYet
    look: Micros = SECOND  # the pause after NotYet
    undo: bool = True  # is there anything to undo?
    when: str = ""  # only if an earlier step remembered this


@dataclass(frozen=True)
class Definition:
    name: str
    steps: tuple[WorkflowStep, ...]  # the last is always made

    def named(self, name: str) -> WorkflowStep:
        return next(step for step in self.steps if step.name == name)


@dataclass(frozen=True)
class DoStep(Effect):
    """Make one attempt at a step, or at undoing it."""

    step: str = ""
    undo: bool = False


@dataclass(frozen=True)
class StepDone(Outcome):
    attempt: Micros  # the `act_until` it was committed with
    made: tuple[tuple[str, str], ...] = ()  # ids to remember


@dataclass(frozen=True)
class StepWaits(Outcome):
    """The step is still waiting for something."""

    attempt: Micros
    message: str = ""


@dataclass(frozen=True)
class StepFailed(Failed):
    attempt: Micros = 0


@dataclass(frozen=True)
class WorkflowSnapshot:
    """For `workflow/<id>`, and for the outcome of an attempt."""

    now: Micros
    workflow: Workflow
    definition: Definition

    @property
    def unit(self) -> str:
        return self.workflow.unit

    def nouns(self) -> Iterator[Noun]:
        yield self.workflow

    def views(self) -> tuple[FleetView, ...]:
        return ()


def decide_workflow(snapshot: WorkflowSnapshot) -> Plan:
    """Make the next attempt once no other can be in flight."""
    course = _Course(snapshot)
    workflow = snapshot.workflow
    if workflow.ended:
        return Plan()
    turning = workflow.cancelled and workflow.status is WorkflowStatus.running  # no pause need be kept
    waits = max(workflow.act_until or 0, 0 if turning else workflow.due_at or 0)
    if waits > snapshot.now:
        return Plan(next_wake=waits)
    course.go_on()
    return course.plan()


def decide_step(snapshot: WorkflowSnapshot, outcome: Outcome) -> Plan:
    """What follows from an attempt's outcome. A superseded attempt has no consequences."""
    course = _Course(snapshot)
    if not isinstance(outcome, StepDone | StepWaits | StepFailed):
        raise Bug(f"{outcome} is no outcome of a workflow's step")
    if snapshot.workflow.ended or outcome.attempt != snapshot.workflow.act_until:
        return Plan()
    if isinstance(outcome, StepDone):
        course.done(outcome)
    elif isinstance(outcome, StepWaits):
        course.not_yet(outcome)
    else:
        course.failed(outcome)
    return course.plan()


def begin(draft: Draft, workflow: Workflow) -> Workflow:
    """A new workflow, which the unit it is about saves with its own change."""
    begun = workflow.with_(due_at=draft.now)
    draft.save(begun)
    draft.tell(EventType.created, begun, detail=begun.definition.replace("_", " "))
    draft.wake(begun.unit)
    return begun


def cancel(draft: Draft, workflow: Workflow) -> None:
    """Its result is no longer wanted: undo what it did."""
    if not workflow.ended and not workflow.cancelled:
        draft.save(workflow.with_(cancelled=True, due_at=draft.now))
        draft.wake(workflow.unit)


class _Course:
    """One move of a workflow: the noun so far, and the draft of the step."""

    def __init__(self, snapshot: WorkflowSnapshot) -> None:
        self.now, self.workflow, self.steps = snapshot.now, snapshot.workflow, snapshot.definition.steps
        self.draft = Draft(snapshot.now)

    def plan(self) -> Plan:
        return Plan(() if self.draft.empty else (self.draft.step(),), next_wake=self.workflow.due_at)

    @property
    def _undoing(self) -> bool:
        return self.workflow.status is WorkflowStatus.undoing

    @property
    def _step(self) -> WorkflowStep:
        return self.steps[self.workflow.step]

    def _keep(self, **changes: Any) -> None:
        self.workflow = self.workflow.with_(last_processed_at=self.now, **changes)
        self.draft.save(self.workflow)

    def _move(self, event: str, **changes: Any) -> None:
        self.workflow = self.draft.move_workflow(self.workflow, event, **changes)

    # --- an attempt's outcome ----------------------------------------------------------------------------------------

    def done(self, done: StepDone) -> None:
        type_ = EventType.step_undone if self._undoing else EventType.step_done
        self.draft.tell(type_, self.workflow, detail=self._step.says)
        state = self.workflow.state | dict(done.made)
        step = self.workflow.step + (-1 if self._undoing else 1)
        self._keep(step=step, state=state, failures=0, step_at=self.now, act_until=None)
        if step == len(self.steps) and not self.workflow.cancelled:
            self._end("finished", message="")
        else:
            self.go_on()

    def not_yet(self, waits: StepWaits) -> None:
        step = self._step
        if not self._undoing and self.now >= self.workflow.step_at + step.patience:
            self._unwind("timeout", waits.message or f"{step.says}: it took too long")
            self.go_on()
        else:
            self._keep(act_until=None, due_at=self.now + step.look)

    def failed(self, failed: StepFailed) -> None:
        step, failures = self._step, self.workflow.failures + 1
        self.draft.tell(EventType.failed, self.workflow, reason=failed.error, detail=failed.message[:500])
        most = None if self._undoing else step.attempts
        if most is not None and (failures >= most or not meaning(failed.error).repeat):
            self._unwind(failed.error, failed.message)
            self.go_on()
            return
        first = UNDO_EVERY if self._undoing else step.pause
        pause = min(first << min(failures - 1, 10), UNDO_SELDOM)
        if failed.retry_after is not None:
            pause = max(pause, round(failed.retry_after * SECOND))
        self._keep(failures=failures, message=failed.message, act_until=None, due_at=self.now + pause)

    # --- what comes next ---------------------------------------------------------------------------------------------

    def go_on(self) -> None:
        """The next attempt, or the end."""
        if self.workflow.cancelled and not self._undoing:
            self._unwind(None, "")
        while self.workflow.step >= 0 and self._skipped(self._step):
            self._keep(step=self.workflow.step + (-1 if self._undoing else 1), failures=0, step_at=self.now)
        if self.workflow.step < 0:
            self._end("unwound")
            return
        until = self.now + self._step.timeout
        self._keep(act_until=until, due_at=until)
        workflow = self.workflow
        effect = DoStep(workflow.unit, workflow.backend, until, workflow.project_id, self._step.name, self._undoing)
        self.draft.act(effect)

    def _skipped(self, step: WorkflowStep) -> bool:
        unneeded = step.when != "" and step.when not in self.workflow.state
        return unneeded or (self._undoing and not step.undo)

    def _unwind(self, reason: str | None, message: str) -> None:
        """Undo what was done, starting with the step that may be half done."""
        last = min(self.workflow.step, len(self.steps) - 1)
        self._move("failed", step=last, failures=0, step_at=self.now, act_until=None, reason=reason, message=message)

    def _end(self, event: str, **changes: Any) -> None:
        self._move(event, step=max(self.workflow.step, 0), act_until=None, due_at=None, finished_at=self.now, **changes)
        self.draft.wake(self.workflow.subject)
