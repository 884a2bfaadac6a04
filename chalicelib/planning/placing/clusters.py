"""Clusters, and which of their machines the nodes of a task could get.

A cluster consists of those machines of a fleet with `placement: cluster` that are in one backend and region, where they
reach each other. A node takes a whole machine, so that no other job on it slows down the other nodes. A bundle is a
cluster of its own: a task takes all of its machines, each for the node with its number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from chalicelib.planning.matching.bitmaps import first_of, rows_of
from chalicelib.planning.matching.colocation import is_cluster
from chalicelib.planning.matching.machine_index import Query
from chalicelib.planning.matching.pools import Pool, unreported
from chalicelib.planning.matching.requirements import JobRequirements
from chalicelib.planning.placing.capacity import Capacity


@dataclass(frozen=True)
class Cluster:
    at: int  # the index of its fleet's pool
    pool: Pool
    rows: int
    bundle: int | None = None  # it is the bundle with this number

    @property
    def name(self) -> str:
        return self.pool.view.fleet.name

    @property
    def place(self) -> tuple[str, str]:
        """Its backend and region."""
        offer = self.pool.machines[first_of(self.rows)].offer
        return offer.backend, offer.region

    def free(self, capacity: Capacity, *, coming: bool = False) -> int:
        """Its machines that take jobs and have none; with `coming`, including those that are still starting."""
        among = self.pool.ready | self.pool.coming if coming else self.pool.ready
        usable = rows_of(self.rows & self.pool.not_full(among))
        return sum(1 << row for row in usable if _is_unused(capacity, self.pool, row))


def clusters(capacity: Capacity) -> Iterator[Cluster]:
    for at, pool in enumerate(capacity.pools):
        if is_cluster(pool.view.spec):
            places: dict[tuple[str, str, int | None], int] = {}
            for row, instance in enumerate(pool.machines):
                where = instance.offer.backend, instance.offer.region, instance.bundle
                places[where] = places.get(where, 0) | 1 << row
            yield from (Cluster(at, pool, rows, bundle) for (*_, bundle), rows in places.items())


def _is_unused(capacity: Capacity, pool: Pool, row: int) -> bool:
    instance = capacity.instances[pool.machines[row].id]
    return len(capacity.free(instance)) == instance.total_blocks


def fitting_rows(capacity: Capacity, cluster: Cluster, requirements: JobRequirements) -> int:
    """The machines that fit, free or not, and hosts that haven't reported yet, which may fit."""
    candidates = capacity.candidates(requirements)
    if not isinstance(candidates.query(cluster.at), Query):
        return 0
    rows = 0
    for share in candidates.shares(cluster.at):
        rows |= share.rows
    silent = sum(1 << row for row, each in enumerate(cluster.pool.machines) if unreported(each))
    return (rows | silent & cluster.pool.chosen(candidates.requirements)) & cluster.rows


def may_use(capacity: Capacity, at: int, groups: Iterable[JobRequirements]) -> bool:
    """May every node be in this fleet, as far as the fleet and the run say?"""
    return all(isinstance(capacity.candidates(requirements).query(at), Query) for requirements in groups)


def undecided_rows(capacity: Capacity, cluster: Cluster, requirements: JobRequirements) -> int:
    """Machines that fit if they come up in the zone of the volumes."""
    query = capacity.candidates(requirements).query(cluster.at)
    return cluster.pool.undecided(requirements, query) & cluster.rows if isinstance(query, Query) else 0


def share_out(needed: Sequence[int], fitting: Sequence[int]) -> list[int] | None:
    """Distribute machines to groups of nodes: group n gets `needed[n]` of the rows `fitting[n]`, and each row is used
    once. None: there aren't enough, however they are chosen."""
    given = [0] * len(needed)

    def grant(group: int, visited: set[int]) -> bool:
        """One more row for the group: a free one, or one of another group that finds a substitute. `asked`: groups that
        can't be asked any more; each is asked once, or many groups would take for ever."""
        visited.add(group)
        taken = 0
        for rows in given:
            taken |= rows
        if free := fitting[group] & ~taken:
            given[group] |= 1 << first_of(free)
            return True
        for other in range(len(given)):
            shared = given[other] & fitting[group]
            if shared and other not in visited and grant(other, visited):
                row = 1 << first_of(shared)
                given[other] ^= row
                given[group] |= row
                return True
        return False

    for group, count in enumerate(needed):
        for _ in range(count):
            if not grant(group, set()):
                return None
    return given
