"""Executions of a workflow by a state machine: how one starts, what its states request, and the answers.

A state requests that a step be done, or undone. The stored record alone decides whether it is. So an execution that is
late, duplicated or restarted gets the same answer as the first, and nothing is created twice for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from chalicelib.domain.instants import Micros
from chalicelib.planning.kernel.failures import MEANINGS
from chalicelib.planning.kernel.plan import Effect

CANCELLED = "Cancelled"  # the workflow is being undone; state machines don't repeat this error
BEHIND = "Behind"  # another attempt may be in flight or comes first; the state repeats its request soon
NOT_YET = "NotYet"


@dataclass(frozen=True)
class StartExecution(Effect):
    """Have a state machine drive the workflow. Starting it again has no effect."""

    definition: str = ""
    name: str = ""  # of the execution; its states send it with every request


@dataclass(frozen=True)
class AnswerExecution(Effect):
    """Send the callback with this token: how the step ended that the execution waits for."""

    token: str = ""
    created: Mapping[str, str] = field(default_factory=dict)
    error: str = ""  # empty: the step is done
    message: str = ""


@dataclass(frozen=True)
class StepCall:
    """A state's request."""

    step: str
    undo: bool = False
    token: str = ""  # of the callback that the state can wait for; empty: it can't wait


@dataclass(frozen=True)
class StepAnswer:
    """The answer to a `StepCall`. With neither `created` nor an error, the state has to wait for its callback."""

    created: Mapping[str, str] | None = None
    error: str = ""
    message: str = ""
    settled: bool = False  # no further attempt can change the answer


def refusal(reason: str | None, message: str) -> StepAnswer:
    """The step won't be done any more. An error that Step Functions would repeat is replaced by one that it doesn't."""
    known = MEANINGS.get(reason or "")
    error = reason if reason and known is not None and not known.repeat else CANCELLED
    return StepAnswer(error=error, message=message, settled=True)


def answer_execution(effect_fields: tuple[str, str, Micros, str], token: str, answer: StepAnswer) -> AnswerExecution:
    """`effect_fields`: those of `Effect`, in order."""
    return AnswerExecution(*effect_fields, token, answer.created or {}, answer.error, answer.message)
