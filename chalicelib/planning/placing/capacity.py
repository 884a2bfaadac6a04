"""The project's machines as a queue pass sees them: what is free, what was handed out, and how to take it back.

The floor never hands out a block or a node twice. Everything that changes during a pass (free blocks, the nouns, how
many instances a fleet has) is in tables that a journal can restore, and every question is answered from those tables.
So a gang that finds seven of its eight places gives them back, and the next job sees them as if it had never asked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.fleets import Fleet
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.volumes import Volume
from chalicelib.planning.kernel.journal import Journal
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.matching.colocation import capable, first_of, is_cluster
from chalicelib.planning.matching.machine_index import Query
from chalicelib.planning.matching.offer_book import OfferBook
from chalicelib.planning.matching.pools import Pool
from chalicelib.planning.matching.requirements import Wants
from chalicelib.planning.placing.candidates import Candidates


class Capacity:
    def __init__(
        self,
        fleets: Sequence[FleetView],
        book: OfferBook,
        facts: Mapping[str, BackendFacts] | None = None,
        volumes: Mapping[str, Volume] | None = None,
    ) -> None:
        self.book, self._backends = book, capable(facts or {})
        self.pools = [Pool(view) for view in fleets if not view.fleet.deleted]
        self.fleets: dict[str, Fleet] = {pool.view.fleet.id: pool.view.fleet for pool in self.pools}
        self.count = {pool.view.fleet.id: len(pool.view.instances) for pool in self.pools}
        self.instances = {instance.id: instance for pool in self.pools for instance in pool.machines}
        self._free = {id: _free_blocks(instance) for id, instance in self.instances.items()}
        self._where = {
            instance.id: (pool, 1 << row) for pool in self.pools for row, instance in enumerate(pool.machines)
        }
        self.volumes = dict(volumes or {})  # by name
        machines = (instance for pool in self.pools for instance in pool.view.instances)
        self.listings = {each.offer.key: True for each in machines if each.offer.terms.listing}  # of markets, bought
        self._live = frozenset(name.lower() for name, each in (facts or {}).items() if each.live_offers)
        self.held: dict[str, str] = {}  # fleet → for whom some of its machines are held back
        self._candidates: dict[Wants, Candidates] = {}
        self._journal = Journal()

    def candidates(self, wants: Wants) -> Candidates:
        """What fits, free or not."""
        found = self._candidates.get(wants)
        if found is None:
            found = self._candidates[wants] = Candidates(wants, self.pools, self.book, self._backends)
        return found

    def awaits_first_machine(self, pool: Pool) -> bool:
        """Is this a cluster whose first machine has been ordered, so that nobody knows yet where the others must be?"""
        if not is_cluster(pool.view.spec):
            return False
        first = first_of(pool.view.instances)
        if first is None:
            return self.count[pool.view.fleet.id] > len(pool.view.instances)
        return first.status is InstanceStatus.pending

    def sold_on_request(self, query: Query) -> bool:
        """May a market have it, which says so only when it is asked?"""
        return bool(self._live if query.backends is None else self._live & query.backends)

    def free(self, instance: Instance) -> tuple[int, ...]:
        return self._free[instance.id]

    def room(self, pool: Pool) -> int | None:
        """How many machines more its fleet may get. None: as many as it likes."""
        nodes = pool.view.spec.configuration.nodes
        if nodes is None:
            return 0
        return None if nodes.max is None else max(0, nodes.max - self.count[pool.view.fleet.id])

    # --- what happened -----------------------------------------------------------------------------------------------

    def record_claim(self, instance: Instance, blocks: Collection[int]) -> None:
        """A job has these blocks now; its claim is the last."""
        self._freed(instance, tuple([block for block in self._free[instance.id] if block not in blocks]))
        pool, row = self._where[instance.id]
        pool.listen(row, instance.claims[-1].ports, self._journal)
        self._journal.put(self.instances, instance.id, instance)

    def record_mounts(self, volumes: Iterable[Volume], instance: Instance) -> None:
        """A job has these volumes now, as disks of this machine."""
        if instance.id in self.instances:
            self._journal.put(self.instances, instance.id, instance)
        for volume in volumes:
            self._journal.put(self.volumes, volume.name, volume)

    def record_purchase(self, fleet: Fleet, instance: Instance) -> None:
        """This instance is being created; other jobs may share what is left of it."""
        self._journal.put(self.fleets, fleet.id, fleet)
        self._journal.put(self.count, fleet.id, self.count[fleet.id] + 1)
        if instance.offer.terms.listing:
            self._journal.put(self.listings, instance.offer.key, True)
        left = _free_blocks(instance)
        if left:
            pool = next(pool for pool in self.pools if pool.view.fleet.id == fleet.id)
            self._where[instance.id] = pool, pool.join(instance, self._journal)
            self._journal.put(self._free, instance.id, left)
            self._journal.put(self.instances, instance.id, instance)
            self._candidates.clear()  # this one may fit, too

    def record_release(self, instance: Instance) -> None:
        """This machine, as it is now, has fewer claims than before."""
        self._freed(instance, _free_blocks(instance))
        self._journal.put(self.instances, instance.id, instance)

    def record_end(self, instance: Instance) -> None:
        """It is being ended: nobody gets it any more."""
        self._freed(instance, ())

    def hold_for(self, instance: Instance, whom: str) -> None:
        """No other job gets this machine in this pass."""
        self._freed(instance, ())
        self._journal.put(self.held, instance.fleet_id, whom)

    def _freed(self, instance: Instance, after: tuple[int, ...]) -> None:
        pool, row = self._where[instance.id]
        pool.resize(row, len(self._free[instance.id]), len(after), self._journal)
        self._journal.put(self._free, instance.id, after)

    # --- taking it back ----------------------------------------------------------------------------------------------

    def mark(self) -> int:
        """A point that `roll_back` can return to."""
        return self._journal.mark()

    def roll_back(self, mark: int) -> None:
        """Undo everything taken or bought since the mark."""
        self._journal.roll_back(mark)


def _free_blocks(instance: Instance) -> tuple[int, ...]:
    blocks = range(instance.total_blocks)
    if not instance.claims:
        return tuple(blocks)
    busy = {block for claim in instance.claims for block in claim.blocks}
    return tuple([block for block in blocks if block not in busy])
