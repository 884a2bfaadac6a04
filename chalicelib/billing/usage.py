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
    until = volume_end(volume)
    return volume.price * ((now if until is None else until) - volume.active_at) / MONTH


def volume_end(volume: Volume) -> Micros | None:
    """Until when it was there; None: it still is."""
    if volume.deleted_at is not None:
        return volume.deleted_at
    return volume.last_processed_at if volume.status is VolumeStatus.failed else None
