"""What every workflow must stand, generated from its steps: a step made twice, lost, failing before or after it acted,
a cancellation between any two, an undoing that is made twice or fails. In the end all is done, or nothing is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from chalicelib.domain import keys
from chalicelib.domain.instants import HOUR, SECOND
from chalicelib.domain.workflows import Workflow, WorkflowStatus
from chalicelib.engine.effects.acting import Acting
from chalicelib.engine.effects.workflows import Steps
from chalicelib.engine.execute import Executor
from chalicelib.engine.kinds import KINDS, Kinds
from chalicelib.engine.load import Loader
from chalicelib.engine.ports import Performer
from chalicelib.engine.read import Reader
from chalicelib.errors import Transient, Unfit
from chalicelib.planning.plan import Effect
from chalicelib.planning.transitions import Draft
from chalicelib.planning.workflows import Definition, WorkflowSnapshot, begin, cancel
from chalicelib.store import nouns
from tests.world.engine import Engine
from tests.world.ports import Books, accounts


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

    def __init__(self, definition: Definition, bench: Bench, fault: Fault | None, **about: Any) -> None:
        self.engine, self.definition = Engine.in_memory(), definition
        at = self.engine.at
        made = {"id": "w", "project_id": "p", "name": "one", "subject": "instance/i", "backend": "ssh", **about}
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
    def kinds(self) -> Kinds:
        def load(loader: Loader, id: str, now: int) -> WorkflowSnapshot | None:
            found = nouns.find(loader.store, Workflow, keys.workflow(id))
            return None if found is None else WorkflowSnapshot(now, found, self.definition)

        return KINDS.deciding("workflow", load=load)

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
            engine.reconciler(kinds=self.kinds).run([self.workflow.unit])
            effects, engine.effects[:] = list(engine.effects), []
            for effect in effects:
                self.execute(effect)
            if self.workflow.version != before:
                quiet_since = engine.at
            assert engine.at < quiet_since + HOUR, f"it rests for ever: {self.workflow}"
            if not self.workflow.ended:
                engine.at = max(engine.at + 1, self.workflow.due_at or 0)
        return self.workflow

    def execute(self, effect: Effect) -> None:
        here = Acting(
            self.engine.store,
            self.engine,
            accounts(),
            "install",
            b"k" * 32,
            performers={self.definition.name: self.performer},
        )
        load = Loader(Reader(self.engine.store), Books(), accounts())
        try:
            Executor(here, load, wake=self.woken.extend, kinds=self.kinds, families=(Steps,)).execute(effect)
        except Crash:
            self.woken.append("a crash")


def check(definition: Definition, bench: Bench, fault: Fault | None, **about: Any) -> Course:
    """Play it with this fault: it ends as the fault demands; undone, the world is as it was."""
    before = bench.left()
    course = Course(definition, bench, fault, **about)
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
    return course
