"""How many replicas a group of a service should have, according to the traffic that its doors report.

The rules, in order:

1. The bounds of `replicas` always apply, at once. A fixed number is a range of one.
2. Without reports nothing changes: while a door that was busy is silent, the count stays. Before the first request no
   door has anything to report, so the minimum is enough once the replicas have been ready for a window.
3. The desired number is the load over the window divided by `target`, rounded up. The load of `rps` is requests a
   second; that of `queue` is the average number of requests under way, held at a door, or waiting in a model server.
4. The last replica is removed only after a full window without a request and with nothing under way.
5. Scaling from zero is immediate. Otherwise replicas are added `scale_up_delay` after the last change, and removed
   `scale_down_delay` after it.
6. A sudden rise of `queue` is handled at once: if the last tenth of the window alone calls for at least twice the ready
   replicas, they are added now, and none is removed for a full window. Doors count in buckets of ten seconds, so the
   tenth is rounded up to full buckets.

A door's window ends at its last report, or now if it was quiet then. A bucket that lies partly in the window counts for
that part. The load is the sum over all doors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

from chalicelib.domain.instants import MINUTE, SECOND, Micros, clock
from chalicelib.domain.services import BUCKET, HISTORY, STALE, Scale, Traffic
from chalicelib.domain.specs.services import ScalingSpec

WINDOW = 60  # seconds, unless `scaling.window` is set
_CRUMB = 1e-9  # of a replica: the rounding error of a load that fits exactly


@dataclass(frozen=True)
class GroupState:
    """The state of a group's replicas."""

    ready: int = 0
    waiting: int = 0  # requests that wait inside their model servers
    since: Micros | None = None  # since when all replicas have been ready; None: not all of them are


@dataclass(frozen=True)
class Scaling:
    """A scaling decision: the new count, why (without the count), and when to check again if nothing happens."""

    desired: int
    why: str
    check_at: Micros | None = None
    wanted: int | None = None  # the count that the load calls for, if it has to wait for a delay
    panic_until: Micros | None = None
    stale: bool = False

    def after(self, before: Scale, now: Micros) -> Scale:
        """The state to store; the same as before unless a decision changed, because the measured load always does."""
        decided = (self.desired, self.wanted, self.panic_until, self.stale)
        if before.why and decided == (before.desired, before.wanted, before.panic_until, before.stale):
            return before
        return before.with_(
            desired=self.desired,
            at=before.at if self.desired == before.desired else now,
            why=self.why,
            wanted=self.wanted,
            panic_until=self.panic_until,
            stale=self.stale,
        )


def scale(
    spec: ScalingSpec | None,
    bounds: tuple[int, int],
    traffic: Sequence[Traffic],
    state: Scale,
    seen: GroupState,
    now: Micros,
) -> Scaling:
    """`bounds`: the fewest and the most replicas that the group may have."""
    current = _clip(state.desired, bounds)
    panic_until = state.panic_until if state.panic_until is not None and state.panic_until > now else None
    if spec is None:
        return Scaling(current, "")
    if not traffic:
        return _never_called(spec, current, bounds, state, seen, now)
    doors = _trusted(traffic)
    silent = [door for door in doors if not door.quiet and now - door.at > STALE]
    if silent:
        since = clock(min(door.at for door in silent))
        names = ", ".join(sorted(f"`{door.door}`" for door in silent))
        why = f"nothing heard from {names} since {since}, so the number stays"
        return Scaling(current, why, panic_until=panic_until, stale=True)
    load = _Load.of(spec, doors, seen, now)
    wanted = _clip(load.wanted, bounds)
    basis = load.text(spec)
    if load.sudden is not None and _clip(load.sudden, bounds) >= 2 * max(1, seen.ready):
        desired = max(current, wanted, _clip(load.sudden, bounds))
        until = now + load.window
        why = f"{basis}, after a sudden rise: none is removed before {clock(until)}"
        return Scaling(desired, why, _check_at(spec, doors, desired, bounds, state, until, now), panic_until=until)
    waits, because = _delay(spec, current, wanted, state, panic_until, now)
    if waits is not None:
        step = f"{wanted - current} more" if wanted > current else f"{current - wanted} fewer"
        why = f"{basis}: {step} at {clock(waits)} because of {because}"
        return Scaling(current, why, _first(waits, _stale_at(doors)), wanted, panic_until)
    why = f"{basis}{_bounded(load.wanted, bounds)}"
    return Scaling(
        wanted, why, _check_at(spec, doors, wanted, bounds, state, panic_until, now), panic_until=panic_until
    )


def _never_called(
    spec: ScalingSpec, current: int, bounds: tuple[int, int], state: Scale, seen: GroupState, now: Micros
) -> Scaling:
    why = "no requests yet"
    if current <= bounds[0] or seen.since is None:
        return Scaling(current, why)
    until = max(_earliest(state, spec.scale_down_delay), seen.since + (spec.window or WINDOW) * SECOND)
    return Scaling(current, why, until) if until > now else Scaling(bounds[0], why)


