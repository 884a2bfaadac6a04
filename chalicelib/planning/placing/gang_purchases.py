"""Purchases for a gang whose clusters have too few machines.

The first machine determines the place (`colocation`). Once its provider has accepted it, the other missing machines are
bought there, in the commits that seal the gang. The gang holds them from their purchase on, and waits for their
addresses. A refused purchase undoes the gang, which tries again with its other machines and the next offer there.

A bundle is a cluster by itself, for a task with as many nodes: all of it is bought at once, also beside other machines.

Containers end with their job, so they are no cluster that it could extend: all of a gang's are bought at once, beside
each other, and an undone gang tries again with new ones.

If no fitting offer is left there, the whole gang moves: its machines are released, and the next first machine is bought
where every node has an offer that hasn't failed yet. An offer fails only once for a submission, so this ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from chalicelib.domain.instances import Instance
from chalicelib.domain.jobs import Attempt
from chalicelib.domain.offers import Offer
from chalicelib.domain.reasons import InstanceReason
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.matching.bitmaps import first_of as first_row
from chalicelib.planning.matching.colocation import first_of, is_cluster, place_of
from chalicelib.planning.matching.containers import without_job
from chalicelib.planning.matching.machine_index import Query
from chalicelib.planning.matching.pools import COMING, READY, Pool
from chalicelib.planning.matching.requirements import JobRequirements
from chalicelib.planning.placing.buying import MOST_TRIED, Purchase, in_zones, may_grow, tried_by
from chalicelib.planning.placing.capacity import Capacity
from chalicelib.planning.placing.clusters import Cluster, clusters, fitting_rows, may_use
from chalicelib.planning.placing.gang_needs import Needs
from chalicelib.planning.placing.options import Waiting

OFFERS_READ = 200  # at most


@dataclass(frozen=True)
class Ordered:
    """Places from the first missing rank on: existing machines and purchases."""

    places: tuple[Instance | Purchase, ...]

    @property
    def price(self) -> float:
        """The average price of a node."""
        return sum(place.offer.price for place in self.places) / len(self.places)


@dataclass(frozen=True)
class Retreat:
    """No offer for the other nodes is left where this cluster is."""

    pool: Pool
    first: Instance


def order(capacity: Capacity, needs: Needs, held: Collection[str]) -> Ordered | Retreat | Waiting | None:
    """The cheapest purchase. `held`: the places that the gang has already. None: no possible purchase would help."""
    tried = {key for item in needs.unit for key in tried_by(item.job)}
    waits: Waiting | None = None
    ordered: list[Ordered] = []
    for at, pool in enumerate(capacity.pools):
        if len(tried) < MOST_TRIED and is_cluster(pool.view.spec):
            answer = _Order(capacity, at, needs, held, tried).answer()
            if isinstance(answer, Ordered):
                ordered.append(answer)
            elif isinstance(answer, Retreat):
                if not ordered:
                    return answer
            else:
                waits = waits or answer
    return min(ordered, key=lambda each: each.price) if ordered else waits


class _Order:
    """The purchase that one fleet could make."""

    def __init__(
        self, capacity: Capacity, at: int, needs: Needs, held: Collection[str], tried: Collection[str]
    ) -> None:
        self.capacity, self.at, self.needs, self.held, self.tried = capacity, at, needs, held, tried
        self.pool: Pool = capacity.pools[at]
        self.view, self.groups = self.pool.view, needs.groups()
        self.first = first_of(self.view.instances)

    def answer(self) -> Ordered | Retreat | Waiting | None:
        name, count = self.view.fleet.name, self.capacity.count[self.view.fleet.id]
        if not may_use(self.capacity, self.at, self.groups):
            return None
        if not all(may_grow(self.pool, count, requirements) for requirements in self.groups):
            return None
        staying = {each.id for each in self.view.instances if each.status in (*READY, *COMING)}
        if not staying.issuperset(self.held):
            return None
        if self.capacity.awaits_first_machine(self.pool):
            return Waiting(name, f"for the first machine of cluster `{name}` to be created")
        return self._start_cluster() if self.first is None else self._extend_cluster(self.first)

    # --- a new cluster -----------------------------------------------------------------------------------------------

    def _start_cluster(self) -> Ordered | Waiting | None:
        """Order the first machine, at a place with an offer for every node, or a container for every node."""
        nodes, name = len(self.needs.unit), self.view.fleet.name
        if not self._size_allowed(nodes):
            return None
        if not self._has_room(len(self.needs.nodes)):
            return Waiting(name, f"for room in fleet `{name}` for {nodes} machines")
        orders = {requirements: self.capacity.candidates(requirements).order(self.at) for requirements in self.groups}
        queries = {requirements: query for requirements, query in orders.items() if query is not None}
        return self._cheapest(queries) if queries.keys() == orders.keys() else None

    def _cheapest(self, queries: Mapping[JobRequirements, Query]) -> Ordered | None:
        first = queries[next(iter(self.groups))]
        beside = next((self.capacity.instances[place].offer for place in self.held), None)
        for buy in self._purchases(first):
            if beside is not None and (not buy.offer.is_container or _place(buy.offer) != _place(beside)):
                continue
            if buy.offer.is_container:
                if found := self._containers(buy.offer, queries):
                    return Ordered(found)
            elif buy.offer.bundle > 1:
                if whole := self._bundle(buy, queries):
                    return whole
            elif all(self._sold(query, buy.offer) for query in queries.values()):
                return Ordered((buy,))
        return None

    def _sold(self, query: Query, beside: Offer) -> bool:
        return query.takes_place(beside.backend, beside.region, None) and self._best(_there(query, beside)) is not None

    def _best(self, query: Query) -> tuple[Offer, int, int] | None:
        """The best single machine."""
        return self.capacity.book.best(without_job(query)._replace(bundles=frozenset()), self.tried)

    def _bundle(self, buy: Purchase, queries: Mapping[JobRequirements, Query]) -> Ordered | None:
        """The bundle, if it is for every node."""
        fits = all(
            any(each.offer.key == buy.offer.key for each in self._purchases(query)) for query in queries.values()
        )
        return Ordered((buy,) * len(self.needs.unit)) if fits else None

    def _containers(self, beside: Offer, queries: Mapping[JobRequirements, Query]) -> tuple[Purchase, ...] | None:
        """A container for each node, in one place; None: not for every one."""
        found: dict[int, Purchase] = {}
        for requirements, ranks in self.groups.items():
            query = queries[requirements]
            sold = self._purchases(_there(query, beside)) if query.takes_place(*_place(beside), None) else iter(())
            buy = next((each for each in sold if each.offer.is_container), None)
            if buy is None:
                return None
            found |= dict.fromkeys(ranks, buy)
        return tuple(found[rank] for rank in sorted(found))

    def _purchases(self, query: Query) -> Iterator[Purchase]:
        """Those that are possible, the cheapest first."""
        for offer, _, total in self.capacity.book.machines(query, OFFERS_READ):
            if offer.availability.usable and offer.key not in self.tried:
                yield Purchase(self.view, in_zones(offer, query), total, total)

    # --- an existing cluster -----------------------------------------------------------------------------------------

    def _extend_cluster(self, first: Instance) -> Ordered | Retreat | Waiting | None:
        """The missing machines, or a bundle."""
        bundle, answer = self._bundle_beside(), self._missing_machines(first)
        if bundle is None or (isinstance(answer, Ordered) and answer.price <= bundle.price):
            return answer
        return bundle

    def _bundle_beside(self) -> Ordered | None:
        """The cheapest bundle where the cluster is."""
        if self.needs.first or not self._has_room(len(self.needs.unit)):
            return None
        orders = {requirements: self.capacity.candidates(requirements).order(self.at) for requirements in self.groups}
        queries = {requirements: query for requirements, query in orders.items() if query is not None}
        if queries.keys() != orders.keys():
            return None
        sold = (buy for buy in self._purchases(queries[next(iter(self.groups))]) if buy.offer.bundle > 1)
        return next(filter(None, (self._bundle(buy, queries) for buy in sold)), None)

    def _missing_machines(self, first: Instance) -> Ordered | Retreat | Waiting | None:
        cluster = self._cluster(first)
        where, missing = self._machines_by_rank(cluster)
        if not self._has_room(len(missing)):
            return None if cluster is None else self._wait(cluster)
        for requirements, ranks in self.groups.items():
            lacking = [rank for rank in ranks if rank in missing]
            if not lacking:
                continue
            query = self.capacity.candidates(requirements).order(self.at)
            found = None if query is None else self._best(query)
            if query is None or found is None:
                return self._retreat(first)
            offer, _, total = found
            where |= {rank: Purchase(self.view, in_zones(offer, query), total, total) for rank in lacking}
        return Ordered(tuple(where[rank] for rank in sorted(where)))

    def _cluster(self, first: Instance) -> Cluster | None:
        """The machines beside the first one that were bought one by one."""
        place = first.offer.backend, first.offer.region
        own_clusters = (each for each in clusters(self.capacity) if each.at == self.at and each.bundle is None)
        return next((each for each in own_clusters if each.place == place), None)

    def _machines_by_rank(self, cluster: Cluster | None) -> tuple[dict[int, Instance | Purchase], set[int]]:
        """Machines by rank, including those that are still starting, and the ranks for which there is none."""
        where: dict[int, Instance | Purchase] = {}
        free, missing = 0 if cluster is None else cluster.free(self.capacity, coming=True), set[int]()
        for requirements, ranks in self.groups.items():
            for rank in ranks:
                rows = free and cluster and free & fitting_rows(self.capacity, cluster, requirements)
                if not rows:
                    missing.add(rank)
                    continue
                row = first_row(rows)
                free &= ~(1 << row)
                where[rank] = self.capacity.instances[self.pool.machines[row].id]
        return where, missing

    def _wait(self, cluster: Cluster) -> Waiting | None:
        """Wait if the full fleet has enough machines once its current jobs have ended."""
        nodes, found = len(self.needs.nodes), 0
        for requirements in self.groups:
            found |= fitting_rows(self.capacity, cluster, requirements)
        if found.bit_count() + (self.capacity.room(self.pool) or 0) < nodes:
            return None
        return Waiting(cluster.name, f"for {nodes} whole hosts in cluster `{cluster.name}` at once")

    def _retreat(self, first: Instance) -> Retreat | None:
        """Move, but only if no other job uses or requested these machines, and the fleet has no minimum."""
        nodes = self.view.spec.configuration.nodes
        staying = [each for each in self.capacity.machines(self.pool) if each.status in (*READY, *COMING)]
        others = [each for each in staying if each.id not in self.held]
        in_use = any(each.claims or each.idle_seconds is None for each in others)
        return None if in_use or nodes is None or nodes.min else Retreat(self.pool, first)

    # --- how many ----------------------------------------------------------------------------------------------------

    def _size_allowed(self, machines: int) -> bool:
        nodes = self.view.spec.configuration.nodes
        return nodes is not None and (nodes.max is None or machines <= nodes.max)

    def _has_room(self, more: int) -> bool:
        room = self.capacity.room(self.pool)
        return room is None or more <= room


def _place(offer: Offer) -> tuple[str, str]:
    return offer.backend, offer.region


def _there(query: Query, beside: Offer) -> Query:
    """The query in one place."""
    return query._replace(backends=frozenset([beside.backend.lower()]), regions=frozenset([beside.region.lower()]))


def retreat(draft: Draft, needs: Needs, back: Retreat, capacity: Capacity) -> None:
    """End the machines, and record the place as a failed attempt."""
    lead, where = needs.lead, place_of(back.first)
    why = f"nothing that fits is left in {where} for the other nodes of {lead.run_name}"
    attempt = Attempt(offer_key=back.first.offer.key, error=why)
    draft.save(lead.with_(attempts=(*lead.attempts, attempt), last_processed_at=draft.now))
    for instance in capacity.machines(back.pool):
        if instance.status in (*READY, *COMING) and not instance.claims:
            capacity.record_end(draft.end_instance(instance, InstanceReason.no_offers, why))
