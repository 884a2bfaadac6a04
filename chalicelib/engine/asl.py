"""A workflow's definition as a state machine of AWS Step Functions, in the Amazon States Language.

One execution is one workflow. Its input, `{"workflow": "<id>", "at": "", "made": {"all": {}}}`, names the record; the
states invoke the function of the definition's performer, which reads everything else by that id and answers with all
that the workflow remembers by then. So what travels between states stays small, whatever the fleet's size.

Rule 1: a step's failures are repeated as `planning/kernel/failures.py` says, by the errors' class names, which Lambda
reports.
Rule 2: whatever ends a step for good leads to the undoing of that step, then of those before it, to the last.
Rule 3: nothing polls. A step with patience is started once and waits for its callback; only failures are repeated. The
        record ends the waiting. If the callback is lost, the state asks once more, and the record answers at once.
Rule 4: an attempt of a workflow that is being undone fails with `Cancelled`, which is never repeated: so does this.
Rule 5: `Behind` isn't the step's failure: another attempt may be in flight. The state asks again until that one's time
        is up.
Rule 6: a call that Lambda didn't take, because the account or the function has no execution free, is no attempt. The
        state calls again until it is taken, at moments that no other execution's are likely to share.
Rule 7: a history has 25,000 events at most, and undoing is never given up. So when a state has been repeated as often
        as that allows, the execution starts its successor at this state, and ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from chalicelib.domain.instants import MINUTE, SECOND, Micros
from chalicelib.machines.workflow import UNDO_EVERY, UNDO_SELDOM
from chalicelib.planning.kernel.executions import BEHIND, CANCELLED
from chalicelib.planning.kernel.failures import MEANINGS
from chalicelib.planning.kernel.workflows import Definition, WorkflowStep

EVENTS_PER_ATTEMPT = 4  # scheduled, started, submitted (of a callback), and how it ended
MOST_EVENTS = 18_000  # of the 25,000, for the states that are repeated without end

DONE, UNDONE, GO_ON = "done", "undone", "go on"
ASK_AGAIN: Micros = 10 * SECOND  # while another attempt may be in flight
ANSWERS_WITHIN: Micros = 2 * MINUTE  # the callback, after the record has ended the waiting
TIMEOUT = "States.Timeout"
NOT_TAKEN = [
    f"Lambda.{name}Exception" for name in ("AWSLambda", "SdkClient", "Service", "TooManyRequests")
]  # by Lambda; if one was after all, the record knows
NOT_TAKEN_EVENTS = 1_600  # of the 25,000, for those calls: half an hour at most in each of six states
FIRST_PAUSE, LONGEST_PAUSE = 2, 30  # seconds between them
_FOR_GOOD = sorted(name for name, meaning in MEANINGS.items() if not meaning.repeat)

State = dict[str, Any]


def render(definition: Definition, function: str = "${Performer}") -> dict[str, Any]:
    """`function`: the name or ARN of the function that performs the steps, or what CloudFormation substitutes by it."""
    return _Rendering(definition, function).machine()


def first_input(workflow_id: str) -> dict[str, Any]:
    return {"workflow": workflow_id, "at": "", "made": {"all": {}}}


class _Rendering:
    def __init__(self, definition: Definition, function: str) -> None:
        self.name, self.steps, self.function = definition.name, definition.steps, function
        self.back = [step for step in reversed(self.steps) if step.undo]
        self.endless = [_doing(step) for step in self.steps if step.attempts is None]
        self.endless += [_undoing(step) for step in self.back]

    def machine(self) -> dict[str, Any]:
        states = {name: state for name, state in self._states() if name}
        start = "where to" if self.endless else self._enter(self.steps, _doing, DONE)
        return {"Comment": self.name.replace("_", " "), "StartAt": start, "States": states}

    def _states(self) -> Iterator[tuple[str, State]]:
        first = self._enter(self.steps, _doing, DONE)
        if self.endless:
            choices = [{"Variable": "$.at", "StringEquals": name, "Next": name} for name in self.endless]
            yield "where to", _choice(choices, first)
        for at, step in enumerate(self.steps):
            after, undo = self._enter(self.steps[at + 1 :], _doing, DONE), self._unwind(at)
            yield self._asked(step, _doing(step), after)
            yield _doing(step), self._do(step, after, undo)
        for at, step in enumerate(self.back):
            after = self._enter(self.back[at + 1 :], _undoing, UNDONE)
            yield self._asked(step, _undoing(step), after)
            yield _undoing(step), self._endless(_undoing(step), self._attempt(step, undo=True), after)
        for name in self.endless:
            yield _later(name), {"Type": "Pass", "Result": name, "ResultPath": "$.at", "Next": GO_ON}
        if self.endless:
            yield GO_ON, self._successor()
        yield DONE, {"Type": "Succeed"}
        yield UNDONE, {"Type": "Fail", "ErrorPath": "$.failure.Error", "CausePath": "$.failure.Cause"}

    # --- the way through them ----------------------------------------------------------------------------------------

    def _enter(self, steps: Sequence[WorkflowStep], name: Any, end: str) -> str:
        """The state that leads into the first of these steps."""
        if not steps:
            return end
        return f"{name(steps[0])}?" if steps[0].when else str(name(steps[0]))

    def _unwind(self, at: int) -> str:
        """Where the undoing begins if this step fails: with itself, for it may be half done."""
        return self._enter([step for step in reversed(self.steps[: at + 1]) if step.undo], _undoing, UNDONE)

    def _asked(self, step: WorkflowStep, name: str, otherwise: str) -> tuple[str, State]:
        """Does this one need the step? Nothing, if all do."""
        if not step.when:
            return "", {}
        needed = {"Variable": f"$.made.all.{step.when}", "IsPresent": True, "Next": name}
        return f"{name}?", _choice([needed], otherwise)

    # --- the states --------------------------------------------------------------------------------------------------

    def _do(self, step: WorkflowStep, after: str, undo: str) -> State:
        state = self._attempt(step, undo=False)
        if step.attempts is None:
            endless = self._endless(_doing(step), state, after)
            endless["Retry"] = [_never([CANCELLED]), *endless["Retry"]]
            endless["Catch"] = [_catch(undo, CANCELLED), *endless["Catch"]]
            return endless
        again = [_again(TIMEOUT, SECOND, 1)] if step.patience else []
        never = _never([CANCELLED, *_FOR_GOOD])
        retry = [never, *again, self._not_taken(), _behind(step), _retry(step.pause, step.attempts - 1)]
        return {**state, "Retry": retry, "Catch": [_catch(undo)], "Next": after}

    def _not_taken(self) -> State:
        most = NOT_TAKEN_EVENTS // (EVENTS_PER_ATTEMPT * len(self.steps))
        spread = {"BackoffRate": 2.0, "MaxDelaySeconds": LONGEST_PAUSE, "JitterStrategy": "FULL"}
        return {"ErrorEquals": NOT_TAKEN, "IntervalSeconds": FIRST_PAUSE, "MaxAttempts": most, **spread}

    def _endless(self, name: str, state: State, after: str) -> State:
        most = MOST_EVENTS // (EVENTS_PER_ATTEMPT * len(self.endless))
        later = _catch(_later(name), path="$.last")
        return {**state, "Retry": [_retry(UNDO_EVERY, most)], "Catch": [later], "Next": after}

    def _attempt(self, step: WorkflowStep, *, undo: bool) -> State:
        payload: State = {"workflow.$": "$.workflow", "step": step.name, "undo": undo}
        waits = step.patience > 0 and not undo
        if waits:
            payload["token.$"] = "$$.Task.Token"
        return {
            "Type": "Task",
            "Comment": f"undo: {step.description}" if undo else step.description,
            "Resource": f"arn:aws:states:::lambda:invoke{'.waitForTaskToken' if waits else ''}",
            "Parameters": {"FunctionName": self.function, "Payload": payload},
            "TimeoutSeconds": (step.patience + ANSWERS_WITHIN if waits else step.timeout) // SECOND,
            "ResultSelector": {"all.$": "$.Payload"},
            "ResultPath": "$.made",
        }

    def _successor(self) -> State:
        return {
            "Type": "Task",
            "Comment": "this history is long enough: another execution goes on from here",
            "Resource": "arn:aws:states:::states:startExecution",
            "Parameters": {"StateMachineArn.$": "$$.StateMachine.Id", "Input.$": "$"},
            "Retry": [_retry(UNDO_EVERY, MOST_EVENTS // 100)],
            "End": True,
        }


def _doing(step: WorkflowStep) -> str:
    return step.name


def _undoing(step: WorkflowStep) -> str:
    return f"undo {step.name}"


def _later(name: str) -> str:
    return f"{name}, later"


def _choice(choices: list[State], otherwise: str) -> State:
    return {"Type": "Choice", "Choices": choices, "Default": otherwise}


def _retry(pause: int, most: int) -> State:
    """Any error; each pause is twice the one before it, up to a limit."""
    limits = {"BackoffRate": 2.0, "MaxDelaySeconds": UNDO_SELDOM // SECOND}
    return {"ErrorEquals": ["States.ALL"], "IntervalSeconds": max(1, pause // SECOND), "MaxAttempts": most, **limits}


def _again(error: str, pause: Micros, most: int) -> State:
    """Equal pauses."""
    return {"ErrorEquals": [error], "IntervalSeconds": pause // SECOND, "MaxAttempts": most, "BackoffRate": 1.0}


def _behind(step: WorkflowStep) -> State:
    return _again(BEHIND, ASK_AGAIN, step.timeout // ASK_AGAIN + 1)


def _never(errors: list[str]) -> State:
    return {"ErrorEquals": errors, "MaxAttempts": 0}


def _catch(to: str, error: str = "States.ALL", path: str = "$.failure") -> State:
    return {"ErrorEquals": [error], "ResultPath": path, "Next": to}
