"""Step Functions over the plane: executions whose calls to their function, and callbacks to them, may be lost, doubled
or cut off. Each call is a process of its own, as a Lambda's first is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from chalicelib.domain.instants import SECOND
from chalicelib.engine import asl
from chalicelib.engine.effects.executions import send
from chalicelib.engine.execute import Executor
from chalicelib.engine.executions import StartCalls, WorkflowCalls
from chalicelib.engine.reconcile import Reconciler
from chalicelib.engine.workflows import WORKFLOWS
from chalicelib.errors import StorageFull
from chalicelib.planning.kernel.executions import AnswerExecution, StartExecution, StepCall
from tests.simulation.edges import Away
from tests.simulation.world import Crash, World
from tests.world.step_functions import CutOff, StepFunctions

MACHINES = {name: asl.render(definition) for name, definition in WORKFLOWS.items()}

Process = Callable[[], tuple[Reconciler, Executor]]


class Machines(StepFunctions):
    """The state machines of every workflow. `process`: a fresh one, for one call."""

    def __init__(self, world: World, process: Process) -> None:
        super().__init__(MACHINES, world.now, self._called)
        self._world, self._process = world, process
        self._planned: int | None = None

    def all_ended(self) -> bool:
        return all(execution.ended for execution in self.executions.values())

    def take(self, effect: StartExecution | AnswerExecution) -> None:
        if self._world.chance(0.1):
            self._world.note(f"lost: {type(effect).__name__}")
            return
        self._world.after(self._world.some(0.01, 0.5), lambda: self._received(effect))

    def _received(self, effect: StartExecution | AnswerExecution) -> None:
        send(self, effect)
        self._go_on()

    def _go_on(self) -> None:
        self._planned = None
        self.run()
        due = self.next_due
        if due is not None and (self._planned is None or due < self._planned):
            self._planned = due
            self._world.after(max(0.0, (due - self._world.time) / SECOND), self._go_on)

    def _called(self, payload: Mapping[str, Any]) -> Mapping[str, str]:
        if self._world.chance(0.05):
            self._world.note("call doubled")
            self._world.after(self._world.some(0, 2), lambda: self._again(payload))
        answer = self._performed(payload)
        if self._world.chance(0.05):
            self._world.note("reply lost")
            raise CutOff("its reply is lost")
        return answer

    def _again(self, payload: Mapping[str, Any]) -> None:
        """Whatever it answers, nobody hears it."""
        try:
            self._performed(payload)
        except (CutOff, Exception):
            self._world.note("doubled call failed")

    def _performed(self, payload: Mapping[str, Any]) -> Mapping[str, str]:
        call = StepCall(payload["step"], payload["undo"], payload.get("token", ""))
        reconciler, executor = self._process()
        try:
            if _of_a_start(payload["workflow"]):
                return StartCalls(executor, lambda units: reconciler.run(units, kinds=())).call(
                    payload["workflow"], call
                )
            return WorkflowCalls(executor).call(payload["workflow"], call)
        except (Crash, Away, StorageFull) as died:
            raise CutOff(str(died)) from died


def _of_a_start(name: str) -> bool:
    return name.count("-") > 4  # a run's id, and three numbers
