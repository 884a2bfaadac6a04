"""Invariants of plans that change workflows; see `lint`."""

from __future__ import annotations

from collections.abc import Iterator

from chalicelib.domain.workflows import Workflow
from chalicelib.planning.kernel.lint import Known
from chalicelib.planning.kernel.plan import Step
from chalicelib.planning.kernel.workflows import DoStep


def workflows(step: Step, known: Known) -> Iterator[str]:
    """A workflow that hasn't ended stays due, and an attempt is committed before it is made."""
    saved = {noun.unit: noun for noun in step.saves if isinstance(noun, Workflow)}
    for workflow in saved.values():
        if not workflow.ended and workflow.due_at is None:
            yield f"workflow {workflow.name} is {workflow.status.value}, but nothing will look at it again"
    for effect in step.effects:
        if isinstance(effect, DoStep):
            workflow_ = saved.get(effect.unit)
            if workflow_ is None or workflow_.act_until != effect.act_until or workflow_.ended:
                yield f"{effect.unit} attempts {effect.step} without committing it"
