"""Counts how much of its quota a project uses, and what the jobs under the limit of an access token cost.

Records are read in this order: the quota, the machines, their jobs, and ended jobs. Every placement writes the quota,
so a commit under the version that was read first proves that the count missed no placement. Everything is read by key
or from a partition of the table, without an index and its lag. The same holds for a limit: its record is read first,
then the jobs that it lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from chalicelib.domain import keys
from chalicelib.domain.instants import Micros, sortable
from chalicelib.domain.jobs import Job
from chalicelib.domain.quotas import Quota
from chalicelib.domain.runs import Run
from chalicelib.domain.spending import DailyLimit, Spending, key_at
from chalicelib.engine.read import Reader
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.placing.quotas import EndedJob, QuotaUsage, TokenUsage, counted, held, settled, spent
from chalicelib.store.history import LATE, SPAN, events_in
from chalicelib.store.listing import all_of


def quota_of(read: Reader, project_id: str) -> Quota | None:
    """The project's quota; None if it has none, or one without limits."""
    quota = read.find(Quota, keys.quota(project_id))
    return None if quota is None or quota.empty else quota


def usage_of(read: Reader, quota: Quota, fleets: Iterable[FleetView], now: Micros) -> QuotaUsage:
    """The quota's current usage. `fleets`: all fleets that may run the project's jobs, read after the quota."""
    instances = [instance for view in fleets for instance in view.instances]
    wanted = [keys.job(c.run_id, c.replica_num, c.job_num, c.submission_num) for i in instances for c in i.claims]
    jobs = {job.id: job for job in read.find_many(Job, wanted) if job and job.project_id == quota.id}
    users = _users(read, jobs.values()) if quota.by_user or quota.by_money else {}
    places = held(instances, jobs, users)
    if not quota.by_money:
        return counted(quota, places, (), now)
    to = now - LATE
    ended = list(_ended(read, quota, now))
    before = [each for each in ended if (each.job.finished_at or 0) <= to]
    if to > quota.on(now)[1]:
        quota = settled(quota, before, now, to)
        ended = [each for each in ended if each not in before]
    return counted(quota, places, ended, now)


def token_usage(read: Reader, limits: Iterable[DailyLimit], now: Micros) -> dict[str, TokenUsage]:
    """The current usage of each of these limits, by id."""
    ids = list(dict.fromkeys(limit.id for limit in limits))
    known = {each.id: each for each in read.find_many(Spending, [keys.spending(id) for id in ids]) if each is not None}
    found = {}
    for id in ids:
        spending = known.get(id) or Spending(id=id)
        jobs = read.find_many(Job, [key_at(address) for address in spending.jobs])
        found[id] = spent(spending, (job for job in jobs if job is not None), now)
    return found


def _users(read: Reader, jobs: Iterable[Job]) -> dict[str, str]:
    """The user of each run of these jobs, by run."""
    runs = read.find_many(Run, [keys.run(run_id) for run_id in dict.fromkeys(job.run_id for job in jobs)])
    return {run.id: run.user_id for run in runs if run is not None}


def _ended(read: Reader, quota: Quota, now: Micros) -> Iterator[EndedJob]:
    """The jobs that ended today and aren't settled in the quota yet."""
    since = quota.on(now)[1]
    by_run: dict[str, set[str]] = {}
    for record in all_of(read.store, "main", keys.events_of(quota.id), low=sortable(since + 1 - SPAN)):
        for event in events_in(record) if b'"returned"' in record.body else ():
            returned = event.trade is not None and event.trade.act == "returned" and event.at > since
            if returned and event.run_id is not None:
                by_run.setdefault(event.run_id, set()).update(each.id for each in event.targets if each.type == "job")
    for run_id, job_ids in by_run.items():
        run, jobs = read.run_and_jobs(run_id)
        for job in jobs if run is not None else ():
            if run is not None and job.id in job_ids and job.finished_at is not None:
                yield EndedJob(run.user_id, job)
