"""Measures what the objectives are about (`domain/objectives.py`), from commits and from whoever serves requests.

Nothing is read or written for it beside a look at the machine of a job that begins, and now and then the day's tallies.
What a killed process hadn't written is lost: it is a measure, not a bill.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import orjson

from chalicelib.domain import keys
from chalicelib.domain.instances import Instance
from chalicelib.domain.instants import SECOND, Micros, day_of
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.objectives import DECISIONS, OBJECTIVES, STARTS, ObjectiveDay, Tally
from chalicelib.engine.ports import Clock
from chalicelib.errors import Conflict
from chalicelib.store import nouns
from chalicelib.store.port import Change, Put, Store

if TYPE_CHECKING:
    from chalicelib.engine.counters import Counters

log = logging.getLogger(__name__)

TRIES = 5  # writes of a day that another process writes, too
EVENTS, MISSES = "objective_events", "objective_misses"  # the counters
SECONDS = {DECISIONS: "job_decision_seconds", STARTS: "job_start_seconds"}  # the histograms
_BEGUN = (JobStatus.pulling, JobStatus.running)

Took = Callable[[str, Micros], None]  # notes an event of an objective, and how long it took


class Measures:
    """The tallies of a process. May be used from any thread."""

    def __init__(self, counters: Counters) -> None:
        self._counters, self._lock = counters, threading.Lock()
        self._events: Counter[str] = Counter()  # since the last writing, by objective; misses likewise
        self._misses: Counter[str] = Counter()
        for name in OBJECTIVES:
            counters.add(EVENTS, 0, objective=name)
            counters.add(MISSES, 0, objective=name)

    def note(self, name: str, *, missed: bool) -> None:
        self._counters.add(EVENTS, 1, objective=name)
        self._counters.add(MISSES, int(missed), objective=name)
        with self._lock:
            self._events[name] += 1
            self._misses[name] += missed

    def took(self, name: str, duration: Micros) -> None:
        if name in SECONDS:
            self._counters.observe(SECONDS[name], duration / SECOND)
        self.note(name, missed=duration > OBJECTIVES[name].within)

    def write(self, store: Store, now: Micros) -> None:
        """Add what is new to the day's record."""
        with self._lock:
            events, misses = self._events, self._misses
            self._events, self._misses = Counter(), Counter()
        try:
            if events:
                new = {name: Tally(events=number, misses=misses[name]) for name, number in events.items()}
                _add(store, day_of(now), new)
        except Exception:
            with self._lock:
                self._events += events
                self._misses += misses
            raise


def _add(store: Store, day: Micros, new: Mapping[str, Tally]) -> None:
    for left in reversed(range(TRIES)):
        found = nouns.find(store, ObjectiveDay, keys.objective_day(day)) or ObjectiveDay(day=day)
        try:
            store.commit([nouns.put(found.plus(new))])
            return
        except Conflict:
            if not left:
                raise


def measure_jobs(store: Store, clock: Clock, took: Took, changes: Sequence[Change]) -> None:
    """Note what these commits say about jobs: the first decision about one, and its beginning on a machine."""
    found = list(_jobs(changes))
    if not found:
        return
    now, begun = clock.now(), _begun(changes)
    for job in found:
        if job.version == 2 and job.job_num == 0:  # nothing but a decision changes a new job
            took(DECISIONS, now - job.submitted_at)
        if job.id in begun and (up := _up_since(store, job)) is not None:
            took(STARTS, now - up)


def measured_or_logged(store: Store, clock: Clock, took: Took, changes: Sequence[Change]) -> None:
    """The same after a commit, which stands, measured or not."""
    try:
        measure_jobs(store, clock, took, changes)
    except Exception:
        log.exception("a commit couldn't be measured")


def _jobs(changes: Sequence[Change]) -> Iterator[Job]:
    """The jobs of which there is something to measure."""
    begun = None
    for change in changes:
        if isinstance(change, Put) and change.key.sk.startswith(keys.JOB):
            if begun is None:
                begun = bool(_begun(changes))
            if change.record.version == 2 or begun:
                yield nouns.read(Job, change.record)


def _begun(changes: Sequence[Change]) -> set[str]:
    """The ids of jobs that an agent has begun."""
    found = set()
    for change in changes:
        if (
            isinstance(change, Put)
            and change.key.pk.startswith(keys.EVENTS)
            and b'"provisioning"' in change.record.body
        ):
            event = orjson.loads(change.record.body)
            if event.get("before") == JobStatus.provisioning and event.get("after") in _BEGUN:
                found |= {target["id"] for target in event["targets"] if target["type"] == Job.kind}
    return found


def _up_since(store: Store, job: Job) -> Micros | None:
    """Since when the job's machine could begin it. None for a job that waits for something else: its volumes, or the
    other nodes of its task."""
    where = job.assignment
    if where is None or where.volumes or where.offer.is_container or job.job_num or job.provisioned_at is None:
        return None
    second = keys.job(job.run_id, job.replica_num, 1, job.submission_num)
    machine, node = store.get_many([keys.instance(where.instance_id), second])
    if machine is None or node is not None:
        return None
    return max(job.provisioned_at, nouns.read(Instance, machine).started_at or 0)
