"""How often agents call, and how often their presence is written: all that depends on whether calls cost money.

In AWS each call of an agent is a billed request and each write a billed unit, so a quiet agent calls once a minute and
its presence is written every five. On your own machine both are free: the server holds an agent's call until there is
news for it, and the next one follows at once. Nothing else may depend on where the control plane runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from chalicelib.domain.instants import MINUTE, SECOND, Micros

FOLLOWED: Micros = MINUTE  # a log counts as being read for this long after each request for it
STEADY_AFTER: Micros = 5 * MINUTE  # the time after the last change from which an agent is quiet
_STEADY = 5  # the pause of an agent that isn't quiet yet, in fast pauses


@dataclass(frozen=True)
class Pace:
    """Pauses in seconds."""

    fast: float  # between an agent's calls while something changes
    slow: float  # between them otherwise. 0: the server holds each call, and the next follows at once
    silence: float  # the longest silence of a quiet agent: its pause, or the time for which the server holds its call
    presence: float  # the age at which a call that changes nothing renews the presence
    log: float  # for which an agent collects a job's output before it sends it
    followed: float  # the same while somebody reads a log on its machine
    recheck: float  # until a new run is checked in case its wake was lost: most have started by then
    room: float = 0.0  # added to a promise, because its renewal may wait to be written
    grain: float = 0.0  # promises end at a multiple of this; 0: each at its own time
    watched: bool = (
        False  # whether a schedule lists agents that broke their promise, so that no pass need be due for it
    )

    @property
    def long_poll(self) -> bool:
        """Does the server hold calls? It must if agents don't pause between them."""
        return self.slow == 0

    def at(self, fast: float) -> Pace:
        """The same pace with this pause while something changes."""
        return replace(self, fast=fast, followed=fast)

    def pause(self, *, changing: bool, since: Micros) -> float:
        """Seconds until an agent's next call. `changing`: something changes, or somebody reads a log. `since`: how long
        ago something last changed."""
        if changing:
            return self.fast
        return min(_STEADY * self.fast, self.slow) if since < STEADY_AFTER else self.slow

    def stale(self, age: Micros) -> bool:
        """Must a presence of this age be renewed?"""
        return age >= self.presence * SECOND

    def promised(self, now: Micros, wait: float = 0.0) -> Micros:
        """The end of a promise that begins now. Where a pass checks each end, ends are aligned, so that one pass checks
        many."""
        end, each = now + self.promise(wait), round(self.grain * SECOND)
        return end + (-end % each if each else 0)

    def promise(self, wait: float = 0.0) -> Micros:
        """The time within which an agent reports again after its presence was written. `wait`: how long it lets the
        server hold a call."""
        return round((self.presence + max(wait, self.silence) + self.room) * SECOND)

    def delays(self) -> str:
        """How long a start and a stop may take to reach an existing instance, as shown in plans."""
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
