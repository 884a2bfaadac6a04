"""One pass: due → load → decide → lint → commit → hand on the effects. The timer and the wake-up run this same pass.

Rule 1: a pass decides from the store alone; a hint only says where to look first. Rule 2: units don't depend on each
other, so one that fails is written down, put off and passed by. Rule 3: whatever a pass looked at because it was due
isn't due any more when it ends: decided, put off to the plan's next wake, or put off as failed. A pass thus always
ends, and an idle plane stays idle.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.jobs import Job
from chalicelib.engine import postpone
from chalicelib.engine.commit import Committed, Committer
from chalicelib.engine.decisions import Decisions
from chalicelib.engine.load import PAGE, Loader, order, room
from chalicelib.engine.ports import Catalog, Clock, Effects, News, Wake
from chalicelib.planning.plan import Plan
from chalicelib.planning.snapshots import FleetView
from chalicelib.store.port import SHARDS, Store

log = logging.getLogger(__name__)

KINDS = ("queue", "run", "instance", "fleet")
ATTEMPTS = 5  # fresh looks after a conflict, before the unit is left to the next pass
LONGEST_PASS = 2000  # units; what is left over is woken again
DUE_BATCH = 200
SMALLEST_PAGE = 16  # waiting jobs to look at when only a place or two are free


@dataclass
class Pass:
    """What a pass did; the caller logs it, the simulation asserts on it."""

    units: int = 0
    steps: int = 0
    conflicts: int = 0
    failed: dict[str, str] = field(default_factory=dict)  # unit → error


@dataclass(frozen=True)
class Hints:
    """Ids whose change woke this pass: read by key even where no index shows them yet."""

    runs: tuple[str, ...] = ()
    instances: tuple[str, ...] = ()

    @staticmethod
    def of(units: Iterable[str]) -> Hints:
        split = [unit.partition("/") for unit in units]
        return Hints(
            tuple(id for kind, _, id in split if kind == "run"),
            tuple(id for kind, _, id in split if kind == "instance"),
        )


@dataclass
class _QueueLook:
    """One look at one project's queue, page after page."""

    project_id: str
    hints: Hints
    fleets: tuple[FleetView, ...]
    seen: set[str] = field(default_factory=set)
    done: Committed = field(default_factory=Committed)
    next_wake: Micros | None = None

    def add(self, done: Committed, next_wake: Micros | None) -> None:
        self.done = _joined(self.done, done)
        self.next_wake = min((at for at in (self.next_wake, next_wake) if at is not None), default=None)


