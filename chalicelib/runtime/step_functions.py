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
    """What is said here is a hint, like a wake-up: whatever can't be said is logged, and the record repeats it or has
    the looks take over."""

    def __init__(self, clients: Callable[[str], Any], machines: Mapping[str, str]) -> None:
        """`machines`: ARNs by the definitions' names."""
        self._clients, self._machines = clients, machines

    def start(self, definition: str, name: str) -> None:
        from chalicelib.engine.asl import first_input

        machine = self._machines.get(definition, "")  # none: an older stack, which Step Functions says below
        self._say("start_execution", _THERE, stateMachineArn=machine, name=name, input=json.dumps(first_input(name)))

    def succeed(self, token: str, made: Mapping[str, str]) -> None:
        self._say("send_task_success", _MOVED_ON, taskToken=token, output=json.dumps({"Payload": dict(made)}))

    def fail(self, token: str, error: str, message: str) -> None:
        self._say("send_task_failure", _MOVED_ON, taskToken=token, error=error, cause=message[:MOST_CAUSE])

    def _say(self, call: str, expected: tuple[str, ...], **given: str) -> None:
        try:
            getattr(self._clients("stepfunctions"), call)(**given)
        except Exception as error:  # the service, the network, the permissions
            if type(error).__name__ in expected:
                log.info("%s: %s", call, error)
            else:
                log.exception("%s failed for %s", call, given.get("name", "a step that is waited for"))


class ExecutionEffects:
    """Effects for executions are said at once, where they were committed: no queue, and no other function. They are for
    nobody where there are no state machines (None)."""

    def __init__(self, executions: Executions | None, others: Effects) -> None:
        self._executions, self._others = executions, others

    def submit(self, effect: Effect) -> None:
        from chalicelib.engine.effects.executions import send
        from chalicelib.planning.kernel.executions import AnswerExecution, StartExecution

        if isinstance(effect, StartExecution | AnswerExecution):
            if self._executions is not None:
                send(self._executions, effect)
        else:
            self._others.submit(effect)
