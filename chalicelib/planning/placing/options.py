"""Where a job can be placed: the cheapest free place on a ready machine; else a free place on a starting machine; else
the cheapest new machine in a fleet with room for one. Otherwise the job waits for something that fits but isn't free,
or nothing will ever fit.

The result depends only on the current capacity, not on earlier searches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from chalicelib.domain.instances import Instance
from chalicelib.domain.instants import MINUTE, SECOND, Micros
from chalicelib.domain.jobs import Job
from chalicelib.domain.offers import Offer
from chalicelib.domain.reasons import JobReason
from chalicelib.planning.kernel.plan import Note
from chalicelib.planning.matching.bitmaps import rows_of
from chalicelib.planning.matching.colocation import is_cluster
from chalicelib.planning.matching.machine_index import Query
from chalicelib.planning.matching.offer_book import slice_of
from chalicelib.planning.matching.pools import Pool
from chalicelib.planning.matching.requirements import JobRequirements
from chalicelib.planning.placing.buying import MOST_TRIED, Purchase, is_full, may_grow, tried_by
from chalicelib.planning.placing.capacity import Capacity
from chalicelib.planning.placing.markets import Unanswered
from chalicelib.planning.placing.why_not import refusals

OFFERS_DUE_WITHIN: Micros = 10 * MINUTE  # how long a job waits for a backend's first offers; most take seconds
CHECK_OFFERS_EVERY: Micros = 5 * SECOND


@dataclass(frozen=True)
class FreePlace:
    """A place on an existing instance: these blocks of it, as this offer."""

    instance: Instance
    blocks: tuple[int, ...]
    offer: Offer


@dataclass(frozen=True)
class Waiting:
    """Something fits, but isn't free now."""

    fleet: str
    text: str
    check_in: Micros | None = None  # the pause until the next check, if it is shorter than usual
    market: Unanswered | None = None  # to be asked for it


@dataclass(frozen=True)
class Unplaceable:
    """Nothing here can ever take it; one note per candidate."""

    notes: tuple[Note, ...]
    reason: JobReason = JobReason.failed_to_start_due_to_no_capacity
    unreported: Waiting | None = None  # set if the first offers of a backend, which are awaited, may change that

    def so_far(self, job: Job, now: Micros) -> Waiting | Unplaceable:
        """The verdict for a job: it is final only once every backend has reported offers, or has had enough time."""
        return self.unreported if self.unreported and now - job.submitted_at < OFFERS_DUE_WITHIN else self


Verdict = FreePlace | Purchase | Waiting | Unplaceable


def find(capacity: Capacity, requirements: JobRequirements, job: Job) -> Verdict:
    question = _Search(capacity, requirements, job)
    return question.spot() or question.purchase() or question.wait() or unplaceable(capacity, requirements, job)


def unplaceable(capacity: Capacity, requirements: JobRequirements, job: Job, *, together: bool = False) -> Unplaceable:
    """`together`: the run has several nodes, which only a cluster takes."""
    notes = refusals(capacity, requirements, job, together=together)
    return Unplaceable(
        notes, unreported=_unreported(capacity, requirements, together) if capacity.book.awaited else None
    )


def _unreported(capacity: Capacity, requirements: JobRequirements, together: bool) -> Waiting | None:
    for at, pool in enumerate(capacity.pools):
        query, count = capacity.candidates(requirements).query(at), capacity.count[pool.view.fleet.id]
        grows = may_grow(pool, count, requirements) and (is_cluster(pool.view.spec) or not together)
        if grows and isinstance(query, Query) and (awaited := capacity.book.awaited_by(query)):
            return Waiting(pool.view.fleet.name, f"for the first offers of {awaited}", CHECK_OFFERS_EVERY)
    return None


