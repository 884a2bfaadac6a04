"""What is said to Step Functions, and what it answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chalicelib.planning.kernel.executions import AnswerExecution, StartExecution
from chalicelib.planning.kernel.plan import Effect
from chalicelib.planning.kernel.workflows import DoStep
from chalicelib.runtime.step_functions import MOST_CAUSE, ExecutionEffects, StepFunctions

MACHINE = "arn:aws:states:us-east-1:000000000000:stateMachine:dstack-dev-add_host"


class Client:
    """boto3's, with the errors that it is told to raise."""

    def __init__(self, error: str = "") -> None:
        self.error = error
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def __getattr__(self, call: str) -> Any:
        def call_sdk(**given: Any) -> None:
            self.calls.append((call, given))
            if self.error:
                raise type(self.error, (Exception,), {})("no")

        return call_sdk


def spoken(error: str = "") -> tuple[StepFunctions, Client]:
    client = Client(error)
    return StepFunctions(lambda service: client, {"add_host": MACHINE}), client


def test_an_execution_is_named_by_its_workflow() -> None:
    steps, client = spoken()
    steps.start("add_host", "w-1")
    ((call, given),) = client.calls
    assert call == "start_execution"
    assert (given["stateMachineArn"], given["name"]) == (MACHINE, "w-1")
    assert json.loads(given["input"]) == {"workflow": "w-1", "at": "", "made": {"all": {}}}


def test_a_callback_has_the_form_that_states_read() -> None:
    steps, client = spoken()
    steps.succeed("t", {"relay": "10.0.0.1"})
    steps.fail("t", "Unfit", "x" * 40_000)
    (succeeded, failed) = client.calls
    assert succeeded == ("send_task_success", {"taskToken": "t", "output": '{"Payload": {"relay": "10.0.0.1"}}'})
    assert failed == ("send_task_failure", {"taskToken": "t", "error": "Unfit", "cause": "x" * MOST_CAUSE})


@pytest.mark.parametrize("error", ["ExecutionAlreadyExists", "TaskTimedOut", "TaskDoesNotExist", "InvalidToken"])
def test_what_was_said_before_is_no_failure(error: str, caplog: pytest.LogCaptureFixture) -> None:
    steps, _ = spoken(error)
    if error == "ExecutionAlreadyExists":
        steps.start("add_host", "w-1")
    else:
        steps.succeed("t", {})
        steps.fail("t", "Unfit", "")
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_what_cannot_be_said_is_logged_and_lost(caplog: pytest.LogCaptureFixture) -> None:
    steps, client = spoken("EndpointConnectionError")
    steps.start("add_host", "w-1")
    steps.succeed("secret-token", {})
    assert len(client.calls) == 2
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
    assert "secret-token" not in caplog.text


def test_only_what_is_for_executions_is_said_where_it_was_committed() -> None:
    others: list[Effect] = []

    class Queue:
        def submit(self, effect: Effect) -> None:
            others.append(effect)

    steps, client = spoken()
    effects = ExecutionEffects(steps, Queue())
    arguments = ("workflow/w", "ssh", 1, "p")
    step = DoStep(*arguments, "look")
    for effect in (
        StartExecution(*arguments, "add_host", "w"),
        AnswerExecution(*arguments, "t", {"a": "b"}),
        AnswerExecution(*arguments, "t", {}, "Unfit", "why"),
        step,
    ):
        effects.submit(effect)
    assert [call for call, _ in client.calls] == ["start_execution", "send_task_success", "send_task_failure"]
    assert others == [step]
