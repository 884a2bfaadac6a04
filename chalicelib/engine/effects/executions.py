"""Messages to the executions of state machines. They have no outcome: the record shows whether an execution acted on
one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from chalicelib.engine.effects.context import EffectContext
from chalicelib.engine.ports import Executions
from chalicelib.planning.kernel.executions import AnswerExecution, StartExecution
from chalicelib.planning.kernel.plan import Effect


class ExecutionMessages:
    effects: ClassVar[Mapping[type[Effect], str]] = {StartExecution: "send", AnswerExecution: "send"}

    def __init__(self, here: EffectContext) -> None:
        self.here = here

    def send(self, effect: StartExecution | AnswerExecution) -> None:
        if self.here.executions is not None:
            send(self.here.executions, effect)


def send(executions: Executions, effect: StartExecution | AnswerExecution) -> None:
    if isinstance(effect, StartExecution):
        executions.start(effect.definition, effect.name)
    elif effect.error:
        executions.fail(effect.token, effect.error, effect.message)
    else:
        executions.succeed(effect.token, effect.created)
