"""A small thread pool for slow work. The standard library's takes longer to import than the agent's whole loop."""

from __future__ import annotations

import queue
import threading
from typing import Any, Callable, Tuple


class SlowWork:
    def __init__(self, most: int) -> None:
        self._most, self._threads, self._idle = most, 0, 0
        self._todo: "queue.SimpleQueue[Tuple[Callable[..., object], Tuple[Any, ...]]]" = queue.SimpleQueue()
        self._lock = threading.Lock()

    def submit(self, action: Callable[..., object], *arguments: Any) -> None:
        """Run this in a thread. An exception isn't reported, and ends the thread."""
        with self._lock:
            if self._idle:
                self._idle -= 1
            elif self._threads < self._most:
                self._threads += 1
                threading.Thread(target=self._run, name="slow work %d" % self._threads, daemon=True).start()
        self._todo.put((action, arguments))

    def _run(self) -> None:
        while True:
            action, arguments = self._todo.get()
            action(*arguments)
            with self._lock:
                self._idle += 1
