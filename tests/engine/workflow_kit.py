"""What every workflow must stand, generated from its steps: a step made twice, lost, failing before or after it acted,
a cancellation between any two, an undoing that is made twice or fails. In the end all is done, or nothing is left.

The engine's looks drive it, or an execution of its state machine: both must stand the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from chalicelib.domain import keys
from chalicelib.domain.instants import HOUR, SECOND
from chalicelib.domain.workflows import Driver, Workflow, WorkflowStatus
from chalicelib.engine import asl
from chalicelib.engine.effects.context import EffectContext
from chalicelib.engine.effects.executions import ExecutionMessages
from chalicelib.engine.effects.workflows import StepEffects
from chalicelib.engine.execute import Executor
from chalicelib.engine.executions import WorkflowCalls
from chalicelib.engine.load import Loader
from chalicelib.engine.ports import Performer
from chalicelib.engine.read import Reader
from chalicelib.errors import Transient, Unfit
from chalicelib.planning.kernel.executions import StepCall
from chalicelib.planning.kernel.plan import Effect
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.kernel.workflows import Definition, begin, cancel
from chalicelib.store import nouns
from tests.world.engine import Engine
from tests.world.ports import Books, accounts
from tests.world.step_functions import CutOff, StepFunctions


class Bench(Protocol):
    """A world that a workflow changes."""

    performer: Performer

    def left(self) -> object:
        """All of the world that the workflow may change, to be compared."""


@dataclass(frozen=True)
class Fault:
    """What goes wrong, once, at this step."""

    kind: str
    step: str
    undo: bool = False

    def __str__(self) -> str:
        return f"{self.kind}-{'undoing-' if self.undo else ''}{self.step}"


class Crash(BaseException):
    """The process dies. No handler catches it."""


# What each fault must end in.
KINDS_OF_FAULT: Mapping[str, WorkflowStatus] = {
    "lost": WorkflowStatus.done,  # the process dies between the commit and the attempt
    "unanswered": WorkflowStatus.done,  # it dies after the attempt, before its outcome is committed
    "hiccup": WorkflowStatus.done,  # the attempt fails, the next doesn't
    "hiccup after": WorkflowStatus.done,  # it acts and fails all the same
    "refused": WorkflowStatus.undone,  # it fails for good
    "refused after": WorkflowStatus.undone,
    "cancelled": WorkflowStatus.undone,  # while it begins
    "cancelled after": WorkflowStatus.undone,  # it acted, and its outcome isn't committed yet
}
_OF_UNDOING = ("lost", "unanswered", "hiccup", "hiccup after", "refused", "refused after")


def faults(definition: Definition) -> Iterator[Fault]:
    for step in definition.steps:
        for kind in KINDS_OF_FAULT:
            yield Fault(kind, step.name)
        if step.undo:
            for kind in _OF_UNDOING:
                yield Fault(kind, step.name, undo=True)


@dataclass
class Faulty:
    """A performer between whose steps something happens once."""

    inner: Performer
    fault: Fault | None
    cancel: Callable[[], None]
    passes: Callable[[], None]  # time, with every step
    made: list[tuple[str, bool]] = field(default_factory=list)  # every step performed, in order

    def do(self, step: str, workflow: Workflow) -> Mapping[str, str] | None:
        return self._made(step, False, lambda: self.inner.do(step, workflow))

    def undo(self, step: str, workflow: Workflow) -> Mapping[str, str] | None:
        return self._made(step, True, lambda: self.inner.undo(step, workflow))

    def _made(self, step: str, undo: bool, act: Callable[[], Mapping[str, str] | None]) -> Mapping[str, str] | None:
        self.passes()
        hit = self.fault is not None and (self.fault.step, self.fault.undo) == (step, undo)
        kind = self.fault.kind if self.fault is not None and hit else ""
        if kind in _BEFORE:
            self.fault = None
            self._happens(kind)
        answer = act()  # a step that isn't ready yet keeps what is to happen after it
        self.made.append((step, undo))
        if kind and kind not in _BEFORE:
            self.fault = None
            self._happens(kind.removesuffix(" after"))
        return answer

    def _happens(self, kind: str) -> None:
        if kind == "cancelled":
            self.cancel()
        else:
            raise _ERRORS[kind](kind)


_BEFORE = ("lost", "cancelled", "hiccup", "refused")
_ERRORS: Mapping[str, type[BaseException]] = {
    "lost": Crash,
    "unanswered": Crash,
    "hiccup": Transient,
    "refused": Unfit,
}


class Course:
    """One workflow from its beginning to its end, on virtual time."""

    def __init__(
        self,
        definition: Definition,
        bench: Bench,
        fault: Fault | None,
        driver: Driver = Driver.passes,
        **fields: Any,
    ) -> None:
        self.engine, self.definition, self.driver = Engine.in_memory(), definition, driver
        machines = {definition.name: asl.render(definition)}
        self.executions = StepFunctions(machines, self.engine.clock.now, self.invoked)
        at = self.engine.at
        made = {"id": "w", "project_id": "p", "name": "one", "subject": "instance/i", "backend": "ssh", **fields}
        draft = Draft(at)
        begin(draft, Workflow(definition=definition.name, began_at=at, step_at=at, last_processed_at=at, **made))
        self.id = made["id"]
        step = draft.step()
        self.engine.store.commit([nouns.put(noun) for noun in (*step.saves, *step.events)])
        self.performer = Faulty(
            bench.performer, None if fault is None or fault.undo else fault, self.cancel, self.passes
        )
        self.woken = self.engine.woken

    @property
    def workflow(self) -> Workflow:
        found = nouns.find(self.engine.store, Workflow, keys.workflow(self.id))
        assert found is not None
        return found

    @property
    def load(self) -> Loader:
        declared = {self.definition.name: self.definition}
        driven = self.driver is Driver.execution
        return Loader(Reader(self.engine.store), Books(), accounts(), declared, executions=driven)

    @property
    def executor(self) -> Executor:
        here = EffectContext(
            self.engine.store,
            self.engine,
            accounts(),
            "install",
            b"k" * 32,
            performers={self.definition.name: self.performer},
            executions=self.executions if self.driver is Driver.execution else None,
        )
        return Executor(here, self.load, wake=self.woken.extend, families=(StepEffects, ExecutionMessages))

    def invoked(self, payload: Mapping[str, Any]) -> Mapping[str, str]:
        """What the state machine's function does."""
        call = StepCall(payload["step"], payload["undo"], payload.get("token", ""))
        try:
            return WorkflowCalls(self.executor).call(payload["workflow"], call)
        except Crash as crash:
            raise CutOff(str(crash)) from crash

    def passes(self) -> None:
        self.engine.at += SECOND // 100

    def cancel(self) -> None:
        draft = Draft(self.engine.at)
        cancel(draft, self.workflow)
        if not draft.empty:
            self.engine.store.commit([nouns.put(noun) for noun in draft.step().saves])

    def play(self) -> Workflow:
        """Until it ends. After an hour without a step it would never end."""
        engine, quiet_since = self.engine, self.engine.at
        while not self.workflow.ended:
            before = self.workflow.version
            self.take_pass()
            self.executions.run()
            if self.workflow.version != before:
                quiet_since = engine.at
            assert engine.at < quiet_since + HOUR, f"it rests for ever: {self.workflow}"
            if not self.workflow.ended:
                due = [at for at in (self.workflow.due_at, self.executions.next_due) if at is not None]
                engine.at = max(engine.at + 1, min(due, default=0))
        return self.workflow

    def drain(self) -> None:
        """Until its execution has ended, too."""
        while (due := self.executions.next_due) is not None:
            self.engine.at = max(self.engine.at, due)
            self.executions.run()

    def take_pass(self) -> None:
        """A pass of the engine, and the effects that it intends."""
        self.engine.reconciler(load=self.load).run([self.workflow.unit])
        effects, self.engine.effects[:] = list(self.engine.effects), []
        for effect in effects:
            self.execute(effect)

    def execute(self, effect: Effect) -> None:
        try:
            self.executor.execute(effect)
        except Crash:
            self.woken.append("a crash")


