"""What decisions know of state machines' executions: how one starts, what its states ask for, and the answers.

A state asks for a step to be behind the workflow, done or undone. The record alone says whether it is; so an execution
that is late, doubled or started again is told the same as the first, and nothing is made twice for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from chalicelib.domain.instants import Micros
from chalicelib.planning.kernel.failures import MEANINGS
from chalicelib.planning.kernel.plan import Effect

CANCELLED = "Cancelled"  # what a state is told if the workflow is being undone: it is never repeated
BEHIND = "Behind"  # if another attempt may be in flight, or comes first: it asks again soon
NOT_YET = "NotYet"


@dataclass(frozen=True)
class StartExecution(Effect):
    """Have a state machine drive the workflow. One that was started before is as good."""

    definition: str = ""
    name: str = ""  # the execution's, and the id by which its states ask


@dataclass(frozen=True)
class AnswerExecution(Effect):
    """Tell the execution that waits with this token how its step ended."""

    token: str = ""
    made: Mapping[str, str] = field(default_factory=dict)
    error: str = ""  # empty: it is done
    message: str = ""


@dataclass(frozen=True)
class StepCall:
    """What a state asks for."""

    step: str
    undo: bool = False
    token: str = ""  # it waits for a callback


@dataclass(frozen=True)
class StepAnswer:
    """What it is told. Neither `made` nor an error: it has to wait for its callback."""

    made: Mapping[str, str] | None = None
    error: str = ""
    message: str = ""
    settled: bool = False  # whatever is tried


def refusal(reason: str | None, message: str) -> StepAnswer:
    """The step won't be done any more. An error that Step Functions would repeat is told as one that it doesn't."""
    known = MEANINGS.get(reason or "")
    error = reason if reason and known is not None and not known.repeat else CANCELLED
    return StepAnswer(error=error, message=message, settled=True)


def answer_execution(effect_fields: tuple[str, str, Micros, str], token: str, answer: StepAnswer) -> AnswerExecution:
    """`effect_fields`: the fields that every effect has."""
    return AnswerExecution(*effect_fields, token, answer.made or {}, answer.error, answer.message)
