"""The capacity of a project during a queue pass: what is free, what was handed out, and how to undo that.

No block or node is handed out twice. Everything that changes during a pass (free blocks, the nouns, the number of a
fleet's instances) is in tables that a journal can restore, and every decision reads those tables. So a gang that finds
only seven of its eight places frees them, and the next job sees them as before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.fleets import Fleet
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.market_answers import MarketAnswer
from chalicelib.domain.offers import Offer
from chalicelib.domain.volumes import Volume
from chalicelib.planning.kernel.journal import Journal
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.matching.colocation import capable, first_of, is_cluster
from chalicelib.planning.matching.machine_index import Query
from chalicelib.planning.matching.market_answers import Answers, origin
from chalicelib.planning.matching.offer_book import OfferBook
from chalicelib.planning.matching.pools import Pool
from chalicelib.planning.matching.requirements import JobRequirements
from chalicelib.planning.placing.candidates import Candidates


class Capacity:
    def __init__(
        self,
        fleets: Sequence[FleetView],
        book: OfferBook,
        facts: Mapping[str, BackendFacts] | None = None,
        volumes: Mapping[str, Volume] | None = None,
        answers: Answers | None = None,
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
        self._answers = answers or {}
        machines = (instance for pool in self.pools for instance in pool.view.instances)
        self.listings = {each.offer.key: True for each in machines if each.offer.terms.listing}  # of markets, bought
        self._begun: dict[str, bool] = {}  # fleets with a machine bought in this pass
        self._live = frozenset(name.lower() for name, each in (facts or {}).items() if each.live_offers)
        self.held: dict[str, str] = {}  # fleet → the run for which some of its machines are held back
        self._candidates: dict[JobRequirements, Candidates] = {}
        self._journal = Journal()

    def origin(self, offer: Offer) -> str:
        """When a market offered it, and what it was asked for; empty for an offer of a list."""
        answer = self._origins.get(offer.key)
        return "" if answer is None else origin(answer)

    @cached_property
    def _origins(self) -> Mapping[str, MarketAnswer]:
        """The newest answer that has it, by the key of an offer."""
        answers = sorted(self._answers.values(), key=lambda each: each.at)
        return {offer.key: answer for answer in answers for offer in answer.offers}

    def candidates(self, requirements: JobRequirements) -> Candidates:
        """The candidates for jobs with these requirements, free or not."""
        found = self._candidates.get(requirements)
        if found is None:
            found = self._candidates[requirements] = Candidates(requirements, self.pools, self.book, self._backends)
        return found

    def awaits_first_machine(self, pool: Pool) -> bool:
        """Is this a cluster whose first machine has been ordered, so that the place of the others isn't known yet?"""
        if not is_cluster(pool.view.spec):
            return False
        first = first_of(pool.view.instances)
        if first is None:
            return pool.view.fleet.id in self._begun
        return first.status is InstanceStatus.pending

    def sold_on_request(self, query: Query) -> bool:
        """May a market have it, which says so only when it is asked?"""
        return bool(self._live if query.backends is None else self._live & query.backends)

    def free(self, instance: Instance) -> tuple[int, ...]:
        return self._free[instance.id]

    def room(self, pool: Pool) -> int | None:
        """How many more machines the fleet may get. None: no limit."""
        nodes = pool.view.spec.configuration.nodes
        if nodes is None:
            return 0
        return None if nodes.max is None else max(0, nodes.max - self.count[pool.view.fleet.id])

    def machines(self, pool: Pool) -> Sequence[Instance]:
        """All the fleet's machines as they are now: with what was claimed, bought and ended during this pass."""
        fleet_id = pool.view.fleet.id
        machines = {instance.id: instance for instance in pool.view.instances}
        machines |= {id: instance for id, instance in self.instances.items() if instance.fleet_id == fleet_id}
        return tuple(machines.values())

    # --- changes -----------------------------------------------------------------------------------------------------

    def record_claim(self, instance: Instance, blocks: Collection[int]) -> None:
        """A job has got these blocks; its claim is the instance's last."""
        self._freed(instance, tuple([block for block in self._free[instance.id] if block not in blocks]))
        pool, row = self._where[instance.id]
        pool.listen(row, instance.claims[-1].ports, self._journal)
        self._journal.put(self.instances, instance.id, instance)

    def record_mounts(self, volumes: Iterable[Volume], instance: Instance) -> None:
        """A job has got these volumes, as disks of this machine."""
        if instance.id in self.instances:
            self._journal.put(self.instances, instance.id, instance)
        for volume in volumes:
            self._journal.put(self.volumes, volume.name, volume)

    def record_purchase(self, fleet: Fleet, instance: Instance) -> None:
        """This instance is being created; other jobs may share its remaining blocks."""
        self._journal.put(self.fleets, fleet.id, fleet)
        self._journal.put(self.count, fleet.id, self.count[fleet.id] + 1)
        if instance.offer.terms.listing:
            self._journal.put(self.listings, instance.offer.key, True)
        if not instance.offer.is_container:
            self._journal.put(self._begun, fleet.id, True)
        left = _free_blocks(instance)
        if left:
            pool = next(pool for pool in self.pools if pool.view.fleet.id == fleet.id)
            self._where[instance.id] = pool, pool.join(instance, self._journal)
            self._journal.put(self._free, instance.id, left)
            self._journal.put(self.instances, instance.id, instance)
            self._candidates.clear()  # the new machine may be another candidate

    def record_release(self, instance: Instance) -> None:
        """This machine has fewer claims than before."""
        self._freed(instance, _free_blocks(instance))
        self._journal.put(self.instances, instance.id, instance)

    def record_end(self, instance: Instance) -> None:
        """The machine is being ended: no job gets it any more."""
        self._freed(instance, ())
        self._journal.put(self.instances, instance.id, instance)

    def hold_for(self, instance: Instance, holder: str) -> None:
        """Hold this machine back: no other job gets it in this pass."""
        self._freed(instance, ())
        self._journal.put(self.held, instance.fleet_id, holder)

    def _freed(self, instance: Instance, after: tuple[int, ...]) -> None:
        pool, row = self._where[instance.id]
        pool.resize(row, len(self._free[instance.id]), len(after), self._journal)
        self._journal.put(self._free, instance.id, after)

    # --- undoing them ------------------------------------------------------------------------------------------------

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
