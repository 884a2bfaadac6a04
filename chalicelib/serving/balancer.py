"""Load balancing: of the ready replicas, the one with the fewest requests under way from this door gets the next.

A replica that can't be reached twice in a row is left out for some seconds, unless it is the only one. A request that a
replica failed to answer goes to another one if it can safely be sent again, preferably on another host, because the
host may have died.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from chalicelib.domain.serving import Served, ServedReplica

FAILURES = 2  # in a row, after which a replica is left out …
LEFT_OUT = 5.0  # … for so many seconds
ATTEMPTS = 3  # of one request
REPEATABLE = 2**20  # bytes of a body that is retained for another attempt …
MOST_RETAINED = 64 * 2**20  # … and of all bodies together


class Balancer:
    """Chooses replicas, for all services of this door. `now` is in seconds."""

    def __init__(self) -> None:
        self.under_way: Counter[str] = Counter()  # by job
        self._failed: dict[str, tuple[int, float]] = {}  # by job: how often in a row, and when last
        self._turns: dict[str, int] = {}  # when each was last chosen: among equals the one that has waited longest
        self._turn = 0

    def choose(self, service: Served, now: float, tried: Collection[str] = (), only: str = "") -> ServedReplica | None:
        """The replica for a request; None: none is ready. One that was tried is chosen again only if there is no other.
        `only`: the job that must serve the request, even while it is draining."""
        if only:
            return next((each for each in service.replicas if each.job_id == only and each.ready), None)
        ready = [each for each in service.replicas if each.ready and not each.draining]
        if len(ready) < 2:
            return ready[0] if ready else None
        ready = [each for each in ready if each.job_id not in tried] or ready
        ready = [each for each in ready if not self._left_out(each.job_id, now)] or ready
        if tried:
            hosts = {each.instance_id for each in service.replicas if each.job_id in tried}
            ready = [each for each in ready if each.instance_id not in hosts] or ready
        return min(ready, key=lambda each: (self.under_way[each.job_id], self._turns.get(each.job_id, 0)))

    @staticmethod
    def has_alternative(service: Served, replica: ServedReplica, tried: Collection[str]) -> bool:
        """Whether there is another replica that may be tried instead."""
        passed = {replica.job_id, *tried}
        return any(each.ready and not each.draining and each.job_id not in passed for each in service.replicas)

    def _left_out(self, job_id: str, now: float) -> bool:
        times, last = self._failed.get(job_id, (0, 0.0))
        return times >= FAILURES and now - last < LEFT_OUT

    def begins(self, job_id: str) -> None:
        self._turn += 1
        self._turns[job_id] = self._turn
        self.under_way[job_id] += 1

    def ends(self, job_id: str) -> None:
        self.under_way[job_id] -= 1
        if not self.under_way[job_id]:
            del self.under_way[job_id]

    def failed(self, job_id: str, now: float) -> None:
        self._failed[job_id] = (self._failed.get(job_id, (0, 0.0))[0] + 1, now)

    def answered(self, job_id: str) -> None:
        self._failed.pop(job_id, None)

    def forget(self, job_id: str) -> None:
        """Forget a job that isn't a replica any more."""
        self._failed.pop(job_id, None)
        self._turns.pop(job_id, None)
