"""Effects: what is done to clouds after the intent is committed, and the outcome.

Nothing is decided here: a table names the method that executes an effect, and the unit's own decision says what follows
from the outcome. An effect received after its `act_until` is left to the pass that repeats it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from chalicelib.engine.commit import Committer
from chalicelib.engine.counters import Figures
from chalicelib.engine.effects.acting import Acting
from chalicelib.engine.effects.table import FAMILIES, Family
from chalicelib.engine.kinds import KINDS, Kinds
from chalicelib.engine.load import Loader
from chalicelib.engine.log_context import about
from chalicelib.engine.ports import News, Wake
from chalicelib.errors import Bug
from chalicelib.planning.kernel.plan import Effect, Outcome, Plan

log = logging.getLogger(__name__)

ATTEMPTS = 8  # fresh looks after a conflict


class Executor:
    """Executes one effect at a time; any number of executors may run."""

    def __init__(
        self,
        here: Acting,
        load: Loader,
        *,
        wake: Wake,
        news: News | None = None,
        kinds: Kinds = KINDS,
        families: Sequence[type[Family]] = FAMILIES,
        figures: Figures | None = None,
    ) -> None:
        self._figures = figures or Figures()
        self.here, self.load, self.wake, self.kinds = here, load, wake, kinds
        self._news = news or _nobody_waits
        made = [family(here) for family in families]
        self._handlers: Mapping[type[Effect], Callable[[Any], Outcome | Sequence[Outcome] | None]] = {
            kind: getattr(family, method) for family in made for kind, method in family.effects.items()
        }

    def execute(self, effect: Effect) -> None:
        """Executes the effect, commits its outcome, and executes whatever follows from that."""
        todo = _Todo([effect])
        self._work_off(todo, Committer(self.load.read, self.kinds, todo, self._news))

    def conclude(self, outcome: Outcome) -> None:
        """The same for an outcome without an effect: a sweep found a machine missing."""
        todo = _Todo([])
        committer = Committer(self.load.read, self.kinds, todo, self._news)
        self._conclude(outcome, committer)
        self._work_off(todo, committer)

    def take(self, unit: str, decide: Callable[[Any], Plan]) -> None:
        """Commits what is decided about a unit, and executes here what follows from that."""
        todo = _Todo([])
        committer = Committer(self.load.read, self.kinds, todo, self._news)
        self._commit(unit, decide, committer)
        self._work_off(todo, committer)

    def _work_off(self, todo: _Todo, committer: Committer) -> None:
        while todo.effects:
            effect = todo.effects.popleft()
            with about(effect.unit):
                self._one(effect, committer)

    def _one(self, effect: Effect, committer: Committer) -> None:
        handler = self._handlers.get(type(effect))
        if handler is None:
            raise Bug(f"nothing executes {effect}")
        if self.here.clock.now() >= effect.act_until:
            log.info("%s is too late: the next pass repeats what is still wanted", effect)
            self._figures.executed(effect, "too late")
            return
        try:
            found = handler(effect)
        except Exception:
            self._figures.executed(effect, "raised")
            raise
        outcomes = (found,) if isinstance(found, Outcome) else tuple(found or ())
        for outcome in outcomes or ("done",):
            self._figures.executed(effect, outcome)
        for outcome in outcomes:
            self._conclude(outcome, committer)

    def _conclude(self, outcome: Outcome, committer: Committer) -> None:
        kind = outcome.unit.partition("/")[0]
        conclude = self.kinds.unit(kind).conclude
        if conclude is None:
            raise Bug(f"{kind} is a unit without effects, and {outcome} is about one")
        with about(outcome.unit):
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
    """Effects of an outcome are executed by the executor that concluded it: it is their committer."""

    def __init__(self, effects: Iterable[Effect]) -> None:
        self.effects = deque(effects)

    def submit(self, effect: Effect) -> None:
        self.effects.append(effect)


def _nobody_waits(instance_ids: Iterable[str]) -> None:
    """If the executor runs apart from the long polls, an agent learns of a change at its next sync."""
