"""What jobs, runs and volumes cost their users, in dollars: the one place where it is computed."""

from __future__ import annotations

from collections.abc import Iterable

from chalicelib.domain.instants import HOUR, MONTH, Micros
from chalicelib.domain.jobs import Job
from chalicelib.domain.runs import Run
from chalicelib.domain.volumes import Volume, VolumeStatus


def job_cost(job: Job, now: Micros, since: Micros = 0) -> float:
    """The price of its assignment, times how long it has lasted; from `since` on, if that is later."""
    if job.assignment is None:
        return 0.0
    until = now if job.finished_at is None else job.finished_at
    return job.assignment.offer.price * max(0, until - max(since, job.assignment.assigned_at)) / HOUR


def run_cost(run: Run, jobs: Iterable[Job], now: Micros) -> float:
    """That of its jobs, those that were erased included."""
    return run.erased_cost + sum(job_cost(job, now) for job in jobs)


def volume_cost(volume: Volume, now: Micros) -> float:
    """Its price from when it was there until it wasn't."""
    if volume.active_at is None or volume.price is None:
        return 0.0
    lost = volume.last_processed_at if volume.status is VolumeStatus.failed else now
    until = lost if volume.deleted_at is None else volume.deleted_at
    return volume.price * (until - volume.active_at) / MONTH
