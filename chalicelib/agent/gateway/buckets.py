"""What nginx has counted, second by second → what the control plane wants to know: buckets of ten seconds, who waits,
and which replicas have nothing under way any more. Pure: the time is an input, in microseconds as everywhere in what
is said to the control plane.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, Optional, Set

SECOND = 1000000
BUCKET = 10 * SECOND
KEPT = 300 * SECOND
EVERY = 10 * SECOND  # between two reports of a busy service
SURE = 1 * SECOND  # after which no worker of nginx knows a replica any more that was taken out


class _OpenBucket:
    def __init__(self, at: int) -> None:
        self.at, self.requests, self.seen, self.busy = at, 0, 0, 0

    def told(self) -> Dict[str, Any]:
        return {"at": self.at, "requests": self.requests, "busy": round(self.busy / max(1, self.seen), 3)}


class _Service:
    def __init__(self, total: int) -> None:
        self.total = total  # as nginx counts it
        self.busy = self.held = 0
        self.waits_since: Optional[int] = None
        self.buckets: List[_OpenBucket] = []
        self.drained: Dict[str, int] = {}  # jobs with nothing under way, and since when
        self.let_go: Set[str] = set()
        self.reported_at = 0
        self.news = False  # something that can't wait for the next ten seconds
        self.quiet = False  # the last report said so; a first one is made at once: another program may have said other

    def sample(self, counted: Mapping[str, int], now: int) -> None:
        total = counted["total"]
        more = total - self.total if total >= self.total else total  # another nginx counts from 0
        self.total, self.busy = total, counted["busy"]
        if counted["held"] and self.waits_since is None:
            self.waits_since, self.news = now, True
        elif not counted["held"]:
            self.waits_since = None
        self.held = counted["held"]
        if more or self.busy:
            self.quiet = False
        self._into_bucket(more, now)

    def _into_bucket(self, requests: int, now: int) -> None:
        at = now - now % BUCKET
        if not self.buckets or self.buckets[-1].at != at:
            if not requests and not self.busy and not self.buckets:
                return
            self.buckets.append(_OpenBucket(at))
        bucket = self.buckets[-1]
        bucket.requests += requests
        bucket.busy += self.busy
        bucket.seen += 1
        self.buckets = [each for each in self.buckets if each.at > now - KEPT]

    def drain(self, jobs: Iterable[str], busy: Mapping[str, int], now: int) -> None:
        wanted = set(jobs)
        self.drained = {job: self.drained.get(job, now) for job in wanted if not busy.get(job)}
        let_go = {job for job, since in self.drained.items() if now - since >= SURE}
        self.news = self.news or bool(let_go - self.let_go)
        self.let_go = let_go | (self.let_go & wanted)

    def due(self, now: int) -> bool:
        return self.news or (not self.quiet and now - self.reported_at >= EVERY)

    def report(self, run: str, now: int) -> Dict[str, Any]:
        self.reported_at, self.news, self.quiet = now, False, not self.busy
        return {
            "run_id": run,
            "at": now,
            "quiet": self.quiet,
            "held": self.held,
            "waits_since": self.waits_since,  # required by control planes of earlier releases
            "buckets": [each.told() for each in self.buckets],
            "let_go": sorted(self.let_go),
        }


class Buckets:
    def __init__(self) -> None:
        self._services: Dict[str, _Service] = {}

    def keep(self, runs: Iterable[str], counted: Mapping[str, Mapping[str, int]]) -> None:
        """Only these are served from now on. `counted`: what nginx has counted of them before."""
        self._services = {run: self._services.get(run) or _Service(counted[run]["total"]) for run in runs}

    def sample(self, counts: Mapping[str, Any], draining: Mapping[str, Iterable[str]], now: int) -> None:
        for run, service in self._services.items():
            if run in counts["runs"]:
                service.sample(counts["runs"][run], now)
                service.drain(draining.get(run, ()), counts["jobs"], now)

    def reports(self, now: int) -> List[Dict[str, Any]]:
        """Those that are due."""
        return [each.report(run, now) for run, each in self._services.items() if each.due(now)]

    def report(self, run: str, now: int) -> Dict[str, Any]:
        return self._services[run].report(run, now)

    def unsent(self, reports: Iterable[Mapping[str, Any]]) -> None:
        """These didn't arrive: they are due again."""
        for report in reports:
            if report["run_id"] in self._services:
                self._services[report["run_id"]].news = True
