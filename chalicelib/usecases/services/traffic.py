"""What doors report of the services whose requests they take, so that these get as many replicas as they need.

A door reports every ten seconds while it is busy, at once when somebody waits for a first replica or when it has let
one go, and once more when it falls quiet. Each report is its whole knowledge, so the next one makes up for a lost one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count

from chalicelib.domain import keys
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.runs import Run
from chalicelib.domain.services import BUCKET, KEPT, Bucket, Traffic
from chalicelib.errors import Conflict
from chalicelib.store import nouns
from chalicelib.store.listing import every
from chalicelib.store.port import MAX_CHANGES
from chalicelib.usecases.ports import ChangePorts, RecordPorts

CLOCK_OFF: Micros = SECOND  # from which a door's times are moved to ours
_TRIES = 3


def report(plane: ChangePorts, door: str, traffic: Sequence[Traffic]) -> None:
    """Keep what one door has seen of each service, and have these looked at. What comes of runs that have ended, or of
    a service at which nothing has happened, is dropped. `Traffic.at` says what the time is by the door's own clock."""
    for start in range(0, len(traffic), MAX_CHANGES):
        _report(plane, door, traffic[start : start + MAX_CHANGES])


def opened(plane: ChangePorts, door: str) -> list[str]:
    """A door begins anew, so what it had under way is over. It may have been cut off in the middle: a service that
    nobody asks for any more would keep its replicas for ever, because its door seems to be silent. Returns the runs
    that are services: the door has to look whether replicas of theirs wait to be let go."""
    services: list[str] = []
    over = {"at": plane.clock.now(), "quiet": True, "held": 0, "let_go": ()}
    for record in list(every(plane.store, "projects", "name/")):
        runs = [run.id for run in plane.read.live_runs(nouns.pointed(record)) if run.scales]
        known = plane.read.find_many(Traffic, [keys.traffic(run_id, door) for run_id in runs])
        report(plane, door, [each.with_(**over) for each in known if each is not None and not each.quiet])
        services += runs
    return services


def _report(plane: ChangePorts, door: str, traffic: Sequence[Traffic]) -> None:
    for tried in count(1):
        changed = _changed(plane, door, traffic)
        if not changed:
            return
        try:
            plane.store.commit([nouns.put(each) for each in changed])
        except Conflict:  # two reports of one door at a time: both are read again
            if tried == _TRIES:
                raise
        else:
            plane.wake([f"run/{each.run_id}" for each in changed])
            return


def _changed(plane: RecordPorts, door: str, traffic: Sequence[Traffic]) -> list[Traffic]:
    now = plane.clock.now()
    runs = plane.read.find_many(Run, [keys.run(each.run_id) for each in traffic])
    before = plane.read.find_many(Traffic, [keys.traffic(each.run_id, door) for each in traffic])
    found = []
    for run, known, reported in zip(runs, before, traffic, strict=True):
        if run is None or run.finished:
            continue
        current = _by_our_clock(reported, now).with_(door=door, version=0 if known is None else known.version)
        if known is None or not (known.quiet and current == known.with_(at=now, buckets=_recent(known.buckets, now))):
            found.append(current)
    return found


def _by_our_clock(reported: Traffic, now: Micros) -> Traffic:
    off = now - reported.at
    if abs(off) < CLOCK_OFF:
        off = 0
    moved = (bucket.with_(at=bucket.at + off) for bucket in reported.buckets)
    return reported.with_(at=now, buckets=_recent(moved, now))


def _recent(buckets: Iterable[Bucket], now: Micros) -> tuple[Bucket, ...]:
    return tuple(bucket for bucket in buckets if now - KEPT - BUCKET < bucket.at <= now)
