"""The periodic tasks of the agent's loop, and their intervals."""

from __future__ import annotations

from typing import NamedTuple


class Intervals(NamedTuple):
    """Seconds between two runs of the loop's periodic tasks."""

    check: float = 5.0  # of tasks: dead supervisors, a full disk
    metrics: float = 10.0
    facts: float = 600.0
    health: float = 10.0  # of disks and engines; the vendors' tools run less often


class Periodic:
    """The times of a periodic task, which first runs after one interval."""

    def __init__(self, interval: float, now: float) -> None:
        self._interval, self.next_at = interval, now + interval

    def begin(self, now: float) -> bool:
        """Begin the next interval and return True if the task is due; else return False."""
        if now < self.next_at:
            return False
        self.next_at = now + self._interval
        return True
