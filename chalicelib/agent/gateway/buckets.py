"""nginx's counts, sampled every second → traffic reports for the control plane: requests in buckets of ten seconds, how
long answers took in steps of thirty, waiting requests, and draining replicas that have finished their requests. Pure:
the time is an input, in microseconds as everywhere in the protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Mapping, Optional, Set

if TYPE_CHECKING:
    from ...contract.agent_gateway import AnswersStep, Durations, TrafficBucket, TrafficReport

SECOND = 1000000
BUCKET = 10 * SECOND
STEP = 30 * SECOND  # of the histograms
HISTORY = 300 * SECOND  # of buckets and histograms in a report
REPORT_EVERY = 10 * SECOND  # for a busy service
SETTLED = 1 * SECOND  # after which no worker of nginx still uses a replica that was removed


class _OpenBucket:
    def __init__(self, at: int) -> None:
        self.at, self.requests, self.samples, self.busy = at, 0, 0, 0

    def report(self) -> TrafficBucket:
        return {"at": self.at, "requests": self.requests, "busy": round(self.busy / max(1, self.samples), 3)}


class _Answers:
    """How long a service's answers took in one way, until their first byte or their last."""

    def __init__(self, counted: "Durations") -> None:
        self.counted = counted  # by nginx so far
        self.steps: Dict[int, List[int]] = {}  # histograms by their time

    def sample(self, counted: "Durations", now: int) -> None:
        before, at = self.counted["histogram"], now - now % STEP
        for cell, count in enumerate(counted["histogram"]):
            known = before[cell] if cell < len(before) else 0
            more = count - known if count >= known else count  # as of `total`
            if more:
                step = self.steps.setdefault(at, [0] * len(counted["histogram"]))
                step[cell] += more
        self.counted = counted
        self.steps = {at: step for at, step in self.steps.items() if at > now - HISTORY}

    def total(self) -> "Durations":
        return {"histogram": _trimmed(self.counted["histogram"]), "seconds": round(self.counted["seconds"], 3)}


def _trimmed(histogram: List[int]) -> List[int]:
    """Without the zeros at its end."""
    used = max((cell + 1 for cell, count in enumerate(histogram) if count), default=0)
    return histogram[:used]


NOTHING: "Durations" = {"histogram": [], "seconds": 0.0}


class _Service:
    def __init__(self, counted: Mapping[str, Any]) -> None:
        self.total = counted["total"]  # nginx's counter
        self.first_byte, self.whole = (_Answers(counted.get(kind, NOTHING)) for kind in ("first_byte", "whole"))
        self.busy = self.held = 0
        self.waits_since: Optional[int] = None
        self.buckets: List[_OpenBucket] = []
        self.drained: Dict[str, int] = {}  # draining jobs without requests, and since when
        self.let_go: Set[str] = set()
        self.reported_at = 0
        self.urgent = False  # a change to report at once
        self.quiet = False  # as of the last report; at first False, so that an earlier program's report is replaced

    def sample(self, counted: Mapping[str, Any], now: int) -> None:
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
        self.first_byte.sample(counted.get("first_byte", NOTHING), now)
        self.whole.sample(counted.get("whole", NOTHING), now)

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
            "answers": self._answers(),
            "first_byte": self.first_byte.total(),
            "whole": self.whole.total(),
            "let_go": sorted(self.let_go),
        }

    def _answers(self) -> "List[AnswersStep]":
        first_byte, whole = self.first_byte.steps, self.whole.steps
        return [
            {"at": at, "first_byte": _trimmed(first_byte.get(at, [])), "whole": _trimmed(whole.get(at, []))}
            for at in sorted({*first_byte, *whole})
        ]


class Buckets:
    def __init__(self) -> None:
        self._services: Dict[str, _Service] = {}

    def set_services(self, runs: Iterable[str], counted: Mapping[str, Mapping[str, Any]]) -> None:
        """Count these services and no others. `counted`: nginx's counts of them so far."""
        self._services = {run: self._services.get(run) or _Service(counted[run]) for run in runs}

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
