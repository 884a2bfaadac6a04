"""Messages to the executions of state machines. They have no outcome: the record shows whether an execution acts on
one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from chalicelib.engine.effects.acting import Acting
from chalicelib.engine.ports import Executions
from chalicelib.planning.kernel.executions import AnswerExecution, StartExecution
from chalicelib.planning.kernel.plan import Effect


class Driven:
    effects: ClassVar[Mapping[type[Effect], str]] = {StartExecution: "say", AnswerExecution: "say"}

    def __init__(self, here: Acting) -> None:
        self.here = here

    def say(self, effect: StartExecution | AnswerExecution) -> None:
        if self.here.executions is not None:
            say(self.here.executions, effect)


def say(executions: Executions, effect: StartExecution | AnswerExecution) -> None:
    if isinstance(effect, StartExecution):
        executions.start(effect.definition, effect.name)
    elif effect.error:
        executions.fail(effect.token, effect.error, effect.message)
    else:
        executions.succeed(effect.token, effect.made)
