"""Executing effects after the intent is committed, and committing their outcomes.

Nothing is decided here: a table names the method that executes an effect, and the unit's own decision function says
what follows from the outcome. An effect received after its `act_until` is left to the pass that repeats it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from chalicelib.engine.commit import Committer
from chalicelib.engine.counters import Counters
from chalicelib.engine.effects.context import EffectContext
from chalicelib.engine.effects.table import FAMILIES, Family
from chalicelib.engine.kinds import KINDS, Kinds
from chalicelib.engine.load import Loader
from chalicelib.engine.log_context import unit_context
from chalicelib.engine.ports import NotifyAgents, Wake
from chalicelib.errors import Bug
from chalicelib.planning.kernel.plan import Effect, Outcome, Plan

log = logging.getLogger(__name__)

ATTEMPTS = 8  # to commit after conflicts, each from a fresh read


class Executor:
    """Executes one effect at a time; any number of executors may run."""

    def __init__(
        self,
        here: EffectContext,
        load: Loader,
        *,
        wake: Wake,
        notify_agents: NotifyAgents | None = None,
        kinds: Kinds = KINDS,
        families: Sequence[type[Family]] = FAMILIES,
        counters: Counters | None = None,
    ) -> None:
        self._counters = counters or Counters()
        self.here, self.load, self.wake, self.kinds = here, load, wake, kinds
        self._notify_agents = notify_agents or _nobody_waits
        handlers = [family(here) for family in families]
        self._handlers: Mapping[type[Effect], Callable[[Any], Outcome | Sequence[Outcome] | None]] = {
            kind: getattr(family, method) for family in handlers for kind, method in family.effects.items()
        }

    def execute(self, effect: Effect) -> None:
        """Executes the effect, commits its outcome, and executes the effects that follow from it."""
        todo = _Todo([effect])
        self._work_off(todo, Committer(self.load.read, self.kinds, todo, self._notify_agents))

    def take(self, unit: str, decide: Callable[[Any], Plan]) -> None:
        """Commits a decision about a unit, and executes the effects that follow from it."""
        todo = _Todo([])
        committer = Committer(self.load.read, self.kinds, todo, self._notify_agents)
        self._commit(unit, decide, committer)
        self._work_off(todo, committer)

    def _work_off(self, todo: _Todo, committer: Committer) -> None:
        while todo.effects:
            effect = todo.effects.popleft()
            with unit_context(effect.unit):
                self._one(effect, committer)

    def _one(self, effect: Effect, committer: Committer) -> None:
        handler = self._handlers.get(type(effect))
        if handler is None:
            raise Bug(f"nothing executes {effect}")
        if self.here.clock.now() >= effect.act_until:
            log.info("%s is too late: the next pass repeats it if it is still needed", effect)
            self._counters.executed(effect, "too late")
            return
        try:
            found = handler(effect)
        except Exception:
            self._counters.executed(effect, "raised")
            raise
        outcomes = (found,) if isinstance(found, Outcome) else tuple(found or ())
        for outcome in outcomes or ("done",):
            self._counters.executed(effect, outcome)
        for outcome in outcomes:
            self._conclude(outcome, committer)

    def _conclude(self, outcome: Outcome, committer: Committer) -> None:
        kind = outcome.unit.partition("/")[0]
        conclude = self.kinds.unit(kind).conclude
        if conclude is None:
            raise Bug(f"{kind} is a unit without effects, and {outcome} is about one")
        with unit_context(outcome.unit):
            self._commit(outcome.unit, lambda snapshot: conclude(snapshot, outcome), committer)

    def _commit(self, unit: str, decide: Callable[[Any], Plan], committer: Committer) -> None:
        kind, _, unit_id = unit.partition("/")
        load = self.kinds.unit(kind).load
        if load is None:
            raise Bug(f"{kind} is read page by page, so nothing is decided about it here")
        for _ in range(ATTEMPTS):
            snapshot = load(self.load, unit_id, self.here.clock.now())
            if snapshot is None:
                log.info("%s no longer exists", unit)
                return
            done = committer.commit(self.kinds.checked(snapshot, decide(snapshot)))
            if done.wake:
                self.wake(done.wake)
            if not done.lost:
                return
        log.warning("%s was changed at each of %d attempts: the next pass will find out", unit, ATTEMPTS)
        self.wake([unit])


class _Todo:
    """Effects of an outcome, to be executed by the executor that committed it."""

    def __init__(self, effects: Iterable[Effect]) -> None:
        self.effects = deque(effects)

    def submit(self, effect: Effect) -> None:
        self.effects.append(effect)


def _nobody_waits(instance_ids: Iterable[str]) -> None:
    """Do nothing: without long polls in this process, agents learn of changes at their next sync."""
