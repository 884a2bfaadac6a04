"""How often agents call and their presence is written: the one thing that depends on whether calls cost money.

In AWS each call of an agent is a billed request and each write a billed unit, so a quiet agent calls once a minute and
its presence is written every five. On your own machine both are free: the server holds an agent's call until there is
news for it, and the next one follows at once. Nothing else may depend on where the control plane runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from chalicelib.domain.instants import MINUTE, SECOND, Micros

FOLLOWED: Micros = MINUTE  # from one look at a job's log on, it counts as read
STEADY_AFTER: Micros = 5 * MINUTE  # this long after the last change, an agent is quiet
_STEADY = 5  # times the fast pause


@dataclass(frozen=True)
class Pace:
    """Pauses in seconds."""

    fast: float  # between an agent's calls while something changes
    slow: float  # between them once nothing does. 0: the server holds each call, and the next follows at once
    silence: float  # the longest silence of a quiet agent: its pause, or how long the server holds its call
    presence: float  # how old a presence gets before a call that changes nothing renews it
    log: float  # how long an agent collects a job's output before it sends it,
    followed: float  # and how long while somebody reads one on its machine
    recheck: float  # until a new run is looked at, in case the word of it was lost: by then most have started
    room: float = 0.0  # what a promise is longer by, because its renewal may wait before it is written
    grain: float = 0.0  # promises end at a multiple of this; 0: each at its own time
    watched: bool = False  # are those that break their promise listed by schedule, so that no pass is due for it?

    @property
    def long_poll(self) -> bool:
        """Does the server hold calls? It must if agents don't pause between them."""
        return self.slow == 0

    def at(self, fast: float) -> Pace:
        """The same, but with this pause while something changes."""
        return replace(self, fast=fast, followed=fast)

    def pause(self, *, changing: bool, since: Micros) -> float:
        """Seconds until an agent's next call. `changing`: something does, or somebody reads a log. `since`: how long
        ago something last changed."""
        if changing:
            return self.fast
        return min(_STEADY * self.fast, self.slow) if since < STEADY_AFTER else self.slow

    def stale(self, age: Micros) -> bool:
        """Must a presence of this age be renewed?"""
        return age >= self.presence * SECOND

    def promised(self, now: Micros, wait: float = 0.0) -> Micros:
        """Until when. Where each end is looked at, many fall together, so that one pass looks at all of them."""
        end, each = now + self.promise(wait), round(self.grain * SECOND)
        return end + (-end % each if each else 0)

    def promise(self, wait: float = 0.0) -> Micros:
        """An agent reports again within this time after its presence was written; `wait` is how long it lets the server
        hold a call."""
        return round((self.presence + max(wait, self.silence) + self.room) * SECOND)

    def delays(self) -> str:
        """The longest that a start and a stop may take to reach an existing instance, as shown in plans."""
        lost = f"an unreachable one is given up after {2 * self.promise() / MINUTE:g} min"
        if self.long_poll:
            return f"Starts and stops reach an instance at once; {lost}."
        within = f"within {self.slow:g} s"
        return f"A start reaches an idle instance {within}, a stop reaches a quiet one {within}; {lost}."


EMBEDDED = Pace(
    fast=0.0, slow=0.0, silence=30.0, presence=29.0, log=0.0, followed=0.0, recheck=5.0, room=1.0, grain=2.0
)

# With a call a minute, every fifth call renews the presence: due after 4.5 min, not missed by a second at 5.
PER_CALL = Pace(fast=2.0, slow=60.0, silence=60.0, presence=270.0, log=900.0, followed=2.0, recheck=60.0, watched=True)
