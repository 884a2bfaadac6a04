"""Renders a workflow's definition as a state machine of AWS Step Functions, in the Amazon States Language.

One execution is one workflow. Its input, `{"workflow": "<id>", "at": "", "made": {"all": {}}}`, names the record; the
states invoke the function of the definition's performer, which reads everything else by that id and returns everything
that the workflow has stored so far. So the data passed between states stays small, whatever the fleet's size.

Rule 1: a step's failures are repeated as `planning/kernel/failures.py` says, by the errors' class names, which Lambda
        reports.
Rule 2: a permanent failure leads to undoing that step, then the ones before it, back to the first.
Rule 3: nothing polls. A step with patience is started once and waits for its callback; only failures are repeated. The
        record ends the waiting. If the callback is lost, the state calls once more, and gets the record's answer at
        once. Rule 4: an attempt of a workflow that is being undone fails with `Cancelled`, which is never repeated.
        Rule 5: `Behind` isn't a failure of the step: another attempt may be in flight. The state calls again until that
        one's time is up. Rule 6: a call that Lambda didn't accept, because the account or the function has no execution
        free, is no attempt. The state calls again until it is accepted, after random pauses, so that executions don't
        all call at once. Rule 7: a history has at most 25,000 events, and undoing is never given up. So when a state
        has been repeated as often as that allows, the execution starts a successor at this state, and ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from chalicelib.domain.instants import MINUTE, SECOND, Micros
from chalicelib.machines.workflow import UNDO_EVERY, UNDO_SELDOM
from chalicelib.planning.kernel.executions import BEHIND, CANCELLED
from chalicelib.planning.kernel.failures import MEANINGS
from chalicelib.planning.kernel.workflows import Definition, WorkflowStep

EVENTS_PER_ATTEMPT = 4  # scheduled, started, submitted (for a callback), and the result
MOST_EVENTS = 18_000  # of the 25,000, for the states that are repeated without end

DONE, UNDONE, GO_ON = "done", "undone", "go on"
RETRY_BEHIND_EVERY: Micros = 10 * SECOND  # while another attempt may be in flight
CALLBACK_WITHIN: Micros = 2 * MINUTE  # the longest delay of a callback, after the record has ended the waiting
TIMEOUT = "States.Timeout"
# Errors of calls that Lambda didn't accept; if it accepted one after all, the record shows that.
NOT_ACCEPTED = [f"Lambda.{name}Exception" for name in ("AWSLambda", "SdkClient", "Service", "TooManyRequests")]
NOT_ACCEPTED_EVENTS = 1_600  # of the 25,000, for such calls: half an hour at most in each of six states
FIRST_PAUSE, LONGEST_PAUSE = 2, 30  # seconds between such calls
_FOR_GOOD = sorted(name for name, meaning in MEANINGS.items() if not meaning.repeat)

State = dict[str, Any]


def render(definition: Definition, function: str = "${Performer}", partition: str = "${Partition}") -> dict[str, Any]:
    """The state machine. `function`: the name or ARN of the function that performs the steps, and `partition`: that of
    the region that it is in, or CloudFormation substitutions for them."""
    return _Rendering(definition, function, partition).machine()


def first_input(workflow_id: str) -> dict[str, Any]:
    return {"workflow": workflow_id, "at": "", "made": {"all": {}}}


class _Rendering:
    def __init__(self, definition: Definition, function: str, partition: str) -> None:
        self.name, self.steps, self.function = definition.name, definition.steps, function
        self.services = f"arn:{partition}:states:::"
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
            yield self._condition(step, _doing(step), after)
            yield _doing(step), self._do(step, after, undo)
        for at, step in enumerate(self.back):
            after = self._enter(self.back[at + 1 :], _undoing, UNDONE)
            yield self._condition(step, _undoing(step), after)
            yield _undoing(step), self._endless(_undoing(step), self._attempt(step, undo=True), after)
        for name in self.endless:
            yield _resume_name(name), {"Type": "Pass", "Result": name, "ResultPath": "$.at", "Next": GO_ON}
        if self.endless:
            yield GO_ON, self._successor()
        yield DONE, {"Type": "Succeed"}
        yield UNDONE, {"Type": "Fail", "ErrorPath": "$.failure.Error", "CausePath": "$.failure.Cause"}

    # --- transitions -------------------------------------------------------------------------------------------------

    def _enter(self, steps: Sequence[WorkflowStep], name: Any, end: str) -> str:
        """The state that leads into the first of these steps."""
        if not steps:
            return end
        return f"{name(steps[0])}?" if steps[0].when else str(name(steps[0]))

    def _unwind(self, at: int) -> str:
        """The state in which undoing begins if this step fails: its own, because it may be half done."""
        return self._enter([step for step in reversed(self.steps[: at + 1]) if step.undo], _undoing, UNDONE)

    def _condition(self, step: WorkflowStep, name: str, otherwise: str) -> tuple[str, State]:
        """The state that decides whether a workflow needs this step; empty if all do."""
        if not step.when:
            return "", {}
        needed = {"Variable": f"$.made.all.{step.when}", "IsPresent": True, "Next": name}
        return f"{name}?", _choice([needed], otherwise)

    # --- states ------------------------------------------------------------------------------------------------------

    def _do(self, step: WorkflowStep, after: str, undo: str) -> State:
        state = self._attempt(step, undo=False)
        if step.attempts is None:
            endless = self._endless(_doing(step), state, after)
            endless["Retry"] = [_never([CANCELLED]), *endless["Retry"]]
            endless["Catch"] = [_catch(undo, CANCELLED), *endless["Catch"]]
            return endless
        again = [_again(TIMEOUT, SECOND, 1)] if step.patience else []
        never = _never([CANCELLED, *_FOR_GOOD])
        retry = [never, *again, self._retry_not_accepted(), _behind(step), _retry(step.pause, step.attempts - 1)]
        return {**state, "Retry": retry, "Catch": [_catch(undo)], "Next": after}

    def _retry_not_accepted(self) -> State:
        most = NOT_ACCEPTED_EVENTS // (EVENTS_PER_ATTEMPT * len(self.steps))
        spread = {"BackoffRate": 2.0, "MaxDelaySeconds": LONGEST_PAUSE, "JitterStrategy": "FULL"}
        return {"ErrorEquals": NOT_ACCEPTED, "IntervalSeconds": FIRST_PAUSE, "MaxAttempts": most, **spread}

    def _endless(self, name: str, state: State, after: str) -> State:
        most = MOST_EVENTS // (EVENTS_PER_ATTEMPT * len(self.endless))
        resume = _catch(_resume_name(name), path="$.last")
        return {**state, "Retry": [_retry(UNDO_EVERY, most)], "Catch": [resume], "Next": after}

    def _attempt(self, step: WorkflowStep, *, undo: bool) -> State:
        payload: State = {"workflow.$": "$.workflow", "step": step.name, "undo": undo}
        waits_for_callback = step.patience > 0 and not undo
        if waits_for_callback:
            payload["token.$"] = "$$.Task.Token"
        return {
            "Type": "Task",
            "Comment": f"undo: {step.description}" if undo else step.description,
            "Resource": f"{self.services}lambda:invoke{'.waitForTaskToken' if waits_for_callback else ''}",
            "Parameters": {"FunctionName": self.function, "Payload": payload},
            "TimeoutSeconds": (step.patience + CALLBACK_WITHIN if waits_for_callback else step.timeout) // SECOND,
            "ResultSelector": {"all.$": "$.Payload"},
            "ResultPath": "$.made",
        }

    def _successor(self) -> State:
        return {
            "Type": "Task",
            "Comment": "this history is long enough: another execution goes on from here",
            "Resource": f"{self.services}states:startExecution",
            "Parameters": {"StateMachineArn.$": "$$.StateMachine.Id", "Input.$": "$"},
            "Retry": [_retry(UNDO_EVERY, MOST_EVENTS // 100)],
            "End": True,
        }


def _doing(step: WorkflowStep) -> str:
    return step.name


def _undoing(step: WorkflowStep) -> str:
    return f"undo {step.name}"


def _resume_name(name: str) -> str:
    return f"{name}, later"


def _choice(choices: list[State], otherwise: str) -> State:
    return {"Type": "Choice", "Choices": choices, "Default": otherwise}


def _retry(pause: int, most: int) -> State:
    """Retries of any error; each pause is twice the one before, up to a limit."""
    limits = {"BackoffRate": 2.0, "MaxDelaySeconds": UNDO_SELDOM // SECOND}
    return {"ErrorEquals": ["States.ALL"], "IntervalSeconds": max(1, pause // SECOND), "MaxAttempts": most, **limits}


def _again(error: str, pause: Micros, most: int) -> State:
    """Retries of one error, with equal pauses."""
    return {"ErrorEquals": [error], "IntervalSeconds": pause // SECOND, "MaxAttempts": most, "BackoffRate": 1.0}


def _behind(step: WorkflowStep) -> State:
    return _again(BEHIND, RETRY_BEHIND_EVERY, step.timeout // RETRY_BEHIND_EVERY + 1)


def _never(errors: list[str]) -> State:
    return {"ErrorEquals": errors, "MaxAttempts": 0}


def _catch(to: str, error: str = "States.ALL", path: str = "$.failure") -> State:
    return {"ErrorEquals": [error], "ResultPath": path, "Next": to}
