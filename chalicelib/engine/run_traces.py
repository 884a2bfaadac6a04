"""Makes the traces of runs and has them exported: from the request that submitted a run to the first line of its jobs.

A trace is exported once, when each job has written a line or has ended; at the latest after a day, with what there is.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import pairwise

from chalicelib.domain import keys
from chalicelib.domain.events import Event, EventType
from chalicelib.domain.instances import Instance
from chalicelib.domain.instants import DAY, Micros, sortable
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.runs import Run
from chalicelib.domain.traces import Export, PendingTrace, Span, TraceContext, context_of, span_id_of, trace_id_of
from chalicelib.engine.ports import Clock
from chalicelib.engine.read import Reader
from chalicelib.store import nouns
from chalicelib.store.history import events_in
from chalicelib.store.log_pages import LogQuery
from chalicelib.store.logs import LogStore
from chalicelib.store.port import Delete

log = logging.getLogger(__name__)

PATIENCE: Micros = DAY  # after which a trace is exported as it is
AT_ONCE = 50  # runs that one turn looks at
MOST_JOBS = 64  # of a run that are in its trace
MOST_EVENTS = 200  # of a fleet that are read for one machine
BAD = (JobStatus.failed, JobStatus.aborted)


class RunTraces:
    def __init__(self, read: Reader, logs: LogStore, clock: Clock, export: Export) -> None:
        self._read, self._logs, self._clock, self._export = read, logs, clock, export
        self._after = ""  # the run up to which the last turn came

    def run(self) -> int:
        """One turn. Returns the number of exported traces."""
        low = f"{self._after}\0" if self._after else ""
        page = self._read.store.query("main", keys.PENDING_TRACES, low=low, limit=AT_ONCE)
        self._after = page.records[-1].key.sk if page.cursor is not None else ""
        waiting = [nouns.read(PendingTrace, record) for record in page.records]
        done = [(each, spans) for each in waiting if (spans := self._made(each)) is not None]
        if not done or not self._export([span for _, spans in done for span in spans]):
            return 0
        self._read.store.commit([Delete(nouns.key_of(each)) for each, _ in done])
        return len(done)

    def _made(self, pending: PendingTrace) -> list[Span] | None:
        try:
            return self._finished(pending)
        except Exception:  # the log can't be read, or a record; the other traces mustn't wait for it
            log.exception("the trace of run %s can't be made", pending.run_id)
            return None

    def _finished(self, pending: PendingTrace) -> list[Span] | None:
        """The spans of a trace that is complete, or as old as one gets."""
        run, found = self._read.run_and_jobs(pending.run_id)
        if run is None:
            return []
        jobs = found[:MOST_JOBS]
        lines = {job.id: line for job in jobs if (line := self._first_line(job)) is not None}
        begun = bool(jobs) and all(job.finished or job.id in lines for job in jobs)
        if begun or run.finished or run.deleted or self._clock.now() - pending.at >= PATIENCE:
            machines = {job.id: self._machine(job) for job in jobs}
            return list(spans_of(pending, run, jobs, lines, machines))
        return None

    def _first_line(self, job: Job) -> Micros | None:
        if job.running_at is None:
            return None
        records = self._logs.read(job.project_id, job.id, LogQuery(limit=1)).records
        return max(records[0][0], job.running_at) if records else None  # the line's time is by the machine's clock

    def _machine(self, job: Job) -> tuple[Instance, Sequence[Event]] | None:
        """The machine that was bought for a job, with its history."""
        where = job.assignment
        found = None if where is None else self._read.find(Instance, keys.instance(where.instance_id))
        if found is None or not found.for_run or found.created_at < job.submitted_at:
            return None
        low, high = sortable(found.created_at), sortable((found.started_at or self._clock.now()) + 1)
        page = self._read.store.query("gsi2", keys.fleet_events(found.fleet_id), low=low, high=high, limit=MOST_EVENTS)
        events = [event for record in page.records for event in events_in(record)]
        own = [each for each in events if each.targets[0].id == found.id and each.type is EventType.status]
        return found, sorted(own, key=lambda each: each.at)


Machines = dict[str, tuple[Instance, Sequence[Event]] | None]


def spans_of(
    pending: PendingTrace, run: Run, jobs: Sequence[Job], lines: dict[str, Micros], machines: Machines
) -> Iterator[Span]:
    """The spans of a run's trace."""
    parent = context_of(pending.caller)
    trace_id = trace_id_of(run.id) if parent is None else parent.trace_id
    request = TraceContext(trace_id, span_id_of(run.id, "request"))
    named = {"dstack.run.id": run.id, "dstack.run.name": run.name, "dstack.user.name": run.user_name}
    yield Span("submit run", request, parent, pending.at, max(pending.at, run.submitted_at), named, "server")
    for job in jobs:
        begins = [each for each in (lines.get(job.id), job.finished_at) if each is not None]
        if not begins:
            continue
        own = TraceContext(trace_id, span_id_of(job.id, "job"))
        attributes = {**named, "dstack.job.id": job.id, "dstack.job.name": job.name, **_placed(job)}
        error = str(job.reason or job.status) if job.status in BAD and job.id not in lines else ""
        yield Span("job until its first line", own, request, job.submitted_at, min(begins), attributes, error=error)
        for name, start, end in (*_machine_phases(machines.get(job.id)), *_phases(job, machines, lines)):
            inner = TraceContext(trace_id, span_id_of(job.id, name))
            yield Span(name, inner, own, start, end, _placed(job))


def _placed(job: Job) -> dict[str, str]:
    where = job.assignment
    if where is None:
        return {}
    offer = where.offer
    kind = {"dstack.backend": offer.backend, "cloud.region": offer.region, "host.type": offer.instance.name}
    return {"dstack.instance.id": where.instance_id, **kind}


def _phases(job: Job, machines: Machines, lines: dict[str, Micros]) -> Iterator[tuple[str, Micros, Micros]]:
    """What a job goes through: name, begin and end."""
    if job.provisioned_at is None:
        return
    yield "decide", job.submitted_at, job.provisioned_at
    bought = machines.get(job.id)
    up = max(job.provisioned_at, (bought[0].started_at or 0) if bought else 0)
    begun = job.pulling_at or job.running_at
    if begun is not None and begun >= up:
        yield "agent begins", up, begun
    if job.running_at is not None:
        if job.pulling_at is not None:
            yield "pull image", job.pulling_at, job.running_at
        if job.id in lines:
            yield "first line", job.running_at, lines[job.id]


_OF_MACHINE = {"pending": "provider creates machine", "provisioning": "machine starts"}


def _machine_phases(bought: tuple[Instance, Sequence[Event]] | None) -> Iterator[tuple[str, Micros, Micros]]:
    if bought is None:
        return
    instance, moves = bought
    since = [("", instance.created_at), *((str(move.before), move.at) for move in moves)]
    for (_, start), (status, end) in pairwise(since):
        if status in _OF_MACHINE:
            yield _OF_MACHINE[status], start, end