def check(
    definition: Definition, bench: Bench, fault: Fault | None, driver: Driver = Driver.passes, **fields: Any
) -> Course:
    """Play it with this fault: it ends as the fault demands; undone, the world is as it was."""
    before = bench.left()
    course = Course(definition, bench, fault, driver, **fields)
    wanted = WorkflowStatus.done if fault is None else KINDS_OF_FAULT[fault.kind]
    if fault is not None and fault.undo:  # it is undone because its last step is refused after it acted
        wanted = WorkflowStatus.undone
        course.performer.fault = Fault("refused after", definition.steps[-1].name)
        course.performer.inner = Faulty(bench.performer, fault, course.cancel, course.passes)
    ended = course.play()
    assert ended.status is wanted, f"{fault}: {ended.status}, {ended.reason}: {ended.message}"
    if wanted is WorkflowStatus.undone:
        assert bench.left() == before, f"{fault} leaves something behind"
    assert ended.due_at is None
    assert ended.subject in course.woken, "whoever waits for it is woken"
    if driver is Driver.execution:
        course.drain()
        (execution,) = course.executions.executions.values()
        assert execution.ended == ("SUCCEEDED" if wanted is WorkflowStatus.done else "FAILED"), fault
        assert ended.driver is Driver.execution, "it needed no help"
    return course
