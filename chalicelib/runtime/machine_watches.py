"""The watches of a process that stays: one for each account whose provider reports changes of machines."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from chalicelib.backends.accounts import Account
from chalicelib.backends.spi import MachineChange, Watches
from chalicelib.runtime.ticker import Ticker

log = logging.getLogger(__name__)

AT_ONCE = 32  # watches that are ended at the same time
EVERY = 60.0  # seconds until an account whose backend couldn't be used is tried again


class MachineWatches:
    def __init__(
        self,
        accounts: Callable[[], Iterable[Account]],
        changed: Callable[[Sequence[MachineChange]], object],
        install: str,
    ) -> None:
        self._accounts, self._changed, self._install = accounts, changed, install
        self._ticker = Ticker(EVERY, self.update, at_once=True)
        self._lock = threading.Lock()
        self._followed: dict[int, tuple[Account, Callable[[], None]]] = {}
        self._stopped = False

    def start(self) -> None:
        self._ticker.start()

    def accounts_changed(self) -> None:
        self._ticker.now()

    def update(self) -> None:
        """Follow the accounts that there are now, and no others."""
        with self._lock:
            if self._stopped:
                return
            current = {id(account): account for account in self._accounts() if account.facts.watches}
            ended = [self._followed.pop(number)[1] for number in self._followed.keys() - current.keys()]
            for number in current.keys() - self._followed.keys():
                backend = current[number].backend
                if isinstance(backend, Watches):  # not one that can't be used now
                    self._followed[number] = current[number], backend.watch(self._on_change, self._install)
        _end(ended)

    def stop(self) -> None:
        self._ticker.stop()
        with self._lock:
            self._stopped = True
            followed, self._followed = self._followed, {}
        _end([end for _, end in followed.values()])

    def _on_change(self, changes: Sequence[MachineChange]) -> None:
        try:
            self._changed(changes)
        except Exception:  # a hint is lost; the watch goes on
            log.exception("what has changed is found out later: %s", changes)


def _end(ends: Sequence[Callable[[], None]]) -> None:
    """All at once: each may wait a moment for its threads."""
    if ends:
        with ThreadPoolExecutor(min(len(ends), AT_ONCE)) as pool:
            list(pool.map(lambda end: end(), ends))