class Reconciler:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        wake: Wake,
        news: News,
        effects: Effects,
        catalog: Catalog,
        facts: Mapping[str, BackendFacts],
        decisions: Decisions | None = None,
        load: Loader | None = None,
    ) -> None:
        self.store, self.clock, self.wake = store, clock, wake
        self.load = load or Loader(store, catalog, facts)
        self.decisions = decisions or Decisions()
        self.committer = Committer(store, effects, news)
        self._failures: dict[str, int] = {}
        self._deciders: dict[str, tuple[Callable[[str, Micros], Any], Callable[[Any], Plan]]] = {
            "run": (self.load.run, self.decisions.run),
            "instance": (self.load.instance, self.decisions.instance),
            "fleet": (self.load.fleet, self.decisions.fleet),
        }

    def run(self, units: Iterable[str] = (), kinds: Sequence[str] = KINDS) -> Pass:
        """Look at the hinted units, then at all that is due, then at what those woke, until nothing is left."""
        done = Pass()
        todo = dict.fromkeys(units, False)  # unit → is it here because it is due?
        hints = Hints.of(todo)
        self._drain(todo, hints, done)
        for due in self._due(kinds):
            if due not in done.failed:
                todo.setdefault(due, True)
        self._drain(todo, hints, done)
        if todo:
            self.wake(list(todo))
        return done

    def _drain(self, todo: dict[str, bool], hints: Hints, done: Pass) -> None:
        while todo and done.units < LONGEST_PASS:
            unit = next(iter(todo))
            due = todo.pop(unit)
            done.units += 1
            for woken in self._look(unit, hints, due, done):
                if woken not in done.failed:  # once a pass is enough to know
                    todo.setdefault(woken, False)

    def _due(self, kinds: Sequence[str]) -> list[str]:
        """The units that are due, oldest first within a kind; none twice."""
        now = self.clock.now()
        soonest = self.store.next_due()
        if soonest is None or soonest > now:
            return []
        found = [
            due for kind in kinds for shard in range(SHARDS) for due in self.store.due(kind, shard, now, DUE_BATCH)
        ]
        return list(dict.fromkeys(due.unit for due in found))

    def _look(self, unit: str, hints: Hints, due: bool, done: Pass) -> list[str]:
        """Decide about one unit and commit it. Returns the units that this wakes; never raises for the unit's sake."""
        kind, _, unit_id = unit.partition("/")
        try:
            if kind == "queue":
                result, next_wake = self._queue(unit_id, hints, due)
            elif kind in self._deciders:
                result, next_wake = self._single(kind, unit_id)
            else:
                log.error("woken for %r, which is no kind of unit", unit)
                return []
            if due and not result.steps and not result.lost:
                postpone.put_off(self.store, unit, self.clock.now(), next_wake)
        except Exception as error:  # one unit's bug must not stop the others; it is told, counted and tried again
            log.exception("looking at %s failed", unit)
            self._failed(unit, error, done)
            return []
        self._failures.pop(unit, None)
        done.steps += result.steps
        done.conflicts += len(result.lost)
        if result.lost:
            self.wake([unit])
        return result.wake

    def _single(self, kind: str, unit_id: str) -> tuple[Committed, Micros | None]:
        load, decide = self._deciders[kind]
        total, next_wake = Committed(), None
        for _ in range(ATTEMPTS):
            snapshot = load(unit_id, self.clock.now())
            if snapshot is None:
                return Committed(), None
            plan = self.decisions.checked(snapshot, decide(snapshot))
            total, next_wake = _joined(total, self.committer.commit(plan)), plan.next_wake
            if not total.lost:
                break
        return total, next_wake

    # --- the queue ---------------------------------------------------------------------------------------------------

    def _queue(self, project_id: str, hints: Hints, due: bool) -> tuple[Committed, Micros | None]:
        """Page the queue from its head for as long as there may be a place left.

        A full house reads nothing, unless some job is due: it may have waited long enough. What was just submitted is
        looked at in any case, so that a job that can't be placed hears why.
        """
        now = self.clock.now()
        asked = self.load.queued_of(hints.runs, project_id)
        look = _QueueLook(project_id, hints, self.load.fleet_views(project_id, hints.instances))
        cursor: str | None = None
        while True:
            places = room(look.fleets)
            if places == 0 and not due:
                break
            limit = PAGE if due or places is None else min(PAGE, max(SMALLEST_PAGE, 2 * places))
            jobs, cursor = self.load.queue_page(project_id, cursor, limit)
            if cursor is None:
                jobs = sorted({job.id: job for job in (*jobs, *asked)}.values(), key=order)
            if places == 0:
                jobs = [job for job in jobs if job.due_at is not None and job.due_at <= now]
            self._place(look, jobs)
            if cursor is None:
                break
        self._place(look, asked)
        return look.done, look.next_wake

    def _place(self, look: _QueueLook, jobs: list[Job]) -> None:
        """Decide about those of `jobs` that this look hasn't met yet; after a conflict, about what is left of them."""
        jobs = [job for job in jobs if job.id not in look.seen]
        look.seen.update(job.id for job in jobs)
        for _ in range(ATTEMPTS):
            if not jobs:
                return
            snapshot = self.load.queue(look.project_id, jobs, look.fleets, self.clock.now())
            plan = self.decisions.checked(snapshot, self.decisions.queue(snapshot))
            done = self.committer.commit(plan)
            look.add(done, plan.next_wake)
            if done.steps or done.lost:
                look.fleets = self.load.fleet_views(look.project_id, look.hints.instances)
            if not done.lost:
                return
            jobs = self.load.still_waiting(jobs)

    # --- failures ----------------------------------------------------------------------------------------------------

    def _failed(self, unit: str, error: Exception, done: Pass) -> None:
        times = self._failures[unit] = self._failures.get(unit, 0) + 1
        done.failed[unit] = f"{type(error).__name__}: {error}"
        until = self.clock.now() + min(2**times, 128) * 5 * SECOND
        try:
            postpone.put_off_failed(self.store, unit, self.clock.now(), until, error=error, times=times)
        except Exception:  # the store itself is failing: then nothing can be written, and the log is all there is
            log.exception("%s couldn't be put off", unit)


def _joined(before: Committed, after: Committed) -> Committed:
    """Both looks together; only what the last one lost is still lost."""
    return Committed(before.steps + after.steps, after.lost, [*before.wake, *after.wake])
