"""A job's usage: points from its agent, each stored for a good hour, and one in five minutes for days (`Retention`).

CPU is reported as total time used, so a percentage takes two points: the difference, as a share of the elapsed time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import orjson

from chalicelib.domain import keys
from chalicelib.domain.instants import MINUTE, SECOND, Micros, sortable
from chalicelib.domain.jobs import Job
from chalicelib.domain.keys import Key
from chalicelib.domain.offers import Resources
from chalicelib.domain.tenants import Project
from chalicelib.planning.runs.utilization import LONGEST_WINDOW
from chalicelib.store.port import Put, Record
from chalicelib.usecases.agent_message import MetricPoint
from chalicelib.usecases.ports import RecordPorts
from chalicelib.usecases.runs.jobs import newest_job

DAY_SECONDS = 86_400
SHORT_SECONDS = LONGEST_WINDOW + 600  # a request for the longest window may come late
_SLOT, _SAMPLED = 5 * MINUTE, 10 * SECOND  # points in the first ten seconds of every five minutes are stored longer
MAX_POINTS = 1_000


def metric_puts(
    points: Sequence[MetricPoint], jobs: Mapping[str, Job], now: Micros, days: int, clock_off: Micros = 0
) -> list[Put]:
    """The writes that store the points of these jobs, some of them for `days`. There is one record a second, so neither
    a repeated point nor a lying agent takes more than the seconds of a good hour. `clock_off`: how far the machine's
    clock is behind ours."""
    puts: dict[Key, Put] = {}
    for point in points:
        if point.task not in jobs:
            continue
        at = min(point.at + clock_off, now + MINUTE)  # points of a clock that jumped must not lie in the future
        if at < now - SHORT_SECONDS * SECOND:
            continue  # no agent holds points for that long
        lifetime = days * DAY_SECONDS if at % _SLOT < _SAMPLED else SHORT_SECONDS
        body = orjson.dumps({**point.model_dump(exclude={"task", "at"}), "at": at})
        key = keys.metric(point.task, at - at % SECOND)
        puts[key] = Put(Record(key, 1, body, expires_at=now // SECOND + lifetime), expect=None)
    return list(puts.values())


@dataclass(frozen=True)
class WantedPoints:
    """Which points of which job to show."""

    run_name: str
    run_id: str | None = None
    replica_num: int = 0
    job_num: int = 0
    limit: int = 1
    after: Micros | None = None
    before: Micros | None = None


@dataclass(frozen=True)
class UsagePoint:
    """The usage of one job at one moment."""

    at: Micros
    cpu_percent: int  # of one core, since the previous point
    memory_bytes: int
    working_set_bytes: int
    gpus: tuple[tuple[int | None, float | None], ...]  # bytes of memory, percent busy; None where it isn't reported


@dataclass(frozen=True)
class JobUsage:
    """Points, newest first, with the resources of the job's machine."""

    points: tuple[UsagePoint, ...]
    has: Resources | None


def job_usage(plane: RecordPorts, project: Project, wanted: WantedPoints) -> JobUsage:
    job = newest_job(plane.read, project, wanted.run_name, wanted.replica_num, wanted.job_num, run_id=wanted.run_id)
    low = "" if wanted.after is None else sortable(wanted.after - wanted.after % SECOND)
    high = "" if wanted.before is None else sortable(wanted.before)
    partition = keys.metric(job.id, 0).pk
    count = min(wanted.limit, MAX_POINTS) + 1  # one more, to which the oldest shown is compared
    page = plane.store.query("main", partition, low=low, high=high, limit=count + 1, reverse=True)
    found = [point for point in map(orjson.loads, (record.body for record in page.records)) if _within(wanted, point)]
    found = found[:count]
    points = tuple(_usage(new, old) for new, old in pairwise(found))
    return JobUsage(points, None if job.assignment is None else job.assignment.offer.instance.resources)


def _within(wanted: WantedPoints, point: Mapping[str, Any]) -> bool:
    """Is the point within the wanted times? Its key contains only the second."""
    early = wanted.after is not None and point["at"] < wanted.after
    return not early and (wanted.before is None or point["at"] < wanted.before)


def _usage(new: dict[str, Any], old: dict[str, Any]) -> UsagePoint:
    used, passed = new["cpu_usage_micro"] - old["cpu_usage_micro"], new["at"] - old["at"]
    return UsagePoint(
        at=new["at"],
        cpu_percent=max(0, round(100 * used / passed)),  # the time used drops when a container restarts
        memory_bytes=new["memory_usage_bytes"],
        working_set_bytes=new["memory_working_set_bytes"],
        gpus=tuple((gpu.get("memory_usage_bytes"), gpu.get("util_percent")) for gpu in new["gpus"]),
    )
