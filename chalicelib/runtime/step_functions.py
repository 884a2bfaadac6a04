"""Workflows' executions on AWS Step Functions, one state machine per definition."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chalicelib.engine.ports import Effects, Executions
    from chalicelib.planning.kernel.plan import Effect

log = logging.getLogger(__name__)

_THERE = ("ExecutionAlreadyExists",)
_MOVED_ON = ("TaskTimedOut", "TaskDoesNotExist", "InvalidToken")  # it waits no more, or never did
MOST_CAUSE = 32_768  # characters of an error's message


class StepFunctions:
    """Starts and answers executions. Calls are hints, like wake-ups: failures are logged, and the record's unit repeats
    the call or lets passes take over."""

    def __init__(self, clients: Callable[[str], Any], machines: Mapping[str, str]) -> None:
        """`machines`: ARNs by the definitions' names."""
        self._clients, self._machines = clients, machines

    def start(self, definition: str, name: str) -> None:
        from chalicelib.engine.asl import first_input

        machine = self._machines.get(definition, "")  # none: an older stack, which Step Functions says below
        self._call("start_execution", _THERE, stateMachineArn=machine, name=name, input=json.dumps(first_input(name)))

    def succeed(self, token: str, created: Mapping[str, str]) -> None:
        self._call("send_task_success", _MOVED_ON, taskToken=token, output=json.dumps({"Payload": dict(created)}))

    def fail(self, token: str, error: str, message: str) -> None:
        self._call("send_task_failure", _MOVED_ON, taskToken=token, error=error, cause=message[:MOST_CAUSE])

    def _call(self, call: str, expected: tuple[str, ...], **arguments: str) -> None:
        try:
            getattr(self._clients("stepfunctions"), call)(**arguments)
        except Exception as error:  # the service, the network, the permissions
            if type(error).__name__ in expected:
                log.info("%s: %s", call, error)
            else:
                log.exception("%s failed for %s", call, arguments.get("name", "a step that is waited for"))


class ExecutionEffects:
    """Sends effects for executions at once, without a queue or another function. Without state machines (None) they are
    dropped."""

    def __init__(self, executions: Executions | None, other_effects: Effects) -> None:
        self._executions, self._other_effects = executions, other_effects

    def submit(self, effect: Effect) -> None:
        from chalicelib.engine.effects.executions import send
        from chalicelib.planning.kernel.executions import AnswerExecution, StartExecution

        if isinstance(effect, StartExecution | AnswerExecution):
            if self._executions is not None:
                send(self._executions, effect)
        else:
            self._other_effects.submit(effect)
