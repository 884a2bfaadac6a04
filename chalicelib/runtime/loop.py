"""The reconciler's thread in the embedded server: sleeps until something is due or somebody wakes it.

One thread, because two passes would only meet each other's version conditions. Effects (calls to clouds) run in a small
pool of their own, so that a slow provider never delays a placement.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from chalicelib.domain.instants import SECOND, Micros
from chalicelib.engine.ports import Clock
from chalicelib.planning.plan import Effect

log = logging.getLogger(__name__)

LONGEST_SLEEP = 60.0  # seconds; the schedule that a lost hint costs at most


class Passes(Protocol):
    def run(self, units: Iterable[str]) -> object: ...


class Loop:
    """Wake-ups collect while a pass runs, and the next pass takes them all: load grows the batch, not the queue."""

    def __init__(self, clock: Clock, next_due: Callable[[], Micros | None]) -> None:
        self._clock, self._next_due = clock, next_due
        self._changed = threading.Condition()
        self._hints: set[str] = set()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def wake(self, units: Iterable[str]) -> None:
        with self._changed:
            self._hints.update(units)
            self._changed.notify()

    def start(self, passes: Passes) -> None:
        self._thread = threading.Thread(target=self._work, args=(passes,), name="reconciler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends after the pass under way; what is due stays due in the store."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(timeout=30)

    def _work(self, passes: Passes) -> None:
        while True:
            with self._changed:
                if not self._hints and not self._stopping:
                    self._changed.wait(self._patience())
                if self._stopping:
                    return
                hints, self._hints = self._hints, set()
            try:
                passes.run(hints)
            except Exception:  # the last line: a pass isolates its units, so this is the store failing as a whole
                log.exception("a reconciler pass failed; trying again in a second")
                with self._changed:
                    self._hints |= hints
                    self._changed.wait_for(lambda: self._stopping, timeout=1.0)

    def _patience(self) -> float:
        due = self._next_due()
        if due is None:
            return LONGEST_SLEEP
        return min(LONGEST_SLEEP, max(0.0, (due - self._clock.now()) / SECOND))


class Ticker:
    """Does `work` every so many seconds on a thread of its own, first after one such wait. A failure is told and the
    next turn comes all the same."""

    def __init__(self, every: float, work: Callable[[], object]) -> None:
        self._every, self._work = every, work
        self._stopping = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._turn, name="ticker", daemon=True).start()

    def stop(self) -> None:
        self._stopping.set()

    def _turn(self) -> None:
        while not self._stopping.wait(self._every):
            try:
                self._work()
            except Exception:
                log.exception("what is done every %g s failed", self._every)


class EffectPool:
    """Executes committed effects on a few threads, one at a time for each instance: its order is that of commits."""

    def __init__(self, execute: Callable[[Effect], object], threads: int = 8) -> None:
        self._execute = execute
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="effect")
        self._lock = threading.Lock()
        self._waiting: dict[str, list[Effect]] = {}

    def submit(self, effect: Effect) -> None:
        with self._lock:
            queue = self._waiting.get(effect.instance_id)
            if queue is not None:
                if effect not in queue:
                    queue.append(effect)
                return
            self._waiting[effect.instance_id] = [effect]
        self._pool.submit(self._drain, effect.instance_id)

    def _drain(self, instance_id: str) -> None:
        while True:
            with self._lock:
                queue = self._waiting[instance_id]
                if not queue:
                    del self._waiting[instance_id]
                    return
                effect = queue.pop(0)
            try:
                self._execute(effect)
            except Exception:  # the effect stays committed; the next pass over the instance repeats it
                log.exception("executing %s failed", effect)

    def stop(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
