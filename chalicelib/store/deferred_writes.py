"""Writes that may wait a moment: gathered in memory, and made together.

Nearly all that an idle server writes is renewed promises: a quiet agent's report changes its presence's times and
nothing else. A transaction for each would be half of what a thousand idle hosts cost. So these wait here, and each turn
writes all there are. Nobody reads what waits: an agent's next report comes long after, and if it comes sooner, its own
write is the newer one. What a crash loses is a promise that the agent renews when it calls again.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from chalicelib.domain.keys import Key
from chalicelib.errors import Conflict
from chalicelib.store.port import MAX_CHANGES, Put, Store


class DeferredWrites:
    def __init__(self, store: Store) -> None:
        self._store, self._lock = store, threading.Lock()
        self._waiting: dict[Key, Put] = {}

    def add(self, put: Put) -> None:
        """Have it written with the next turn, instead of what waits for the same record. It is dropped without a word
        if somebody else writes that record first."""
        with self._lock:
            self._waiting[put.key] = put

    def write(self) -> None:
        """One turn. What can't be written waits for the next one."""
        with self._lock:
            puts, self._waiting = list(self._waiting.values()), {}
        for start in range(0, len(puts), MAX_CHANGES):
            try:
                self._write(puts[start : start + MAX_CHANGES])
            except Exception:
                with self._lock:
                    self._waiting = {**{put.key: put for put in puts[start:]}, **self._waiting}
                raise

    def _write(self, puts: Sequence[Put]) -> None:
        left = {str(put.key): put for put in puts}
        while left:
            try:
                return self._store.commit(list(left.values()))
            except Conflict as conflict:
                del left[conflict.key]