def _delay(
    spec: ScalingSpec, current: int, wanted: int, state: Scale, panic_until: Micros | None, now: Micros
) -> tuple[Micros | None, str]:
    """Until when a change has to wait, and because of what; None: it needn't wait, or there is no change."""
    if current in (wanted, 0):
        return None, ""
    if wanted > current:
        until, because = _earliest(state, spec.scale_up_delay), "scale_up_delay"
    else:
        until, because = _earliest(state, spec.scale_down_delay), "scale_down_delay"
        if panic_until is not None and panic_until > until:
            until, because = panic_until, "a recent sudden rise"
    return (until, because) if until > now else (None, "")


def _earliest(state: Scale, delay: int) -> Micros:
    return 0 if state.at is None else state.at + delay * SECOND


def _check_at(
    spec: ScalingSpec,
    doors: Iterable[Traffic],
    desired: int,
    bounds: tuple[int, int],
    state: Scale,
    panic_until: Micros | None,
    now: Micros,
) -> Micros | None:
    """When the decision may change without a report: a busy door may have become silent, and the window of quiet doors
    empties, so that replicas can be removed."""
    stale = _stale_at(doors)
    if desired <= bounds[0] or stale is not None:
        return stale
    since = now if desired != state.desired else state.at or 0
    return max(since + spec.scale_down_delay * SECOND, panic_until or 0, now + BUCKET)


def _stale_at(doors: Iterable[Traffic]) -> Micros | None:
    return min((door.at + STALE + 1 for door in doors if not door.quiet), default=None)


def _first(at: Micros, other: Micros | None) -> Micros:
    return at if other is None else min(at, other)


def _trusted(traffic: Sequence[Traffic]) -> list[Traffic]:
    """The doors without those that have been silent for so long that their clients must use another one by now."""
    last = max(door.at for door in traffic)
    return [door for door in traffic if door.quiet or last - door.at <= HISTORY]


@dataclass(frozen=True)
class _Load:
    amount: float  # of the metric, over the window
    window: Micros
    wanted: int
    sudden: int | None = None  # the replicas that the end of the window alone calls for
    idle: bool = False  # a full window without a request, and nothing under way
    waiting: bool = False  # a request waits for the first replica

    @classmethod
    def of(cls, spec: ScalingSpec, doors: Sequence[Traffic], seen: GroupState, now: Micros) -> _Load:
        window = (spec.window or WINDOW) * SECOND
        requests, busy = _within(doors, window, now)
        sudden = None
        amount = requests / (window // SECOND)
        if spec.metric == "queue":
            amount = busy + seen.waiting
            end = max(1, ceil(window / (10 * BUCKET))) * BUCKET
            sudden = _share(_within(doors, end, now)[1] + seen.waiting, spec.target)
        waiting = any(door.held for door in doors)
        idle = not requests and not seen.waiting and all(door.quiet for door in doors)
        wanted = 0 if idle else max(1, _share(amount, spec.target))
        return cls(amount, window, wanted, sudden, idle, waiting)

    def text(self, spec: ScalingSpec) -> str:
        over = "1 min" if self.window == MINUTE else "5 min" if self.window == 5 * MINUTE else "30 s"
        if self.idle:
            return f"no requests for {over}"
        if self.waiting and self.wanted == 1:
            return "a request waits"
        what = "requests a second" if spec.metric == "rps" else "requests under way or waiting"
        return f"{self.amount:.3g} {what} over {over}, {spec.target:g} for each replica"


def _within(doors: Iterable[Traffic], window: Micros, now: Micros) -> tuple[float, float]:
    """How many requests arrived in the window, and how many were under way or held on average."""
    requests = busy = 0.0
    for door in doors:
        begin = (now if door.quiet else min(now, door.at)) - window
        for bucket in reversed(door.buckets):
            # The last one may be half full.
            length = BUCKET if bucket.at + BUCKET <= door.at else max(1, door.at - bucket.at)
            inside = min(length, bucket.at + length - begin)
            if inside <= 0:
                break
            requests += bucket.requests * inside / length
            busy += bucket.busy * inside / window
    return requests, busy


def _share(amount: float, target: float) -> int:
    return ceil(amount / target - _CRUMB)


def _clip(count: int, bounds: tuple[int, int]) -> int:
    return min(max(count, bounds[0]), bounds[1])


def _bounded(wanted: int, bounds: tuple[int, int]) -> str:
    if wanted > bounds[1]:
        return f"; {bounds[1]} is the most"
    return f"; {bounds[0]} is the fewest" if wanted < bounds[0] else ""
