"""What the runs of an access token may cost a day, and what they have cost today.

A run carries the limit of the token with which it was submitted or last changed, so it counts after that token has
ended, too. The record of a limit lists the jobs that have got places under it, in all projects. It is written with
every such placement, so that none is missed, and a job that has ended is then replaced by its cost. A token without a
limit has no such record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from chalicelib.domain import keys
from chalicelib.domain.instants import DAY, SECOND, Micros, day_of
from chalicelib.domain.keys import Key
from chalicelib.domain.noun import Noun, Value

if TYPE_CHECKING:
    from chalicelib.domain.jobs import Job

MOST_JOBS = 5_000  # listed at once, or the record would be too large
KEPT = 400 * DAY  # after the last placement: longer than any token is valid


class DailyLimit(Value):
    """Of an access token."""

    id: str  # of what is counted together: the token, or the rule by which programs sign on
    token: str  # its name
    dollars: float


class Spending(Noun):
    kind: ClassVar[str] = "spending"

    id: str  # the limit's
    spent: float = 0.0  # dollars, for jobs that ended on the day of `counted_to` and aren't listed any more
    jobs: tuple[str, ...] = ()  # that have got places: see `address_of`
    counted_to: Micros = 0

    def on(self, now: Micros) -> float:
        """Today's cost of the jobs that aren't listed any more."""
        return self.spent if self.counted_to >= day_of(now) else 0.0

    def place(self) -> keys.Place:
        return keys.Place(keys.spending(self.id), expires_at=(self.counted_to + KEPT) // SECOND)


def address_of(job: Job) -> str:
    return f"{job.run_id}/{job.replica_num}/{job.job_num}/{job.submission_num}"


def key_at(address: str) -> Key:
    run_id, *numbers = address.rsplit("/", 3)
    return keys.job(run_id, *map(int, numbers))
