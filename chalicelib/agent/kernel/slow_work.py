"""A few threads for slow work, as many as there is work for. The library's own pool takes longer to import than all of
the agent's loop.
"""

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
        """Have a thread do this. Nobody hears what it raises, and the thread is lost."""
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
