"""A job's usage: points from its agent, each kept for an hour; one every five minutes is kept for days (`Retention`).

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
from chalicelib.errors import NotFound
from chalicelib.store import nouns
from chalicelib.store.port import Put, Record
from chalicelib.usecases.agent_message import MetricPoint
from chalicelib.usecases.context import Plane

HOUR_SECONDS, DAY_SECONDS = 3_600, 86_400
_SLOT, _KEPT = 5 * MINUTE, 10 * SECOND  # the points in the first ten seconds of every five minutes are kept longer
MAX_POINTS = 1_000


def metric_puts(points: Sequence[MetricPoint], jobs: Mapping[str, Job], now: Micros, days: int) -> list[Put]:
    """The writes that keep the points of these jobs, some of them for `days`. A repeated point is the same record
    again."""
    puts: dict[Key, Put] = {}
    for point in points:
        if point.task not in jobs:
            continue
        at = min(point.at, now + MINUTE)  # a clock that is ahead must not put points out of sight
        lifetime = days * DAY_SECONDS if at % _SLOT < _KEPT else HOUR_SECONDS
        body = orjson.dumps({**point.model_dump(exclude={"task", "at"}), "at": at})
        key = keys.metric(point.task, at)
        puts[key] = Put(Record(key, 1, body, expires_at=now // SECOND + lifetime), expect=None)
    return list(puts.values())


@dataclass(frozen=True)
class Wanted:
    """Which points of which job."""

    run_name: str
    run_id: str | None = None
    replica_num: int = 0
    job_num: int = 0
    limit: int = 1
    after: Micros | None = None
    before: Micros | None = None


@dataclass(frozen=True)
class Usage:
    """What one job used at one moment."""

    at: Micros
    cpu_percent: int  # of one core, since the previous point
    memory_bytes: int
    working_set_bytes: int
    gpus: tuple[tuple[int, float], ...]  # bytes of memory, percent busy


@dataclass(frozen=True)
class JobUsage:
    """Points, newest first, with the resources of the job's machine."""

    points: tuple[Usage, ...]
    has: Resources | None


def job_usage(plane: Plane, project: Project, wanted: Wanted) -> JobUsage:
    job = _job(plane, project, wanted)
    low = "" if wanted.after is None else sortable(wanted.after)
    high = "" if wanted.before is None else sortable(wanted.before)
    partition = keys.metric(job.id, 0).pk
    count = min(wanted.limit, MAX_POINTS) + 1  # one more, to compare the oldest shown with
    page = plane.store.query("main", partition, low=low, high=high, limit=count, reverse=True)
    found = [orjson.loads(record.body) for record in page.records]
    points = tuple(_usage(new, old) for new, old in pairwise(found))
    return JobUsage(points, None if job.assignment is None else job.assignment.offer.instance.resources)


def _usage(new: dict[str, Any], old: dict[str, Any]) -> Usage:
    used, passed = new["cpu_usage_micro"] - old["cpu_usage_micro"], new["at"] - old["at"]
    return Usage(
        at=new["at"],
        cpu_percent=max(0, round(100 * used / passed)) if passed > 0 else 0,  # used goes back when a container restarts
        memory_bytes=new["memory_usage_bytes"],
        working_set_bytes=new["memory_working_set_bytes"],
        gpus=tuple((gpu["memory_usage_bytes"], gpu["util_percent"]) for gpu in new["gpus"]),
    )


def _job(plane: Plane, project: Project, wanted: Wanted) -> Job:
    """The newest submission of the job. A run of another project is treated as unknown."""
    name = wanted.run_name
    run_id = wanted.run_id
    if run_id is None:
        found = nouns.find_target(plane.store, keys.run_name(project.id, name))
        run_id = None if found is None else found[0]
    place = f"job/{wanted.replica_num:05d}/{wanted.job_num:05d}/"
    low, high = place, place[:-1] + "0"
    page = plane.store.query("main", f"run/{run_id}", low=low, high=high, limit=1, reverse=True)
    jobs = [nouns.read(Job, record) for record in page.records]
    if not jobs or jobs[0].project_id != project.id or jobs[0].run_name != name:
        which = f"replica {wanted.replica_num}, job {wanted.job_num}"
        raise NotFound(f"There is no run {name[:80]!r} with {which} in project {project.name}.")
    return jobs[0]
