"""Which of two servers decides: the one that holds the lease, for as long as it may.

1. A server decides until `lasts` seconds after it began its last successful renewal.
2. Another server takes the lease by swapping exactly the one that it has seen unchanged for `PATIENCE` times as long.
   The owner itself may take it again at once: its data folder has one server at a time, which isn't deciding now.
   (After a start of the machine it is another owner: the folder may be a copy of one that is in use.) An owner that
   has stopped says so in the lease, and decides nothing any more.
3. A renewal and a takeover are the same swap. So if a takeover succeeds, the owner has renewed nothing since its lease
   was first seen, and began its last renewal before that.

So at most one server decides, whatever the network loses, repeats or delays and however long a process is paused. Each
server reads only its own clock, and only how much time has passed on it: the rates of two clocks would have to differ
by `PATIENCE` before both could decide.

A step that asks the place is a generator: it yields what it asks, and is sent the result. So the simulation can let
anything happen in between.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace

from chalicelib.domain.leases import Epoch, Lease

PATIENCE = 2.0
RENEWALS = 5  # that are begun in the time that one lasts


@dataclass(frozen=True)
class Found:
    """The lease as it is in the place. `version` differs after every swap."""

    lease: Lease
    version: str


@dataclass(frozen=True)
class Read:
    """Ask for the lease. The result is a Found, or None if there is none."""


@dataclass(frozen=True)
class Swap:
    """Replace this version of the lease; None: make the first one. The result is a Found, or None if it isn't that
    version any more. If there is no result, it may have been made."""

    lease: Lease
    after: str | None


Ask = Read | Swap
Step = Generator[Ask, Found | None, "Holding | None"]


@dataclass(frozen=True)
class Holding:
    """A lease that this server holds. `began`: when it began to take or renew it, by its own clock."""

    found: Found
    began: float

    @property
    def epoch(self) -> Epoch:
        return Epoch(self.found.lease.id, self.found.lease.epoch)

    @property
    def until(self) -> float:
        return self.began + self.found.lease.lasts

    def decides(self, now: float) -> bool:
        return now < self.until


def renewal(held: Holding, now: float, *, moment: str, rests: bool = False) -> Step:
    """Renew the lease. None: another server has it, or there is none any more."""
    after = held.found
    while True:
        lease = after.lease
        done = yield Swap(replace(lease, turn=lease.turn + 1, moment=moment, rests=rests), after.version)
        if done is not None:
            return Holding(done, now)
        there = yield Read()
        if there is None or Holding(there, now).epoch != held.epoch:
            return None
        if there.version == after.version:
            return held  # the place contradicts itself: ask again at the next turn
        after = there  # an earlier renewal of this server was made, although it had no result


def takeover(seen: Found, now: float, *, owner: str, name: str, lasts: float) -> Step:
    """Take the lease that was seen. None: it was renewed or taken meanwhile."""
    number = seen.lease.epoch + 1
    lease = replace(seen.lease, epoch=number, owner=owner, name=name, lasts=lasts, turn=0, rests=False)
    done = yield Swap(lease, seen.version)
    return None if done is None else Holding(done, now)


def first(now: float, *, id: str, owner: str, name: str, lasts: float) -> Step:
    """Make the lease. None: there is one."""
    done = yield Swap(Lease(id, 1, owner, name, lasts), None)
    return None if done is None else Holding(done, now)


class Watch:
    """What a server that stands by knows of the lease."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self.seen: Found | None = None
        self._since = 0.0  # when it was first seen as it is

    def saw(self, found: Found | None, now: float) -> None:
        """`now`: when the place had answered."""
        if found is None or self.seen is None or found.version != self.seen.version:
            self.seen, self._since = found, now

    def left(self, now: float) -> float:
        """Seconds until the lease may be taken, if it stays as it is."""
        if self.seen is None:
            return float("inf")
        if self.seen.lease.owner == self._owner:
            return 0.0
        lease = self.seen.lease
        patience = lease.lasts if lease.rests else PATIENCE * lease.lasts  # who rests may want to start again
        return max(0.0, self._since + patience - now)
