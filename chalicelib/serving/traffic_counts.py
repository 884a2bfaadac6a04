"""The traffic of a door's services, counted in buckets of ten seconds; autoscaling is based on it.

A request counts if a replica got it or should have; while it is held or under way, the service is busy. How long it
took counts if a replica answered it. A service is reported periodically while it is busy and once more when it becomes
quiet; it is reported at once when a request begins to wait, and when a draining replica has no requests left.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from chalicelib.domain.instants import Micros
from chalicelib.domain.latencies import CELLS, cell_of, trimmed
from chalicelib.domain.services import BUCKET, HISTORY, STEP, Answers, Bucket, Durations, Traffic
from chalicelib.domain.serving import Served
from chalicelib.serving.token_usage import Tokens


@dataclass
class Spread:
    """Requests by how long they took."""

    cells: list[int] = field(default_factory=lambda: [0] * CELLS)
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        self.cells[cell_of(seconds)] += 1
        self.seconds += seconds

    def durations(self) -> Durations:
        return Durations(histogram=trimmed(self.cells), seconds=round(self.seconds, 3))


@dataclass
class Step:
    """The answers of half a minute."""

    at: Micros
    first_byte: Spread = field(default_factory=Spread)
    whole: Spread = field(default_factory=Spread)

    def answers(self) -> Answers:
        first_byte, whole = trimmed(self.first_byte.cells), trimmed(self.whole.cells)
        return Answers(at=self.at, first_byte=first_byte, whole=whole)


@dataclass
class Tally:
    """The traffic of one service."""

    run_id: str
    since: Micros  # the last change of the requests under way or held, until which `area` is computed
    requests: int = 0  # of the current bucket
    area: float = 0.0  # microseconds that all requests of the bucket have taken, in total
    under_way: int = 0
    held: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    draining: frozenset[str] = frozenset()
    buckets: deque[Bucket] = field(default_factory=deque)
    steps: deque[Step] = field(default_factory=deque)
    first_byte: Spread = field(default_factory=Spread)
    whole: Spread = field(default_factory=Spread)

    @property
    def busy(self) -> int:
        return self.under_way + self.held

    def pass_to(self, now: Micros) -> None:
        """Account for the time up to now, and close the buckets that have ended."""
        while (end := self.since - self.since % BUCKET + BUCKET) <= now:
            self.area += self.busy * (end - self.since)
            if self.requests or self.area:
                self.buckets.append(Bucket(at=end - BUCKET, requests=self.requests, busy=round(self.area / BUCKET, 4)))
            self.since, self.requests, self.area = end, 0, 0.0
            if not self.busy and end < now:
                self.since = now - now % BUCKET  # nothing has happened since
        self.area += self.busy * (now - self.since)
        self.since = now
        while self.buckets and self.buckets[0].at <= now - HISTORY:
            self.buckets.popleft()
        while self.steps and self.steps[0].at <= now - HISTORY:
            self.steps.popleft()

    def step(self, now: Micros) -> Step:
        at = now - now % STEP
        if not self.steps or self.steps[-1].at < at:
            self.steps.append(Step(at))
        return self.steps[-1]

    def so_far(self) -> Bucket | None:
        """The current bucket, up to now."""
        if not (self.requests or self.area):
            return None
        start = self.since - self.since % BUCKET
        return Bucket(at=start, requests=self.requests, busy=round(self.area / max(1, self.since - start), 4))


class Counts:
    """The traffic of all services of a door. `now` is in microseconds."""

    def __init__(self, door: str) -> None:
        self._door = door
        self._tallies: dict[str, Tally] = {}
        self._urgent: set[str] = set()  # runs that must be reported at once

    def __len__(self) -> int:
        return len(self._tallies)

    @property
    def busy(self) -> int:
        return sum(tally.busy for tally in self._tallies.values())

    @property
    def urgent(self) -> bool:
        return bool(self._urgent)

    def _of(self, run_id: str, now: Micros) -> Tally:
        tally = self._tallies.get(run_id)
        if tally is None:
            tally = self._tallies[run_id] = Tally(run_id, now)
        tally.pass_to(now)
        return tally

    def begins(self, run_id: str, now: Micros) -> None:
        """Count a request, which is under way from now on."""
        tally = self._of(run_id, now)
        tally.requests += 1
        tally.under_way += 1

    def ends(self, run_id: str, now: Micros) -> None:
        self._of(run_id, now).under_way -= 1

    def first_byte(self, run_id: str, seconds: float, now: Micros) -> None:
        """The body of a replica's answer begins, so long after the request was let in."""
        tally = self._of(run_id, now)
        for spread in (tally.first_byte, tally.step(now).first_byte):
            spread.add(seconds)

    def whole(self, run_id: str, seconds: float, now: Micros) -> None:
        """A replica's answer is over."""
        tally = self._of(run_id, now)
        for spread in (tally.whole, tally.step(now).whole):
            spread.add(seconds)

    def add_tokens(self, run_id: str, tokens: Tokens) -> None:
        """Add the tokens of a response."""
        if (tally := self._tallies.get(run_id)) is not None:
            tally.prompt_tokens += tokens.prompt
            tally.completion_tokens += tokens.completion

    def hold(self, run_id: str, now: Micros) -> None:
        """A request under way begins to wait for a replica."""
        tally = self._of(run_id, now)
        tally.under_way -= 1
        tally.held += 1
        if tally.held == 1:
            self._urgent.add(run_id)

    def resume(self, run_id: str, now: Micros) -> None:
        tally = self._of(run_id, now)
        tally.held -= 1
        tally.under_way += 1

    def held(self, run_id: str) -> int:
        tally = self._tallies.get(run_id)
        return 0 if tally is None else tally.held

    def looked_up(self, service: Served, under_way: Mapping[str, int], now: Micros) -> None:
        """Take the service's current replicas. Draining ones without requests may be stopped, which is urgent."""
        draining = frozenset(each.job_id for each in service.replicas if each.draining)
        tally = self._tallies.get(service.run_id)
        if tally is None and not draining:
            return
        tally = self._of(service.run_id, now)
        if any(not under_way.get(job_id) for job_id in draining - tally.draining):
            self._urgent.add(service.run_id)
        tally.draining = draining

    def ended(self, run_id: str, job_id: str, under_way: Mapping[str, int]) -> None:
        """A request of this replica has ended."""
        tally = self._tallies.get(run_id)
        if tally is not None and job_id in tally.draining and not under_way.get(job_id):
            self._urgent.add(run_id)

    def gone(self, run_id: str) -> None:
        """The service has ended. Requests that are still under way are counted to their end."""
        tally = self._tallies.get(run_id)
        if tally is None:
            return
        tally.draining = frozenset()
        if not tally.busy:
            self._urgent.discard(run_id)
            del self._tallies[run_id]

    def report(self, under_way: Counter[str], now: Micros, *, urgent: bool = False) -> list[Traffic]:
        """The traffic of each service, or only of the urgent ones. Services without recent traffic are forgotten."""
        reports = []
        for tally in list(self._tallies.values()):
            if urgent and tally.run_id not in self._urgent:
                continue
            tally.pass_to(now)
            self._urgent.discard(tally.run_id)
            reports.append(self._traffic_of(tally, under_way, now))
            recent = tally.buckets or tally.requests or tally.steps
            if not tally.busy and not recent and not tally.draining:
                del self._tallies[tally.run_id]
        return reports

    def _traffic_of(self, tally: Tally, under_way: Counter[str], now: Micros) -> Traffic:
        current = tally.so_far()
        return Traffic(
            run_id=tally.run_id,
            door=self._door,
            at=now,
            quiet=not tally.busy,
            held=tally.held,
            buckets=(*tally.buckets, *([current] if current is not None else [])),
            answers=tuple(step.answers() for step in tally.steps),
            first_byte=tally.first_byte.durations(),
            whole=tally.whole.durations(),
            prompt_tokens=tally.prompt_tokens,
            completion_tokens=tally.completion_tokens,
            let_go=tuple(sorted(job_id for job_id in tally.draining if not under_way.get(job_id))),
        )
