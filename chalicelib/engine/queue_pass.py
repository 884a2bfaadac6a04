"""A pass over one project's queue, page by page.

The queue is the only unit that is too long to read at once: a pass reads pages from its head while capacity may be
left. Without capacity it reads nothing, unless some job is due. Newly submitted jobs, which enter the queue only if
they have to wait, are found by the hint of their submission, each in its turn. All of them are processed, so that a job
that can't be placed shows why.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from chalicelib.domain.instances import Instance
from chalicelib.domain.instants import Micros
from chalicelib.domain.jobs import Job
from chalicelib.engine.commit import Committed, Committer
from chalicelib.engine.kinds import Kinds, Unit
from chalicelib.engine.load import PAGE, Loader, order, room
from chalicelib.engine.ports import Clock
from chalicelib.engine.quotas import quota_of, usage_of
from chalicelib.engine.read import has_room
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.matching.queued_job import QueuedJob
from chalicelib.planning.placing.quotas import QuotaUsage

ATTEMPTS = 5  # to commit after conflicts, each from a fresh read, before a unit is left to the next pass
SMALLEST_PAGE = 16  # waiting jobs to read even if only one or two places are free


@dataclass(frozen=True)
class Hints:
    """Ids of the changes that woke this pass; they are read by key even if no index shows them yet."""

    runs: tuple[str, ...] = ()
    instances: tuple[str, ...] = ()

    @staticmethod
    def of(units: Iterable[str]) -> Hints:
        split = [unit.partition("/") for unit in units]
        return Hints(
            tuple(id for kind, _, id in split if kind == "run"),
            tuple(id for kind, _, id in split if kind == "instance"),
        )


class QueuePass:
    def __init__(
        self, load: Loader, clock: Clock, committer: Committer, kinds: Kinds, row: Unit, project_id: str, hints: Hints
    ) -> None:
        self._load, self._clock, self._committer, self._kinds, self._row = load, clock, committer, kinds, row
        self._project_id, self._hints = project_id, hints
        self._read: tuple[FleetView, ...] | None = None  # the fleets; None: to be read (again)
        self._usage: QuotaUsage | None = None  # of the project's quota, if it has one, as of the fleets
        self._decided_ids: set[str] = set()
        self._ahead: dict[str, Job] = {}  # first nodes of multi-node tasks that were found waiting
        self.done = Committed()
        self.next_wake: Micros | None = None

    def run(self, due: bool) -> None:
        """Run the pass. `due`: some jobs are due, so all due ones must be processed."""
        if not self._load.has_waiting_jobs(self._project_id, self._hints.runs):
            return
        now = self._clock.now()
        self._fleets()
        hinted = self._load.queued_of(self._hints.runs, self._project_id)
        cursor: str | None = None
        while True:
            places = self._room()
            if places == 0 and not due:
                break
            limit = PAGE if due or places is None else min(PAGE, max(SMALLEST_PAGE, 2 * places))
            jobs, cursor = self._load.queue_page(self._project_id, cursor, limit)
            turn = [job for job in hinted if cursor is None or (jobs and order(job) <= order(jobs[-1]))]
            jobs = sorted({job.id: job for job in (*jobs, *turn)}.values(), key=order)
            if places == 0:
                jobs = [job for job in jobs if job.due_at is not None and job.due_at <= now]
            self._place(jobs)
            hinted = [job for job in hinted if job.id not in self._decided_ids]
            if cursor is None:
                break
            self._fleets()
            hinted = self._load.still_waiting(hinted)
        if hinted:
            self._fleets()
            self._place(self._load.still_waiting(hinted))

    def _room(self) -> int | None:
        """An upper bound of the jobs that could be placed within capacity and quota. None: no bound."""
        places = room(self._fleets())
        left = None if self._usage is None else self._usage.room()
        return min((count for count in (places, left) if count is not None), default=None)

    def _fleets(self) -> tuple[FleetView, ...]:
        """The fleets as of this pass's last commit. Read before the jobs to place, or a job could appear to wait
        although the fleets show its claim; and after the quota, for which every machine is read by its key."""
        if self._read is None:
            read = self._load.read
            quota = quota_of(read, self._project_id)
            again = has_room if quota is None else _each
            self._read = read.fleet_views(self._project_id, self._hints.instances, again)
            self._usage = None if quota is None else usage_of(read, quota, self._read, self._clock.now())
        return self._read

    def _place(self, jobs: list[Job]) -> None:
        """Decide about those of `jobs` that are new to this pass; after a conflict, about the remaining ones."""
        jobs = [job for job in jobs if job.id not in self._decided_ids]
        self._decided_ids.update(job.id for job in jobs)
        for _ in range(ATTEMPTS):
            if not jobs:
                return
            here = {job.id for job in jobs}
            before = self._load.still_waiting(job for job in self._ahead.values() if job.id not in here)
            fleets, now = self._fleets(), self._clock.now()
            snapshot = self._load.queue(self._project_id, jobs, fleets, now, before, self._usage)
            self._ahead |= {item.job.id: item.job for item in snapshot.queue if first_of_several(item)}
            plan = self._kinds.checked(snapshot, self._row.decide(snapshot))
            done = self._committer.commit(plan)
            self._add(done, plan.next_wake)
            if done.steps or done.lost:
                self._read = None
            if not done.lost:
                return
            self._fleets()
            jobs = self._load.still_waiting(jobs)

    def _add(self, done: Committed, next_wake: Micros | None) -> None:
        self.done = merged(self.done, done)
        self.next_wake = min((at for at in (self.next_wake, next_wake) if at is not None), default=None)


def _each(instance: Instance) -> bool:
    return True


def first_of_several(item: QueuedJob) -> bool:
    return item.job.job_num == 0 and item.spec.jobs_per_replica > 1


def merged(before: Committed, after: Committed) -> Committed:
    """Both results together; only the losses of the second one count."""
    return Committed(before.steps + after.steps, after.lost, [*before.wake, *after.wake])
