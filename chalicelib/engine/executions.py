"""What a state machine's function does: the attempt that its state asks for, and the record's answer.

Rule 1: it uses the same decisions and the same handlers as the looks do: the attempt is committed, made here, and its
outcome is committed before anything is answered.
Rule 2: the answer is read from the record, so a doubled call, or one after a lost answer, does nothing twice.
Rule 3: an error is raised under its class name, by which the state machine knows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from chalicelib.engine.execute import Executor
from chalicelib.engine.log_context import about
from chalicelib.planning.kernel.executions import CANCELLED, StepAnswer, StepCall
from chalicelib.planning.kernel.workflows import decide_call, step_answer
from chalicelib.planning.placing.gang_workflow import GangStart
from chalicelib.planning.runs.gang_executions import await_stage, give_up, start_answer


class Driving:
    """Of workflows that have a record."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def call(self, workflow_id: str, call: StepCall) -> Mapping[str, str]:
        """All that the workflow remembers; nothing yet if the state waits for its callback."""
        executor, unit = self._executor, f"workflow/{workflow_id}"
        with about(unit):
            executor.take(unit, lambda snapshot: decide_call(snapshot, call))
        snapshot = executor.load.workflow(workflow_id, executor.here.clock.now())
        gone = StepAnswer(error=CANCELLED, message=f"workflow {workflow_id} no longer exists")
        return told(executor, call, gone if snapshot is None else step_answer(snapshot, call))


class Starting:
    """Of starts of tasks on several nodes, whose records are their gangs'."""

    def __init__(self, executor: Executor, look: Callable[[Sequence[str]], object]) -> None:
        """`look`: a pass over these units, and those that they wake."""
        self._executor, self._look = executor, look

    def call(self, name: str, call: StepCall) -> Mapping[str, str]:
        start = GangStart.named(name)
        with about(f"run/{start.run_id}"):
            return self._call(start, call)

    def _call(self, start: GangStart, call: StepCall) -> Mapping[str, str]:
        executor = self._executor
        unit, now = f"run/{start.run_id}", executor.here.clock.now
        if call.undo:
            executor.take(unit, lambda snapshot: give_up(snapshot, start, call))
        snapshot = executor.load.run(start.run_id, now())
        if snapshot is not None:
            self._look([f"queue/{snapshot.run.project_id}", unit])
            executor.take(unit, lambda snapshot: await_stage(snapshot, start, call))
            snapshot = executor.load.run(start.run_id, now())
        cancelled = StepAnswer(error=CANCELLED, message=f"run {start.run_id} no longer exists")
        gone = StepAnswer({}) if call.undo else cancelled
        return told(executor, call, gone if snapshot is None else start_answer(snapshot, start, call))


def told(executor: Executor, call: StepCall, answer: StepAnswer) -> Mapping[str, str]:
    """The answer as the state's function gives it."""
    if answer.error:
        raise failure(answer)
    if answer.made is None:
        return {}
    if call.token and executor.here.executions is not None:
        executor.here.executions.succeed(call.token, answer.made)  # a callback is all that such a state heeds
    return answer.made


def failure(answer: StepAnswer) -> Exception:
    """Lambda reports the name of an exception's class."""
    made: Exception = type(answer.error, (Exception,), {})(answer.message or answer.error)
    return made
