"""The reconciler's thread in the embedded server: sleeps until something is due or it is woken.

One thread, because two passes would only meet each other's version conditions. Effects run in pools of their own
(`effect_pools.py`), so that a slow provider never delays a placement.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Protocol

from chalicelib.domain.instants import SECOND, Micros
from chalicelib.engine.ports import Clock
from chalicelib.errors import StorageFull

log = logging.getLogger(__name__)

# Seconds that wake-ups are collected after a pass: as long as the pass took, within these bounds, because a pass reads
# all fleets, whether for one job or for fifty.
SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
FULL_DISK = 10.0  # seconds between tries to write to a full disk
LONGEST_SLEEP = 60.0  # seconds; the longest delay that a lost hint can cause
LONG_PASS = 60.0  # seconds after which a pass is taken for stuck


class Passes(Protocol):
    def run(self, units: Iterable[str]) -> object: ...


class ReconcileLoop:
    """Collects wake-ups while a pass runs and in the pause after it; the next pass takes them all, so load grows the
    batch and not the queue."""

    def __init__(
        self,
        clock: Clock,
        next_due: Callable[[], Micros | None],
        *,
        pause: float = SHORTEST_PAUSE,
        full_disk: float = FULL_DISK,
    ) -> None:
        self._clock, self._next_due, self._pause, self._full_disk = clock, next_due, pause, full_disk
        self._changed = threading.Condition()
        self._hints: dict[str, None] = {}  # in the order of the wake-ups
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._begun: Micros | None = None  # when the pass that is running began
        self._failed = ""  # why the last pass failed

    def problem(self) -> str:
        """Why nothing is decided at present; empty if passes run and succeed."""
        if self._stopping or self._thread is None or not self._thread.is_alive():
            return "It isn't running."
        begun = self._begun
        lasting = 0.0 if begun is None else (self._clock.now() - begun) / SECOND
        return f"Its pass has been running for {lasting:.0f} s." if lasting >= LONG_PASS else self._failed

    def wake(self, units: Iterable[str]) -> None:
        with self._changed:
            self._hints.update(dict.fromkeys(units))
            self._changed.notify()

    def start(self, passes: Passes) -> None:
        self._thread = threading.Thread(target=self._work, args=(passes,), name="reconciler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the current pass; what is due stays due in the store."""
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
                hints, self._hints = self._hints, {}
            begun = self._begun = self._clock.now()
            try:
                passes.run(hints)
                self._failed = ""
                pause = max(self._pause, min(LONGEST_PAUSE, (self._clock.now() - begun) / SECOND))
            except StorageFull as error:
                log.error("nothing can be decided: %s", error)
                self._failed = f"Nothing can be decided: {error}"
                pause = self._full_disk
                with self._changed:
                    self._hints = {**hints, **self._hints}
            except Exception as error:  # a last resort: passes isolate their units, so the store itself is failing
                log.exception("a reconciler pass failed; retrying in a second")
                self._failed = f"Its last pass failed with {type(error).__name__}; the server's log has the cause."
                pause = 1.0
                with self._changed:
                    self._hints = {**hints, **self._hints}
            self._begun = None
            with self._changed:
                self._changed.wait_for(lambda: self._stopping, timeout=pause)

    def _patience(self) -> float:
        """Until something is due. If the store can't say, a pass finds out, says what is wrong, and is repeated."""
        try:
            due = self._next_due()
        except Exception:
            log.exception("what is due next isn't known")
            return self._pause
        if due is None:
            return LONGEST_SLEEP
        return min(LONGEST_SLEEP, max(0.0, (due - self._clock.now()) / SECOND))
