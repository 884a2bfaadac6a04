"""Periodic tasks of the embedded server, each on a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from chalicelib.errors import StorageFull

log = logging.getLogger(__name__)


class Ticker:
    """A periodic task: runs `work` on its own thread, first after one period or at once. Failures are logged and don't
    end it."""

    def __init__(self, every: float, work: Callable[[], object], *, at_once: bool = False) -> None:
        self.every, self.work, self._at_once = every, work, at_once
        self._stopping, self._worked = threading.Event(), threading.Event()
        self._wanted = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._tick, name="ticker", daemon=True).start()

    def wait_first(self, patience: float) -> bool:
        """Wait up to this many seconds for the first run to end. Returns whether it has."""
        return self._worked.wait(patience)

    def now(self) -> None:
        """Run again at once, or after the present run."""
        self._wanted.set()

    def pause(self, seconds: float) -> bool:
        """Pause within a run of `work`. Returns False if the next run has been requested, so that this one should
        end."""
        return not self._wanted.wait(seconds)

    def stop(self) -> None:
        self._stopping.set()
        self._wanted.set()

    def _tick(self) -> None:
        pause = 0.0 if self._at_once else self.every
        while True:
            self._wanted.wait(pause)
            self._wanted.clear()  # before the check of `_stopping`, because `stop` sets this last
            if self._stopping.is_set():
                return
            try:
                self.work()
            except StorageFull as error:
                log.error("the task that runs every %g s failed: %s", self.every, error)
            except Exception:
                log.exception("the task that runs every %g s failed", self.every)
            self._worked.set()
            pause = self.every