class _Search:
    """The search of one job in the current capacity."""

    def __init__(self, capacity: Capacity, requirements: JobRequirements, job: Job) -> None:
        self.capacity, self.candidates = capacity, capacity.candidates(requirements)
        self.tried, self.ports = tried_by(job), requirements.ports

    def spot(self) -> FreePlace | None:
        return self._spot(lambda pool: pool.ready) or self._spot(lambda pool: pool.coming & ~self._failed(pool))

    def _spot(self, among: Callable[[Pool], int]) -> FreePlace | None:
        best: tuple[float, int, int, int] | None = None
        where: Pool | None = None
        for at, pool in enumerate(self.capacity.pools):
            rows = pool.not_full(among(pool))
            if self.ports and rows:
                rows &= ~pool.listening(self.ports)
            found = pool.best(self.candidates.shares(at), rows) if rows else None
            if found and (best is None or found[:2] < best[:2]):
                best, where = found, pool
        if best is None or where is None:
            return None
        _, _, row, needed = best
        instance = self.capacity.instances[where.machines[row].id]
        blocks = self.capacity.free(instance)[:needed]
        return FreePlace(instance, blocks, slice_of(instance.offer, needed, instance.total_blocks))

    def _failed(self, pool: Pool) -> int:
        """Starting machines of an offer that has already failed for this job; other jobs may still take them."""
        if not self.tried or not pool.coming:
            return 0
        return sum(1 << row for row in rows_of(pool.coming) if pool.machines[row].offer.key in self.tried)

    def purchase(self) -> Purchase | None:
        best: Purchase | None = None
        for at, pool in enumerate(self.capacity.pools):
            count = self.capacity.count[pool.view.fleet.id]
            grows = may_grow(pool, count, self.candidates.requirements) and not is_full(pool, count)
            if grows and not self.capacity.awaits_first_machine(pool):
                found = self._buy(at)
                if found and (best is None or found.price < best.price):
                    best = found
        return best

    def _buy(self, at: int) -> Purchase | None:
        """A machine of a market can be bought once."""
        untaken = self.tried | self.capacity.listings.keys()
        return self.candidates.buy(at, untaken) if len(self.tried) < MOST_TRIED else None

    def wait(self) -> Waiting | None:
        for at, pool in enumerate(self.capacity.pools):
            query = self.candidates.query(at)
            text = self._awaited(at, pool) if isinstance(query, Query) else ""
            if text or (text := self._room(at, pool)):
                return Waiting(pool.view.fleet.name, text)
            if isinstance(query, Query) and (coming := pool.undecided(self.candidates.requirements, query)):
                return Waiting(pool.view.fleet.name, pool.zone_of(coming))
        return None

    def _awaited(self, at: int, pool: Pool) -> str:
        """What the job waits for in the pool; a port, if that is the only obstacle."""
        shares = self.candidates.shares(at)
        taken = pool.listening(self.ports) if self.ports else 0
        found = pool.best(shares, pool.not_full(pool.ready & taken)) if taken else None
        if found is not None:
            instance = pool.machines[found[2]]
            port = next(port for port in self.ports if pool.listening((port,)) >> found[2] & 1)
            where = f"on {instance.name} in fleet `{pool.view.fleet.name}`"
            return f"for port {port} {where}, where another job listens on it"
        text = pool.awaited(shares, pool.chosen(self.candidates.requirements))
        held = self.capacity.held.get(pool.view.fleet.id)
        return f"{text}; machines are held back for {held}" if text and held else text

    def _room(self, at: int, pool: Pool) -> str:
        """What a job waits for if the fleet is full and would otherwise buy a machine; empty if not."""
        count, nodes = self.capacity.count[pool.view.fleet.id], pool.view.spec.configuration.nodes
        if nodes is None or not may_grow(pool, count, self.candidates.requirements):
            return ""
        if self.capacity.awaits_first_machine(pool):
            return f"for the first machine of cluster `{pool.view.fleet.name}` to be created"
        query = self.candidates.order(at)
        asks_then = is_full(pool, count) and query is not None and self.capacity.sold_on_request(query)
        if not asks_then and not self._buy(at):
            return ""
        return f"for room in fleet `{pool.view.fleet.name}` ({nodes.max} of {nodes.max} nodes)"
