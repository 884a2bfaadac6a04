"""One look at one project's queue, page after page.

The queue is the one unit that is too long to read whole: a pass pages from its head while capacity may be left. When
there is none it reads nothing, unless some job is due. Newly submitted jobs, which enter the queue only if they have to
wait, are found by the hint of their submission, each in its turn. All of them are looked at, so that one that can't be
placed shows why.
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

ATTEMPTS = 5  # fresh looks after a conflict, before a unit is left to the next pass
SMALLEST_PAGE = 16  # waiting jobs to look at even if only a place or two are free


@dataclass(frozen=True)
class Hints:
    """Ids whose change woke this pass: read by key even where no index shows them yet."""

    runs: tuple[str, ...] = ()
    instances: tuple[str, ...] = ()

    @staticmethod
    def of(units: Iterable[str]) -> Hints:
        split = [unit.partition("/") for unit in units]
        return Hints(
            tuple(id for kind, _, id in split if kind == "run"),
            tuple(id for kind, _, id in split if kind == "instance"),
        )


class QueueLook:
    def __init__(
        self, load: Loader, clock: Clock, committer: Committer, kinds: Kinds, row: Unit, project_id: str, hints: Hints
    ) -> None:
        self._load, self._clock, self._committer, self._kinds, self._row = load, clock, committer, kinds, row
        self._project_id, self._hints = project_id, hints
        self._read: tuple[FleetView, ...] | None = None  # the fleets; None: to be read again
        self._usage: QuotaUsage | None = None  # of the project's quota, if it has one, as of the fleets
        self._seen: set[str] = set()
        self._ahead: dict[str, Job] = {}  # first nodes of tasks on several, which waited when they were looked at
        self.done = Committed()
        self.next_wake: Micros | None = None

    def over(self, due: bool) -> None:
        """`due`: some of its jobs are, so all that are must be looked at."""
        if not self._load.anybody_waits(self._project_id, self._hints.runs):
            return
        now = self._clock.now()
        self._fleets()
        asked = self._load.queued_of(self._hints.runs, self._project_id)
        cursor: str | None = None
        while True:
            places = self._room()
            if places == 0 and not due:
                break
            limit = PAGE if due or places is None else min(PAGE, max(SMALLEST_PAGE, 2 * places))
            jobs, cursor = self._load.queue_page(self._project_id, cursor, limit)
            turn = [job for job in asked if cursor is None or (jobs and order(job) <= order(jobs[-1]))]
            jobs = sorted({job.id: job for job in (*jobs, *turn)}.values(), key=order)
            if places == 0:
                jobs = [job for job in jobs if job.due_at is not None and job.due_at <= now]
            self._place(jobs)
            asked = [job for job in asked if job.id not in self._seen]
            if cursor is None:
                break
            self._fleets()
            asked = self._load.still_waiting(asked)
        if asked:
            self._fleets()
            self._place(self._load.still_waiting(asked))

    def _room(self) -> int | None:
        """How many more jobs could find a place, and may have one, at the very most. None: no bound."""
        places = room(self._fleets())
        left = None if self._usage is None else self._usage.room()
        return min((count for count in (places, left) if count is not None), default=None)

    def _fleets(self) -> tuple[FleetView, ...]:
        """The fleets as of the last commit here. Read before the jobs that are to be placed, or a job could wait
        although they show its claim; and after the quota, for which every machine is read by its key."""
        if self._read is None:
            read = self._load.read
            quota = quota_of(read, self._project_id)
            again = has_room if quota is None else _each
            self._read = read.fleet_views(self._project_id, self._hints.instances, again)
            self._usage = None if quota is None else usage_of(read, quota, self._read, self._clock.now())
        return self._read

    def _place(self, jobs: list[Job]) -> None:
        """Decide about those of `jobs` that are new to this look; after a conflict, about the rest of them."""
        jobs = [job for job in jobs if job.id not in self._seen]
        self._seen.update(job.id for job in jobs)
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
        self.done = joined(self.done, done)
        self.next_wake = min((at for at in (self.next_wake, next_wake) if at is not None), default=None)


def _each(instance: Instance) -> bool:
    return True


def first_of_several(item: QueuedJob) -> bool:
    return item.job.job_num == 0 and item.spec.jobs_per_replica > 1


def joined(before: Committed, after: Committed) -> Committed:
    """Both results together; only what the last one lost is still lost."""
    return Committed(before.steps + after.steps, after.lost, [*before.wake, *after.wake])
