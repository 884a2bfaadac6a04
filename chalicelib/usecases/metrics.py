"""What a job used: points from its agent, each kept for an hour; one in five minutes is kept for a week.

CPU comes as time used so far, so a percentage takes two points: what was used between them, as a share of the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson

from chalicelib.domain.instants import MINUTE, SECOND, Micros
from chalicelib.domain.jobs import Job
from chalicelib.store import keys
from chalicelib.store.port import Key, Put, Record
from chalicelib.usecases.agent_message import MetricPoint

HOUR_SECONDS, WEEK_SECONDS = 3_600, 7 * 86_400
_SLOT, _KEPT = 5 * MINUTE, 10 * SECOND  # of every five minutes, the points of the first ten seconds are kept for long
MAX_POINTS = 1_000


def metric_puts(points: Sequence[MetricPoint], jobs: Mapping[str, Job], now: Micros) -> list[Put]:
    """The writes that keep the points of these jobs. A repeated point is the same record again."""
    puts: dict[Key, Put] = {}
    for point in points:
        if point.task not in jobs:
            continue
        at = min(point.at, now + MINUTE)  # a clock that is ahead must not put points where nobody looks
        lifetime = WEEK_SECONDS if at % _SLOT < _KEPT else HOUR_SECONDS
        body = orjson.dumps({**point.model_dump(exclude={"task", "at"}), "at": at})
        key = keys.metric(point.task, at)
        puts[key] = Put(Record(key, 1, body, expires_at=now // SECOND + lifetime), expect=None)
    return list(puts.values())
