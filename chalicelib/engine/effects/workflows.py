"""Attempts at a workflow's steps, each made by the performer of its definition."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import ClassVar

from chalicelib.domain import keys
from chalicelib.domain.workflows import Workflow
from chalicelib.engine.effects.context import EffectContext, failure_fields, translated
from chalicelib.engine.log_context import unit_context
from chalicelib.errors import BackendError, NotYet
from chalicelib.planning.kernel.plan import Effect, Outcome
from chalicelib.planning.kernel.workflows import DoStep, StepDone, StepFailed, StepWaits
from chalicelib.store import nouns

log = logging.getLogger(__name__)


class StepEffects:
    effects: ClassVar[Mapping[type[Effect], str]] = {DoStep: "attempt"}

    def __init__(self, here: EffectContext) -> None:
        self.here = here

    def attempt(self, effect: DoStep) -> Outcome | None:
        workflow = nouns.find(self.here.store, Workflow, keys.workflow(effect.unit.partition("/")[2]))
        if workflow is None or workflow.act_until != effect.act_until:  # an attempt's name; None once it has ended
            log.info("%s is too late: its workflow has moved on", effect)
            return None
        performer = self.here.performers[workflow.definition]
        try:
            with unit_context(workflow.subject), translated(f"{workflow.name}, {effect.step}"):
                created = performer.undo(effect.step, workflow) if effect.undo else performer.do(effect.step, workflow)
        except NotYet as waits:
            return StepWaits(effect.unit, effect.act_until, str(waits))
        except BackendError as error:
            return StepFailed(effect.unit, *failure_fields(error), effect.act_until)
        return StepDone(effect.unit, effect.act_until, tuple(sorted((created or {}).items())))
