"""The project's machines as a queue pass sees them: what is free, what was handed out, and how to take it back.

The floor never hands out a block or a node twice. Everything that changes during a pass (free blocks, the nouns, how
many instances a fleet has) is in tables that a journal can restore, and every question is answered from those tables.
So a gang that finds seven of its eight places gives them back, and the next job sees them as if it had never asked.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from chalicelib.domain.fleets import Fleet
from chalicelib.domain.instances import Instance
from chalicelib.planning.asked import Asked
from chalicelib.planning.combine import Wants
from chalicelib.planning.journal import Journal
from chalicelib.planning.offers import OfferBook
from chalicelib.planning.pools import Pool
from chalicelib.planning.snapshots import FleetView


class Floor:
    def __init__(self, fleets: Sequence[FleetView], book: OfferBook) -> None:
        self.book = book
        self.pools = [Pool(view) for view in fleets if not view.fleet.deleted]
        self.fleets: dict[str, Fleet] = {pool.view.fleet.id: pool.view.fleet for pool in self.pools}
        self.count = {pool.view.fleet.id: len(pool.view.instances) for pool in self.pools}
        self.instances = {instance.id: instance for pool in self.pools for instance in pool.machines}
        self._free = {id: _free_blocks(instance) for id, instance in self.instances.items()}
        self._where = {
            instance.id: (pool, 1 << row) for pool in self.pools for row, instance in enumerate(pool.machines)
        }
        self._asked: dict[Wants, Asked] = {}
        self._journal = Journal()

    def asked(self, wants: Wants) -> Asked:
        """What fits, free or not."""
        found = self._asked.get(wants)
        if found is None:
            found = self._asked[wants] = Asked(wants, self.pools, self.book)
        return found

    def free(self, instance: Instance) -> tuple[int, ...]:
        return self._free[instance.id]

    # --- what happened -----------------------------------------------------------------------------------------------

    def took(self, instance: Instance, blocks: Collection[int]) -> None:
        """A job has these blocks now."""
        before = self._free[instance.id]
        after = tuple([block for block in before if block not in blocks])
        pool, row = self._where[instance.id]
        pool.resize(row, len(before), len(after), self._journal)
        self._journal.put(self._free, instance.id, after)
        self._journal.put(self.instances, instance.id, instance)

    def bought(self, fleet: Fleet, instance: Instance) -> None:
        """This instance is being created; other jobs may share what is left of it."""
        self._journal.put(self.fleets, fleet.id, fleet)
        self._journal.put(self.count, fleet.id, self.count[fleet.id] + 1)
        left = _free_blocks(instance)
        if left:
            pool = next(pool for pool in self.pools if pool.view.fleet.id == fleet.id)
            self._where[instance.id] = pool, pool.join(instance, self._journal)
            self._journal.put(self._free, instance.id, left)
            self._journal.put(self.instances, instance.id, instance)
            self._asked.clear()  # this one may fit, too

    # --- taking it back ----------------------------------------------------------------------------------------------

    def mark(self) -> int:
        """A point that `back` can return to."""
        return self._journal.mark()

    def back(self, mark: int) -> None:
        """Undo everything taken or bought since the mark."""
        self._journal.back(mark)


def _free_blocks(instance: Instance) -> tuple[int, ...]:
    blocks = range(instance.total_blocks)
    if not instance.claims:
        return tuple(blocks)
    busy = {block for claim in instance.claims for block in claim.blocks}
    return tuple([block for block in blocks if block not in busy])
