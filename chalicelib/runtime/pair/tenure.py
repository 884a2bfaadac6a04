"""The time for which this server decides. It is asked before and after whatever decides, and compares two numbers."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from chalicelib.domain.leases import Epoch
from chalicelib.errors import DstackError, Fenced
from chalicelib.runtime.pair.places import LeasePlace
from chalicelib.runtime.pair.protocol import RENEWALS, Found, Holding, Read, Step, renewal
from chalicelib.runtime.ticker import Ticker
from chalicelib.store.port import Change, Store

log = logging.getLogger(__name__)

T = TypeVar("T")
WATCH_EVERY = 0.5  # seconds
HINT = "Call the pair's own address, which leads to the server that decides."


def elapsed() -> float:
    """Seconds that have passed on this machine since some moment, also while it was suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def asked(step: Step, place: LeasePlace) -> Holding | None:
    """Do this step of the protocol."""
    result: Found | None = None
    try:
        while True:
            ask = step.send(result)
            result = place.read() if isinstance(ask, Read) else place.swap(ask.lease, ask.after)
    except StopIteration as done:
        held: Holding | None = done.value
        return held


class Tenure:
    def __init__(self, place: LeasePlace, held: Holding, clock: Callable[[], float] = elapsed) -> None:
        self._place, self._held, self._clock = place, held, clock
        self.moment = held.found.lease.moment  # the last copy
        self._renewing = threading.Lock()
        self._lost, self._rests = "", False  # why it is over
        self.epoch: Epoch = held.epoch
        self.lasts = held.found.lease.lasts
        self.renewals = Ticker(self.lasts / RENEWALS, self._renew)

    @property
    def decides(self) -> bool:
        return not self._lost and self._held.decides(self._clock())

    @property
    def overdue(self) -> float:
        """For how many seconds it has been over; negative while it isn't."""
        return self._clock() - self._held.until

    def why(self) -> str:
        """Why this server doesn't decide; empty while it does."""
        if self._lost or self.decides:
            return self._lost
        return f"This server couldn't renew its lease for {self.lasts:g} s, and decides nothing: the other one may."

    def check(self) -> None:
        """Raises Fenced if this server doesn't decide."""
        if why := self.why():
            raise Fenced(why, hint=HINT)

    def guarded(self, work: Callable[[T], object]) -> Callable[[T], object]:
        """The same work, which isn't begun by a server that doesn't decide."""

        def begin(given: T) -> object:
            self.check()
            return work(given)

        return begin

    @contextmanager
    def renewed(self) -> Iterator[None]:
        """It is renewed in time, as far as the place answers, until this ends."""
        self.renewals.start()
        Ticker(WATCH_EVERY, self._watch).start()  # to the end of the process
        try:
            yield
        finally:
            self.renewals.stop()

    def copied(self, moment: str) -> None:
        """There is a newer copy to take over from. The next renewal says so."""
        self.moment = moment

    def rest(self) -> None:
        """Say in the lease that this server has stopped, and that its last copy has every commit."""
        self._rests = True
        self.renew()

    def renew(self) -> None:
        """Raises Fenced if the lease is another's, and another DstackError if the place doesn't answer."""
        with self._renewing:
            self.check()
            step = renewal(self._held, self._clock(), moment=self.moment, rests=self._rests)
            held = asked(step, self._place)
            if held is None:
                self._lost = self._taken()
                raise Fenced(self._lost, hint=HINT)
            self._held = held

    def _taken(self) -> str:
        try:
            found = self._place.read()
        except DstackError:
            found = None
        if found is None:
            return "The lease of this server's pair is gone, so it decides nothing."
        return f"{found.lease.name} has taken over (epoch {found.lease.epoch}): this server decides nothing."

    def _watch(self) -> None:
        """A process that doesn't end by itself is ended before the other server may decide, with whatever it is still
        asking of providers."""
        why = self.why()
        if why and self.overdue > self.lasts / 2:
            log.error("%s The process ends", why)
            os._exit(1)

    def _renew(self) -> None:
        if not self.decides:
            return
        try:
            self.renew()
        except Fenced:
            return  # `why` says it to whoever asks
        except DstackError as error:
            log.warning("the lease couldn't be renewed, and ends in %.0f s: %s", -self.overdue, error)


class TenuredStore:
    """`Store`: nothing is committed by a server that doesn't decide."""

    def __init__(self, below: Store, check: Callable[[], None]) -> None:
        self.below, self._check = below, check
        self.get, self.get_many, self.query, self.scan = below.get, below.get_many, below.query, below.scan
        self.due, self.next_due, self.close = below.due, below.next_due, below.close

    def commit(self, changes: Sequence[Change]) -> None:
        self._check()
        self.below.commit(changes)
