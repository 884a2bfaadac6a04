"""What a restored server does with what it meets while it only looks: it notes it.

Whether it looks is asked on every call of an agent, so the answer is kept, and read again from the store now and then:
the operator's word comes from another process. A server has a thread for that (`RestoredHold`); a function, which runs
only while it handles an event, reads and writes when it is asked (`EventHold`).
"""

from __future__ import annotations

import logging
import threading

from chalicelib.domain import keys
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.restorations import MOST_MET, Met, Restoration
from chalicelib.engine.ports import Clock
from chalicelib.errors import Conflict, Refused
from chalicelib.store import nouns
from chalicelib.store.port import Store

log = logging.getLogger(__name__)

HEARD_WITHIN: Micros = 10 * SECOND  # after which a function that only looks reads the mark again
ATTEMPTS = 5  # to note something that several functions meet at once


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

    @property
    def as_of(self) -> Micros:
        return 0 if self.mark is None else self.mark.as_of

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


class EventHold:
    """`Hold` of a process that handles one event after another. It reads the mark once, at the first question, and
    again only while there is one by which it looks: whoever puts a mark into a store replaces all processes
    (`infra/restore.py`)."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._mark: Restoration | None = None
        self._read_at: Micros | None = None

    @property
    def looking(self) -> bool:
        now = self._clock.now()
        if self._read_at is None or (self._looks(now) and now >= self._read_at + HEARD_WITHIN):
            self._read(now)
        return self._looks(now)

    @property
    def as_of(self) -> Micros:
        if self._read_at is None:
            self._read(self._clock.now())
        return 0 if self._mark is None else self._mark.as_of

    def met(self, *found: Met) -> None:
        """Note these, each once, before the event is answered: afterwards this process may never run again."""
        for _ in range(ATTEMPTS):
            if (noted := self._noted(found)) is None:
                return
            try:
                self._store.commit([nouns.put(noted)])
            except Conflict:  # another function's note, or the operator's word
                self._read(self._clock.now())
                continue
            self._mark = noted.with_(version=noted.version + 1)
            return
        log.warning("too many functions note at once; met again, it is noted: %s", found[0].says)

    def _noted(self, found: tuple[Met, ...]) -> Restoration | None:
        """The mark with these, as far as there is room. None: there is nothing to add, or it acts by now."""
        mark = self._mark if self.looking else None
        known = {(each.kind, each.id) for each in mark.met} if mark else set()
        fresh = {(each.kind, each.id): each for each in found if (each.kind, each.id) not in known}
        if mark is None or not fresh or len(mark.met) >= MOST_MET:
            return None
        for each in fresh.values():
            log.warning("restored, and met: %s", each.says)
        return mark.with_(met=(*mark.met, *fresh.values())[:MOST_MET])

    def _looks(self, now: Micros) -> bool:
        return self._mark is not None and self._mark.looking(now)

    def _read(self, now: Micros) -> None:
        self._mark, self._read_at = nouns.find(self._store, Restoration, keys.RESTORATION), now


def go_on(store: Store, clock: Clock) -> Restoration | None:
    """An operator's word that the server may act again. None: it wasn't restored. Raises Refused while records of the
    moment are still missing."""
    while True:
        mark = nouns.find(store, Restoration, keys.RESTORATION)
        if mark is None or not mark.looking(clock.now()):
            return mark
        if not mark.whole:
            raise Refused(
                "Not all records of the moment are back: the command that restores them was cut off.",
                hint="Run `python -m infra.restore` again, with the same --at.",
            )
        said = mark.with_(went_on_at=clock.now())
        try:
            store.commit([nouns.put(said)])
            return said
        except Conflict:
            continue  # the server has noted something: read it again
