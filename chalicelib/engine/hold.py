"""What a restored server does with what it meets while it only looks: it notes it.

Whether it looks is asked on every call of an agent, so the answer is kept, and read again from the store now and then:
the operator's word comes from another process.
"""

from __future__ import annotations

import logging
import threading

from chalicelib.domain import keys
from chalicelib.domain.restorations import MOST_MET, Met, Restoration
from chalicelib.engine.ports import Clock
from chalicelib.errors import Conflict
from chalicelib.store import nouns
from chalicelib.store.port import Store

log = logging.getLogger(__name__)


class RestoredHold:
    """`Hold` of a store. `refresh` reads the operator's word, and stores what was met."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._lock = threading.Lock()
        self._found: dict[tuple[str, str], Met] = {}
        self.mark = nouns.find(store, Restoration, keys.RESTORATION)
        self._known = {(each.kind, each.id) for each in self.mark.met} if self.mark else set()

    @property
    def looking(self) -> bool:
        return self.mark is not None and self.mark.looking(self._clock.now())

    def met(self, *found: Met) -> None:
        """Note these, each once."""
        with self._lock:
            for one in found:
                at = (one.kind, one.id)
                if at not in self._known and len(self._known) < MOST_MET:
                    self._known.add(at)
                    self._found[at] = one
                    log.warning("restored, and met: %s", one.says)

    def refresh(self) -> bool:
        """Returns whether the server still only looks."""
        if self.mark is None:
            return False
        with self._lock:
            found, self._found = self._found, {}
        mark = nouns.find(self._store, Restoration, keys.RESTORATION) or self.mark
        if found:
            noted = mark.with_(met=(*mark.met, *found.values()))
            try:
                self._store.commit([nouns.put(noted)])
                mark = noted.with_(version=noted.version + 1)
            except Conflict:  # the operator's word came meanwhile: the next turn notes them
                with self._lock:
                    self._found = {**found, **self._found}
        self.mark = mark
        return self.looking


def go_on(store: Store, clock: Clock) -> Restoration | None:
    """An operator's word that the server may act again. None: it wasn't restored."""
    while True:
        mark = nouns.find(store, Restoration, keys.RESTORATION)
        if mark is None or not mark.looking(clock.now()):
            return mark
        said = mark.with_(went_on_at=clock.now())
        try:
            store.commit([nouns.put(said)])
            return said
        except Conflict:
            continue  # the server has noted something: read it again
