"""Deferred writes: collected in memory, and committed together.

Nearly everything that an idle server writes is renewed presences: a quiet agent's report changes its presence's times
and nothing else. A transaction for each would be half of what a thousand idle hosts cost. So they wait here, and are
written together. Nothing reads them meanwhile: an agent's next report comes much later, and if it comes sooner, its own
write is the newer one. A crash loses only presences that the agents renew with their next calls.
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
        """Defer this write, in place of one that waits for the same record. It is dropped silently if the record is
        written otherwise first."""
        with self._lock:
            self._waiting[put.key] = put

    def write(self) -> None:
        """Commit all waiting writes. Those that fail wait for the next call."""
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
        remaining = {str(put.key): put for put in puts}
        while remaining:
            try:
                return self._store.commit(list(remaining.values()))
            except Conflict as conflict:
                del remaining[conflict.key]
