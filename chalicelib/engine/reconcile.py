"""One pass: due → load → decide → lint → commit → submit the effects. Timers and wake-ups run the same pass.

Rule 1: a pass decides from the store alone; a hint only says which units come first. Rule 2: units are independent, so
one that fails is recorded, postponed and skipped. Rule 3: a unit that was due at the start of a pass isn't due at its
end: it is decided, postponed to the plan's next wake, or postponed as failed. So a pass always ends, and an idle
control plane stays idle.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.keys import Key
from chalicelib.engine import postpone
from chalicelib.engine.commit import Committed, Committer
from chalicelib.engine.kinds import KINDS, Kinds, Unit
from chalicelib.engine.load import Loader
from chalicelib.engine.log_context import unit_context
from chalicelib.engine.ports import Backends, Catalog, Clock, Effects, NotifyAgents, Wake
from chalicelib.engine.queue_pass import ATTEMPTS, Hints, QueuePass, merged
from chalicelib.engine.read import Reader
from chalicelib.errors import StorageFull
from chalicelib.planning.kernel.plan import Plan, Step
from chalicelib.store import nouns
from chalicelib.store.port import SHARDS, Store

log = logging.getLogger(__name__)

TOGETHER = 20  # units that are decided before their plans are committed together
LONGEST_PASS = 500  # units; the remaining ones are woken again, behind those that were woken meanwhile
DUE_BATCH = 200


@dataclass
class Pass:
    """The result of a pass; the caller logs it, the simulation asserts on it."""

    units: int = 0
    steps: int = 0
    conflicts: int = 0
    failed: dict[str, str] = field(default_factory=dict)  # unit → error


class Reconciler:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        wake: Wake,
        notify_agents: NotifyAgents,
        effects: Effects,
        catalog: Catalog,
        backends: Backends,
        kinds: Kinds = KINDS,
        load: Loader | None = None,
    ) -> None:
        self.store, self.clock, self.wake, self.kinds = store, clock, wake, kinds
        self.load = load or Loader(Reader(store), catalog, backends)
        self._backends = backends
        self.committer = Committer(self.load.read, kinds, effects, notify_agents)
        self._failures: dict[str, int] = {}

    def run(self, units: Iterable[str] = (), kinds: Sequence[str] | None = None) -> Pass:
        """Process the hinted units, then all due ones, then the units that those woke, until none are left."""
        with self._backends.held():
            return self._pass(units, kinds)

    def _pass(self, units: Iterable[str], kinds: Sequence[str] | None) -> Pass:
        done = Pass()
        todo = dict.fromkeys(units, False)  # unit → whether it was found because it is due
        hints = Hints.of(todo)
        self._drain(todo, hints, done)
        for due in self._due(tuple(self.kinds.units) if kinds is None else kinds):
            if due not in done.failed:
                todo.setdefault(due, True)
        self._drain(todo, hints, done)
        if todo:
            self.wake(list(todo))
        return done

    def _drain(self, todo: dict[str, bool], hints: Hints, done: Pass) -> None:
        while todo and done.units < LONGEST_PASS:
            units = self._next(todo)
            done.units += len(units)
            woken = self._together(units, done) if len(units) > 1 else []
            for unit, due in units.items():
                with unit_context(unit):
                    woken += self._pass_over(unit, hints, due, done)
            for unit in woken:
                if unit not in done.failed:  # one failure a pass is enough
                    todo.setdefault(unit, False)

    def _next(self, todo: dict[str, bool]) -> dict[str, bool]:
        """Takes out the units to process next: a queue alone, because its placements change the other units."""
        first = list(islice(todo, TOGETHER))
        count = next((n for n, unit in enumerate(first) if not self._loads(unit)), len(first))
        return {unit: todo.pop(unit) for unit in first[: max(1, count)]}

    def _loads(self, unit: str) -> bool:
        row = self.kinds.units.get(unit.partition("/")[0])
        return row is not None and row.load is not None

    def _together(self, units: dict[str, bool], done: Pass) -> list[str]:
        """Decide about all these units, then commit their plans together. Takes out the units that this settles; the
        others, which failed, conflicted or are due with nothing to do, are processed alone. Returns the units to
        wake."""
        steps: list[Step] = []
        saves: dict[str, set[Key]] = {}  # by unit
        taken: set[Key] = set()
        try:
            for unit, due in units.items():
                plan = self._decided(unit) or Plan()
                keys = {nouns.key_of(noun) for step in plan.steps for noun in step.saves}
                if taken.isdisjoint(keys) and (plan.steps or not due):
                    steps += plan.steps
                    saves[unit] = keys
                    taken |= keys
            committed = self.committer.commit(Plan(tuple(steps)))
        except Exception as error:  # noqa: BLE001 - processing each unit alone shows which one caused it
            log.info("%d units are processed one by one, because of %r", len(units), error)
            return []
        for unit, keys in saves.items():
            if keys.isdisjoint(committed.lost):
                del units[unit]
                self._failures.pop(unit, None)
        done.steps += committed.steps
        return committed.wake

    def _due(self, kinds: Sequence[str]) -> list[str]:
        """The due units, each once, oldest first within a kind."""
        now = self.clock.now()
        soonest = self.store.next_due()
        if soonest is None or soonest > now:
            return []
        found = [due for shard in range(SHARDS) for due in self.store.due(kinds, shard, now, DUE_BATCH)]
        ordered = sorted(found, key=lambda due: kinds.index(due.kind))
        return list(dict.fromkeys(due.unit for due in ordered))

    def _pass_over(self, unit: str, hints: Hints, due: bool, done: Pass) -> list[str]:
        """Decide about one unit and commit the plan. Returns the units to wake. A failure of the unit isn't raised."""
        kind, _, unit_id = unit.partition("/")
        row = self.kinds.units.get(kind)
        if row is None:
            log.error("woken for %r, which isn't a kind of unit", unit)
            return []
        try:
            if row.load is None:
                result, next_wake = self._queue(row, unit_id, hints, due)
            else:
                result, next_wake = self._single(unit)
            if due and not result.steps and not result.lost:
                postpone.put_off(self.store, row, unit, self.clock.now(), next_wake)
        except StorageFull:  # the other units would fail as well, and no delay can be written
            raise
        except Exception as error:  # one unit's bug must not stop the others; it is reported, counted and retried
            log.exception("processing %s failed", unit)
            self._failed(row, unit, error, done)
            return []
        self._failures.pop(unit, None)
        done.steps += result.steps
        done.conflicts += len(result.lost)
        if result.lost:  # a queue finds new jobs by the hints that woke it
            self.wake([unit, *(f"run/{run}" for run in hints.runs if row.load is None)])
        return result.wake

    def _single(self, unit: str) -> tuple[Committed, Micros | None]:
        total, next_wake = Committed(), None
        for _ in range(ATTEMPTS):
            plan = self._decided(unit)
            if plan is None:
                return Committed(), None
            total, next_wake = merged(total, self.committer.commit(plan)), plan.next_wake
            if not total.lost:
                break
        return total, next_wake

    def _decided(self, unit: str) -> Plan | None:
        """The plan for a unit, checked; None if it no longer exists."""
        kind, _, unit_id = unit.partition("/")
        row = self.kinds.unit(kind)
        assert row.load is not None, "units without a loader are read page by page"
        snapshot = row.load(self.load, unit_id, self.clock.now())
        return None if snapshot is None else self.kinds.checked(snapshot, row.decide(snapshot))

    def _queue(self, row: Unit, project_id: str, hints: Hints, due: bool) -> tuple[Committed, Micros | None]:
        queue = QueuePass(self.load, self.clock, self.committer, self.kinds, row, project_id, hints)
        queue.run(due)
        return queue.done, queue.next_wake

    # --- failures ----------------------------------------------------------------------------------------------------

    def _failed(self, row: Unit, unit: str, error: Exception, done: Pass) -> None:
        times = self._failures[unit] = self._failures.get(unit, 0) + 1
        done.failed[unit] = f"{type(error).__name__}: {error}"
        until = self.clock.now() + min(2**times, 128) * 5 * SECOND
        try:
            postpone.put_off_failed(self.store, row, unit, self.clock.now(), until, error=error, times=times)
        except Exception:  # the store itself is failing: nothing can be written, so only log it
            log.exception("%s couldn't be postponed", unit)
