"""Copies of the data folder: made by the server that decides, kept at hand and restored by the one that takes over."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from chalicelib.domain.instants import HOUR, MINUTE, Micros
from chalicelib.errors import DstackError
from chalicelib.runtime.backup import back_up
from chalicelib.runtime.pair.tenure import Tenure
from chalicelib.runtime.restore import Restored, restore
from chalicelib.runtime.ticker import Ticker
from chalicelib.store.backups import Backups, Moment, part_place
from chalicelib.store.blobs import Blobs, FileBlobs

log = logging.getLogger(__name__)

KEPT: Micros = HOUR  # for which a copy is kept
PRUNE_EVERY: Micros = 10 * MINUTE
LOOKS: Micros = 5 * MINUTE  # for which a server ends nothing that took over without the last commits
SHARE = 10  # a copy every ten times as long as one takes: no more than a tenth of a core


def _now() -> Micros:
    return time.time_ns() // 1000


class Copier:
    """Makes copies of this server's folder, of which the lease names the last."""

    def __init__(
        self, folder: Path, backups: Backups, tenure: Tenure, every: float, now: Callable[[], Micros] = _now
    ) -> None:
        self._folder, self._backups, self._tenure, self._every, self._now = folder, backups, tenure, every, now
        self._one = threading.Lock()
        self._pruned_at: Micros = now()
        self.copied_at: Micros | None = None  # the moment of the last copy
        self.copies = Ticker(every, self.copy, at_once=True)

    @contextmanager
    def copying(self) -> Iterator[None]:
        """Copies are made until this ends."""
        self.copies.start()
        try:
            yield
        finally:
            self.copies.stop()

    def copy(self) -> Moment | None:
        """None: it failed, and the next turn tries again."""
        with self._one:
            return self._copy()

    def _copy(self) -> Moment | None:
        began = time.monotonic()
        try:
            self._tenure.check()
            moment = back_up(self._folder, self._backups, self._now)
            self._tenure.copied(moment.name)
            self.copied_at = moment.at
            self._prune(moment.at)
        except DstackError as error:
            log.error("no copy was made for the other server: %s", error)
            return None
        self.copies.every = max(self._every, SHARE * (time.monotonic() - began))
        return moment

    def _prune(self, now: Micros) -> None:
        if now - self._pruned_at >= PRUNE_EVERY:
            self._tenure.check()
            self._backups.prune(now - KEPT, now, unused=KEPT)
            self._pruned_at = now

    def rest(self) -> None:
        """Make the last copy, of a server that has stopped, and say in the lease that it has every commit. Raises
        Fenced if it has stopped because the lease is another's."""
        self._tenure.check()
        if self.copy() is not None:
            self._tenure.rest()


class CopyAtHand(Blobs):
    """The place, with the parts of the last copy in a folder of this machine. Parts never change, and are read from
    here if they are here; everything else is asked of the place."""

    def __init__(self, place: Blobs, folder: Path) -> None:
        self._place, self._near = place, FileBlobs(folder)

    def get(self, name: str) -> bytes | None:
        if not name.startswith("parts/"):
            return self._place.get(name)
        near = self._near.get(name)
        if near is None and (near := self._place.get(name)) is not None:
            self._near.put(name, near)
        return near

    def forget(self, name: str) -> None:
        """Ask the place for this one again."""
        self._near.delete(name)

    def keep(self, parts: Collection[str]) -> None:
        """Delete what belongs to other copies."""
        every = self._near.list("parts/", limit=10**9)
        self._near.delete(*(name for name in every if name.rpartition("/")[2] not in parts))

    def put(self, name: str, data: bytes) -> None:
        self._place.put(name, data)

    def delete(self, *names: str) -> None:
        self._place.delete(*names)

    def list(self, prefix: str, after: str = "", limit: int = 1000) -> list[str]:
        return self._place.list(prefix, after, limit)

    def dated(self, prefix: str, after: str = "", limit: int = 1000) -> Sequence[tuple[str, Micros]]:
        return self._place.dated(prefix, after, limit)

    def tidy(self, before: Micros) -> None:
        self._place.tidy(before)

    def link(self, name: str, seconds: int) -> str | None:
        return self._place.link(name, seconds)


class Spare:
    """The last copy, at hand."""

    def __init__(self, backups: Backups, at_hand: CopyAtHand) -> None:
        self._backups, self._at_hand = backups, at_hand
        self.moment: Moment | None = None
        self._sound: set[str] = set()  # the parts that were read here, and are what they should be

    def fetch(self, name: str) -> None:
        """Have the parts of this copy here. Raises DstackError if it isn't whole."""
        moment = self._backups.moment(name)
        parts = [*moment.records, *moment.feed, *moment.files]
        for part in parts:
            self._read(part)
        for part in [part for entry in self._backups.files(moment) for part in entry.parts]:
            self._read(part)
            parts.append(part)
        self._sound &= set(parts)
        self._at_hand.keep(self._sound)
        self.moment = moment

    def _read(self, part: str) -> None:
        """Nobody takes over with a copy that can't be restored, so each part is opened before."""
        if part in self._sound:
            return
        try:
            self._backups.get(part)
        except DstackError:
            self._at_hand.forget(part_place(part))
            raise
        self._sound.add(part)

    def restore(self, name: str, folder: Path, *, whole: bool) -> Restored:
        """Make the data folder as it was at this copy. `whole`: it has every commit, so its server has nothing to look
        at before it acts."""
        done = restore(self._backups, folder, _now(), name=name, looks=0 if whole else LOOKS)
        self._at_hand.keep(())
        return done
