"""When a replica may get requests: it runs, something listens on its port, and each of its probes has succeeded
`ready_after` times in a row. Once ready, it stays ready: a probe that fails later is shown, but ends no replica.

The agent reports the counts, which are capped where they no longer matter, so that a working replica causes no writes.
An agent of an earlier version checks neither ports nor probes; its replicas are ready once they run.
"""

from __future__ import annotations

from typing import Any

from chalicelib.domain.instants import Micros
from chalicelib.domain.job_specs import JobSpec, ProbeSpec
from chalicelib.domain.jobs import Job
from chalicelib.domain.reports import TaskReport


def apply_report(job: Job, spec: JobSpec, report: TaskReport, now: Micros) -> Job:
    """A running replica after its agent's report; the same object if nothing changes."""
    changes: dict[str, Any] = {"probes": _streaks(job, spec, report)}
    if report.listens and not job.listens:
        changes["listens"] = True
    if report.listens:  # an engine that doesn't tell any more what waits in it isn't believed for ever
        changes["queue"] = report.queue
    if report.host_port is not None:
        changes["host_port"] = report.host_port
    if report.address is not None:
        changes["address"] = str(report.address)
    after = job.with_(**changes)
    if after.ready_at is None and (report.listens is None or _ready(after, spec)):
        after = after.with_(ready_at=now)
    return job if after == job else after


def _ready(job: Job, spec: JobSpec) -> bool:
    listens = job.listens or spec.unwatched
    return listens and all(map(_passes, job.probes, spec.probes))


def _passes(streak: int, probe: ProbeSpec) -> bool:
    return streak >= probe.ready_after


def _streaks(job: Job, spec: JobSpec, report: TaskReport) -> tuple[int, ...]:
    known = job.probes if len(job.probes) == len(spec.probes) else (0,) * len(spec.probes)
    if report.probes is None or len(report.probes) != len(spec.probes):
        return known
    return tuple(min(streak, probe.ready_after) for streak, probe in zip(report.probes, spec.probes, strict=True))
