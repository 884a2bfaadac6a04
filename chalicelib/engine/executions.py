"""Calls from state machines: each state requests an attempt at a step, and gets an answer from the record.

Rule 1: a call uses the same decisions and handlers as a pass: the attempt is committed and made here, and its outcome
is committed before the call is answered.
Rule 2: the answer is read from the record, so a duplicate call, or one after a lost answer, does nothing twice.
Rule 3: an error is raised under its class name, by which the state machine recognises it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from chalicelib.engine.execute import Executor
from chalicelib.engine.log_context import unit_context
from chalicelib.planning.kernel.executions import CANCELLED, StepAnswer, StepCall
from chalicelib.planning.kernel.workflows import decide_call, step_answer
from chalicelib.planning.placing.gang_workflow import GangStart
from chalicelib.planning.runs.gang_executions import await_stage, give_up, start_answer


class WorkflowCalls:
    """Calls for workflows that have a record of their own."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def call(self, workflow_id: str, call: StepCall) -> Mapping[str, str]:
        """Everything that the workflow has stored; empty if the state has to wait for its callback."""
        executor, unit = self._executor, f"workflow/{workflow_id}"
        with unit_context(unit):
            executor.take(unit, lambda snapshot: decide_call(snapshot, call))
        snapshot = executor.load.workflow(workflow_id, executor.here.clock.now())
        gone = StepAnswer(error=CANCELLED, message=f"workflow {workflow_id} no longer exists")
        return _response(executor, call, gone if snapshot is None else step_answer(snapshot, call))


class StartCalls:
    """Calls for starts of multi-node tasks, whose records are their gangs."""

    def __init__(self, executor: Executor, run_pass: Callable[[Sequence[str]], object]) -> None:
        """`run_pass`: runs a pass over these units, and the ones that they wake."""
        self._executor, self._run_pass = executor, run_pass

    def call(self, name: str, call: StepCall) -> Mapping[str, str]:
        start = GangStart.named(name)
        with unit_context(f"run/{start.run_id}"):
            return self._call(start, call)

    def _call(self, start: GangStart, call: StepCall) -> Mapping[str, str]:
        executor = self._executor
        unit, now = f"run/{start.run_id}", executor.here.clock.now
        if call.undo:
            executor.take(unit, lambda snapshot: give_up(snapshot, start, call))
        snapshot = executor.load.run(start.run_id, now())
        if snapshot is not None:
            self._run_pass([f"queue/{snapshot.run.project_id}", unit])
            executor.take(unit, lambda snapshot: await_stage(snapshot, start, call))
            snapshot = executor.load.run(start.run_id, now())
        cancelled = StepAnswer(error=CANCELLED, message=f"run {start.run_id} no longer exists")
        gone = StepAnswer({}) if call.undo else cancelled
        return _response(executor, call, gone if snapshot is None else start_answer(snapshot, start, call))


def _response(executor: Executor, call: StepCall, answer: StepAnswer) -> Mapping[str, str]:
    """The answer as the function of the state returns or raises it."""
    if answer.error:
        raise failure(answer)
    if answer.created is None:
        return {}
    if call.token and executor.here.executions is not None:
        executor.here.executions.succeed(call.token, answer.created)  # such a state reacts to the callback only
    return answer.created


def failure(answer: StepAnswer) -> Exception:
    """An exception whose class has the error's name, because Lambda reports that name."""
    error: Exception = type(answer.error, (Exception,), {})(answer.message or answer.error)
    return error
