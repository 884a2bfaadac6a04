"""Workflows: steps in order, each repeatable, and undone in reverse when one fails for good.

A definition only declares its steps; their performers live with the effects. An attempt is committed before it is made,
with the time until which nobody else may make one. If the process dies meanwhile, the first pass after that time makes
the attempt again. So repeating a step must be harmless, as must undoing one that was begun and never finished.

The unit that a workflow belongs to creates it, cancels it, and is woken when it ends.

Attempts are made by the engine's passes or, where there are state machines, at the request of an execution. The record
says which of them drives the workflow. Either way an attempt is committed first, so two are never made at once. If no
request comes in time, another execution is started; in the end the passes take over. An execution that comes later
continues from the stored record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from chalicelib.domain.events import EventType
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.noun import Noun
from chalicelib.domain.workflows import Driver, Workflow, WorkflowStatus
from chalicelib.errors import Bug
from chalicelib.machines.workflow import (
    CALL_DUE_WITHIN,
    CHECK_STEP_EVERY,
    MOST_STARTS,
    UNDO_EVERY,
    UNDO_SELDOM,
    WORKFLOW,
)
from chalicelib.planning.kernel.executions import (
    BEHIND,
    NOT_YET,
    StartExecution,
    StepAnswer,
    StepCall,
    answer_execution,
    refusal,
)
from chalicelib.planning.kernel.failures import meaning
from chalicelib.planning.kernel.plan import Effect, Failed, Outcome, Plan
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.kernel.transitions import Draft


@dataclass(frozen=True)
class WorkflowStep:
    name: str
    description: str  # for people: `install the agent`
    timeout: Micros  # of one attempt, which may be repeated afterwards
    attempts: int | None = 3  # failures allowed before the workflow is undone; None: unlimited
    pause: Micros = 2 * SECOND  # after a failure; doubled each time
    patience: Micros = 0  # how long it may keep raising NotYet
    poll_pause: Micros = SECOND  # the pause after NotYet
    undo: bool = True  # is there anything to undo?
    when: str = ""  # the step is skipped unless an earlier one saved an id under this key


@dataclass(frozen=True)
class Definition:
    name: str
    steps: tuple[WorkflowStep, ...]  # the last is never skipped

    def named(self, name: str) -> WorkflowStep:
        return self.steps[self.index(name)]

    def index(self, name: str) -> int:
        found = [at for at, step in enumerate(self.steps) if step.name == name]
        if not found:
            raise Bug(f"{self.name} has no step {name!r}")
        return found[0]


@dataclass(frozen=True)
class DoStep(Effect):
    """Make one attempt at a step, or at undoing it."""

    step: str = ""
    undo: bool = False


@dataclass(frozen=True)
class StepDone(Outcome):
    attempt: Micros  # the `act_until` it was committed with
    created: tuple[tuple[str, str], ...] = ()  # ids to store in the workflow's state


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
    executions: bool = False  # whether there are state machines

    @property
    def unit(self) -> str:
        return self.workflow.unit

    def nouns(self) -> Iterator[Noun]:
        yield self.workflow

    def views(self) -> tuple[FleetView, ...]:
        return ()


def decide_workflow(snapshot: WorkflowSnapshot) -> Plan:
    """Make the next attempt once no other can be in flight."""
    this = _WorkflowPass(snapshot)
    workflow = snapshot.workflow
    if workflow.ended:
        return Plan()
    just_cancelled = workflow.cancelled and workflow.status is WorkflowStatus.running
    due_now = just_cancelled or bool(workflow.token)  # a callback is awaited, and the condition may be met
    waits = max(workflow.act_until or 0, 0 if due_now else workflow.due_at or 0)
    if waits > snapshot.now:
        return Plan(next_wake=waits)
    this.take_turn(snapshot.executions)
    return this.plan()


def decide_call(snapshot: WorkflowSnapshot, call: StepCall) -> Plan:
    """The attempt that a state requests, unless another may be in flight or the step needs none any more."""
    if step_answer(snapshot, call).settled or (snapshot.workflow.act_until or 0) > snapshot.now:
        return Plan()
    this = _WorkflowPass(snapshot)
    this.on_call(call, snapshot.definition.index(call.step))
    return this.plan()


def step_answer(snapshot: WorkflowSnapshot, call: StepCall) -> StepAnswer:
    """The answer to a state's request, according to the stored record."""
    workflow, at = snapshot.workflow, snapshot.definition.index(call.step)
    undoing, running = workflow.status is WorkflowStatus.undoing, workflow.status is WorkflowStatus.running
    if workflow.status is WorkflowStatus.done or (workflow.ended and call.undo):
        return StepAnswer(workflow.state, settled=True)
    if not call.undo and not running:
        return refusal(workflow.reason, workflow.message)
    if (undoing and workflow.step < at) if call.undo else workflow.step > at:
        return StepAnswer(workflow.state, settled=True)
    if (workflow.act_until or 0) > snapshot.now or workflow.step != at or undoing != call.undo:
        return StepAnswer(error=BEHIND, message=f"{workflow.name} is at another attempt")
    if call.token and workflow.token == call.token:
        return StepAnswer()
    return StepAnswer(error=(None if call.undo else workflow.reason) or NOT_YET, message=workflow.message)


