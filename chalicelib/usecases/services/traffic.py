"""Doors' reports on the traffic of their services, by which services are scaled.

A door reports every ten seconds while it is busy, at once when a request waits for a first replica or when it has
released one, and once more when it becomes idle. Each report is complete, so the next one makes up for a lost one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from typing import TypeVar

from chalicelib.domain import keys
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.runs import Run
from chalicelib.domain.services import BUCKET, HISTORY, STEP, Answers, Bucket, Traffic
from chalicelib.errors import Conflict
from chalicelib.store import nouns
from chalicelib.store.listing import every
from chalicelib.store.port import MAX_CHANGES
from chalicelib.usecases.ports import ChangePorts, RecordPorts

CLOCK_OFF: Micros = SECOND  # differences from this on are corrected in a door's times
_TRIES = 3
Part = TypeVar("Part", Bucket, Answers)


def report(plane: ChangePorts, door: str, traffic: Sequence[Traffic]) -> None:
    """Store what one door has seen of each service, and wake their runs. Reports on runs that have ended, and reports
    without news, are dropped. `Traffic.at` is the time by the door's own clock."""
    for start in range(0, len(traffic), MAX_CHANGES):
        _report(plane, door, traffic[start : start + MAX_CHANGES])


def opened(plane: ChangePorts, door: str) -> list[str]:
    """Note that a door has restarted, so its open requests are over. Without this, a service that gets no more requests
    would keep its replicas for ever if the door was killed while it was busy. Returns the runs that are services: the
    door has to check whether some of their replicas wait to be released."""
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
        except Conflict:  # two concurrent reports of one door: try again
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
        if known is None or not known.quiet or current != _without_news(known, now):
            found.append(current)
    return found


def _without_news(known: Traffic, now: Micros) -> Traffic:
    return known.with_(at=now, buckets=recent(known.buckets, BUCKET, now), answers=recent(known.answers, STEP, now))


def _by_our_clock(reported: Traffic, now: Micros) -> Traffic:
    off = now - reported.at
    if abs(off) < CLOCK_OFF:
        off = 0
    buckets = (each.with_(at=each.at + off) for each in reported.buckets)
    answers = (each.with_(at=each.at + off) for each in reported.answers)
    return reported.with_(at=now, buckets=recent(buckets, BUCKET, now), answers=recent(answers, STEP, now))


def recent(parts: Iterable[Part], length: Micros, now: Micros) -> tuple[Part, ...]:
    """Those of the last minutes for which traffic is kept."""
    return tuple(part for part in parts if now - HISTORY - length < part.at <= now)
