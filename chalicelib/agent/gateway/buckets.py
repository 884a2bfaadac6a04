"""nginx's counts, sampled every second → traffic reports for the control plane: requests in buckets of ten seconds,
waiting requests, and draining replicas that have finished their requests. Pure: the time is an input, in microseconds
as everywhere in the protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Mapping, Optional, Set

if TYPE_CHECKING:
    from ...contract.agent_gateway import TrafficBucket, TrafficReport

SECOND = 1000000
BUCKET = 10 * SECOND
HISTORY = 300 * SECOND  # of buckets in a report
REPORT_EVERY = 10 * SECOND  # for a busy service
SETTLED = 1 * SECOND  # after which no worker of nginx still uses a replica that was removed


class _OpenBucket:
    def __init__(self, at: int) -> None:
        self.at, self.requests, self.samples, self.busy = at, 0, 0, 0

    def report(self) -> TrafficBucket:
        return {"at": self.at, "requests": self.requests, "busy": round(self.busy / max(1, self.samples), 3)}


class _Service:
    def __init__(self, total: int) -> None:
        self.total = total  # nginx's counter
        self.busy = self.held = 0
        self.waits_since: Optional[int] = None
        self.buckets: List[_OpenBucket] = []
        self.drained: Dict[str, int] = {}  # draining jobs without requests, and since when
        self.let_go: Set[str] = set()
        self.reported_at = 0
        self.urgent = False  # a change to report at once
        self.quiet = False  # as of the last report; at first False, so that an earlier program's report is replaced

    def sample(self, counted: Mapping[str, int], now: int) -> None:
        total = counted["total"]
        more = total - self.total if total >= self.total else total  # a restarted nginx counts from 0
        self.total, self.busy = total, counted["busy"]
        if counted["held"] and self.waits_since is None:
            self.waits_since, self.urgent = now, True
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
        bucket.samples += 1
        self.buckets = [each for each in self.buckets if each.at > now - HISTORY]

    def drain(self, jobs: Iterable[str], busy: Mapping[str, int], now: int) -> None:
        draining = set(jobs)
        self.drained = {job: self.drained.get(job, now) for job in draining if not busy.get(job)}
        let_go = {job for job, since in self.drained.items() if now - since >= SETTLED}
        self.urgent = self.urgent or bool(let_go - self.let_go)
        self.let_go = let_go | (self.let_go & draining)

    def is_due(self, now: int) -> bool:
        return self.urgent or (not self.quiet and now - self.reported_at >= REPORT_EVERY)

    def report(self, run: str, now: int) -> TrafficReport:
        self.reported_at, self.urgent, self.quiet = now, False, not self.busy
        return {
            "run_id": run,
            "at": now,
            "quiet": self.quiet,
            "held": self.held,
            "waits_since": self.waits_since,  # required by control planes of earlier releases
            "buckets": [each.report() for each in self.buckets],
            "let_go": sorted(self.let_go),
        }


class Buckets:
    def __init__(self) -> None:
        self._services: Dict[str, _Service] = {}

    def set_services(self, runs: Iterable[str], counted: Mapping[str, Mapping[str, int]]) -> None:
        """Count these services and no others. `counted`: nginx's counts of them so far."""
        self._services = {run: self._services.get(run) or _Service(counted[run]["total"]) for run in runs}

    def sample(self, counts: Mapping[str, Any], draining: Mapping[str, Iterable[str]], now: int) -> None:
        for run, service in self._services.items():
            if run in counts["runs"]:
                service.sample(counts["runs"][run], now)
                service.drain(draining.get(run, ()), counts["jobs"], now)

    def reports(self, now: int) -> List[TrafficReport]:
        """The reports that are due."""
        return [each.report(run, now) for run, each in self._services.items() if each.is_due(now)]

    def report(self, run: str, now: int) -> TrafficReport:
        return self._services[run].report(run, now)

    def mark_unsent(self, reports: Iterable[TrafficReport]) -> None:
        """Make these reports due again, because they didn't arrive."""
        for report in reports:
            if report["run_id"] in self._services:
                self._services[report["run_id"]].urgent = True