def decide_step(snapshot: WorkflowSnapshot, outcome: Outcome) -> Plan:
    """Apply the outcome of an attempt. One that was superseded has no consequences."""
    this = _WorkflowPass(snapshot)
    if not isinstance(outcome, StepDone | StepWaits | StepFailed):
        raise Bug(f"{outcome} is no outcome of a workflow's step")
    if snapshot.workflow.ended or outcome.attempt != snapshot.workflow.act_until:
        return Plan()
    if isinstance(outcome, StepDone):
        this.done(outcome)
    elif isinstance(outcome, StepWaits):
        this.waiting(outcome)
    else:
        this.failed(outcome)
    return this.plan()


def begin(draft: Draft, workflow: Workflow) -> Workflow:
    """Start a workflow, in the step in which its unit saves its own change."""
    begun = workflow.with_(due_at=draft.now)
    draft.save(begun)
    draft.record(EventType.created, begun, detail=begun.definition.replace("_", " "))
    draft.wake(begun.unit)
    return begun


def cancel(draft: Draft, workflow: Workflow) -> None:
    """Have the workflow undone, because its result is no longer wanted."""
    if not workflow.ended and not workflow.cancelled:
        draft.save(workflow.with_(cancelled=True, due_at=draft.now))
        draft.wake(workflow.unit)


