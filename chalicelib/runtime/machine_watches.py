"""The watches of a process that stays: one for each account whose provider reports changes of machines."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence

from chalicelib.backends.accounts import Account
from chalicelib.backends.spi import MachineChange, Watches
from chalicelib.runtime.ticker import Ticker

log = logging.getLogger(__name__)

EVERY = 60.0  # seconds until an account whose backend couldn't be used is tried again


class MachineWatches:
    def __init__(
        self, accounts: Callable[[], Iterable[Account]], changed: Callable[[Sequence[MachineChange]], object]
    ) -> None:
        self._accounts, self._changed = accounts, changed
        self._ticker = Ticker(EVERY, self.keep, at_once=True)
        self._lock = threading.Lock()
        self._followed: dict[int, tuple[Account, Callable[[], None]]] = {}
        self._stopped = False

    def start(self) -> None:
        self._ticker.start()

    def look_again(self) -> None:
        """The accounts have changed."""
        self._ticker.now()

    def keep(self) -> None:
        """Follow the accounts that there are now, and no others."""
        with self._lock:
            if self._stopped:
                return
            current = {id(account): account for account in self._accounts() if account.facts.watches}
            for number in self._followed.keys() - current.keys():
                self._followed.pop(number)[1]()
            for number in current.keys() - self._followed.keys():
                backend = current[number].backend
                if isinstance(backend, Watches):  # not one that can't be used now
                    self._followed[number] = current[number], backend.watch(self._on_change)

    def stop(self) -> None:
        self._ticker.stop()
        with self._lock:
            self._stopped = True
            followed, self._followed = self._followed, {}
        for _, end in followed.values():
            end()

    def _on_change(self, changes: Sequence[MachineChange]) -> None:
        try:
            self._changed(changes)
        except Exception:  # a hint is lost; the watch goes on
            log.exception("what has changed is found out later: %s", changes)