class _WorkflowPass:
    """One pass over a workflow: its noun so far, and the draft of the step."""

    def __init__(self, snapshot: WorkflowSnapshot) -> None:
        self.now, self.workflow, self.steps = snapshot.now, snapshot.workflow, snapshot.definition.steps
        self.draft, self._awaited = Draft(snapshot.now), self._position

    @property
    def _position(self) -> tuple[int, WorkflowStatus]:
        return self.workflow.step, self.workflow.status

    def plan(self) -> Plan:
        if self.workflow.token and self._position != self._awaited:
            done = self.workflow.status in (WorkflowStatus.running, WorkflowStatus.done)
            why = refusal(self.workflow.reason, self.workflow.message)
            self._answer(StepAnswer(self.workflow.state) if done else why)
        return Plan(() if self.draft.empty else (self.draft.step(),), next_wake=self.workflow.due_at)

    @property
    def _undoing(self) -> bool:
        return self.workflow.status is WorkflowStatus.undoing

    @property
    def _step(self) -> WorkflowStep:
        return self.steps[self.workflow.step]

    def _update(self, **changes: Any) -> None:
        self.workflow = self.workflow.with_(last_processed_at=self.now, **changes)
        self.draft.save(self.workflow)

    def _move(self, event: str, **changes: Any) -> None:
        self.workflow = self.draft.move(WORKFLOW, self.workflow, event, **changes)

    def _answer(self, answer: StepAnswer) -> None:
        """Send the callback if an execution waits for this step. It then requests the next step itself."""
        workflow = self.workflow
        if workflow.token:
            effect_fields = workflow.unit, workflow.backend, self.now + CALL_DUE_WITHIN, workflow.project_id
            self.draft.act(answer_execution(effect_fields, workflow.token, answer))
            self._update(token="")

    # --- an attempt's outcome ----------------------------------------------------------------------------------------

    def done(self, done: StepDone) -> None:
        type_ = EventType.step_undone if self._undoing else EventType.step_done
        self.draft.record(type_, self.workflow, detail=self._step.description)
        state = self.workflow.state | dict(done.created)
        if self.workflow.cancelled and not self._undoing:  # the next one was never begun
            self._update(state=state)
            self.proceed()
            return
        step = self.workflow.step + (-1 if self._undoing else 1)
        reason = self.workflow.reason if self._undoing else None
        self._update(step=step, state=state, failures=0, reason=reason, step_at=self.now, act_until=None)
        if step == len(self.steps):
            self._end("finished", message="")
        else:
            self.proceed()

    def waiting(self, waits: StepWaits) -> None:
        step = self._step
        if not self._undoing and self.now >= self.workflow.step_at + step.patience:
            self._unwind("timeout", waits.message or f"{step.description}: it took too long")
            self.proceed()
        elif self.workflow.token:
            self._update(act_until=None, due_at=min(self.workflow.step_at + step.patience, self.now + CHECK_STEP_EVERY))
        else:
            self._repeat_in(step.poll_pause)

    def failed(self, failed: StepFailed) -> None:
        step, failures = self._step, self.workflow.failures + 1
        self.draft.record(EventType.failed, self.workflow, reason=failed.error, detail=failed.message[:500])
        most = None if self._undoing else step.attempts
        if most is not None and (failures >= most or not meaning(failed.error).repeat):
            self._unwind(failed.error, failed.message)
            self.proceed()
            return
        first = UNDO_EVERY if self._undoing else step.pause
        pause = min(first << min(failures - 1, 10), UNDO_SELDOM)
        if failed.retry_after is not None:
            pause = max(pause, round(failed.retry_after * SECOND))
        reason = self.workflow.reason if self._undoing else failed.error
        self._answer(StepAnswer(error=failed.error, message=failed.message))
        self._update(failures=failures, reason=reason, message=failed.message)
        self._repeat_in(pause)

    # --- who drives it -----------------------------------------------------------------------------------------------

    def take_turn(self, executions: bool) -> None:
        """A pass of the engine: make the next attempt, or (re)start the execution that drives the workflow."""
        workflow = self.workflow
        if not executions or workflow.starts >= MOST_STARTS:
            if workflow.driver is not Driver.passes:
                self.workflow = workflow.with_(driver=Driver.passes, token="", step_at=self.now)
            self.proceed(requested=True)
        elif workflow.token or (workflow.cancelled and not self._undoing and workflow.starts):
            self.proceed(requested=bool(workflow.token))
        else:
            until, starts = self.now + CALL_DUE_WITHIN, workflow.starts + 1
            self._update(driver=Driver.execution, starts=starts, act_until=None, due_at=until)
            name = workflow.definition, workflow.id
            self.draft.act(StartExecution(workflow.unit, workflow.backend, until, workflow.project_id, *name))

    def on_call(self, call: StepCall, at: int) -> None:
        """An execution requests this step. If it requests the undoing of a step that is still running, it has given the
        step up."""
        waits = call.token if not call.undo and self.workflow.step == at else ""
        self.workflow = self.workflow.with_(driver=Driver.execution, starts=1, token=waits)
        self._awaited = self._position
        if call.undo and not self._undoing:
            self._unwind("timeout", f"{self._step.description}: no attempt has answered")
        self.proceed(requested=True)

    # --- what comes next ---------------------------------------------------------------------------------------------

    def proceed(self, *, requested: bool = False) -> None:
        """End the workflow, or make its next attempt. With an execution, that is made once it is requested."""
        if self.workflow.cancelled and not self._undoing:
            self._unwind(None, "")
            requested = False
        while self.workflow.step >= 0 and self._skipped(self._step):
            self._update(step=self.workflow.step + (-1 if self._undoing else 1), failures=0, step_at=self.now)
        if self.workflow.step < 0:
            self._end("unwound")
        elif requested or self.workflow.driver is Driver.passes:
            self._attempt()
        else:
            self._repeat_in(0)

    def _repeat_in(self, pause: Micros) -> None:
        """Schedule the next attempt. An execution keeps its own pauses; the pass only checks that it still runs."""
        driven = self.workflow.driver is Driver.execution
        self._update(act_until=None, due_at=self.now + pause + (CALL_DUE_WITHIN if driven else 0))

    def _attempt(self) -> None:
        until = self.now + self._step.timeout
        self._update(act_until=until, due_at=until)
        workflow = self.workflow
        effect = DoStep(workflow.unit, workflow.backend, until, workflow.project_id, self._step.name, self._undoing)
        self.draft.act(effect)

    def _skipped(self, step: WorkflowStep) -> bool:
        unneeded = step.when != "" and step.when not in self.workflow.state
        return unneeded or (self._undoing and not step.undo)

    def _unwind(self, reason: str | None, message: str) -> None:
        """Undo the steps that were done, starting with the one that may be half done."""
        self._move("failed", failures=0, step_at=self.now, act_until=None, reason=reason, message=message)

    def _end(self, event: str, **changes: Any) -> None:
        self._move(event, step=max(self.workflow.step, 0), act_until=None, due_at=None, finished_at=self.now, **changes)
        self.draft.wake(self.workflow.subject)
