"""One fleet's machines in a queue pass: which of them fit a job, and which of those have a free place.

These are separate questions. What fits depends on properties that don't change during a pass: a `MachineIndex` answers
it or, for machines cut into blocks, one check per group of equal machines. What is free changes with every placement:
there is one set of rows per number of free blocks. A row is a machine; row n is bit n of a set.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.planning.kernel.journal import Journal
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.matching.bitmaps import first_of
from chalicelib.planning.matching.fitting import blocks_needed, measured
from chalicelib.planning.matching.instance_selectors import selects
from chalicelib.planning.matching.isolation import unisolated, without_docker
from chalicelib.planning.matching.machine_index import MachineIndex, Query
from chalicelib.planning.matching.requirements import FleetConditions, JobRequirements
from chalicelib.planning.volumes.mounts import has_folders

READY = (InstanceStatus.idle, InstanceStatus.busy)
COMING = (InstanceStatus.pending, InstanceStatus.provisioning)


class PoolShare(NamedTuple):
    """Machines that fit equally well, with the blocks that the job needs of one and their price."""

    price: float
    blocks: int
    rows: int


@dataclass
class _EqualMachines:
    """Equal machines split into blocks; `one` represents them all."""

    one: Instance
    rows: int = 0


class Pool:
    def __init__(self, view: FleetView) -> None:
        self.view, self.conditions = view, FleetConditions.of(view)
        self.machines: list[Instance] = []
        self.free: dict[int, int] = {}  # number of free blocks → machines; changed through a journal
        self.ready = self.coming = 0  # those that may take jobs
        self._whole = self._bought = self._plain = self._shared = self._unreported = 0
        self.ports: dict[int, int] = {}  # port → machines where a job listens on it; changed through a journal
        self._prices: dict[float, int] = {}  # price → machines that aren't split
        self._cut: dict[object, _EqualMachines] = {}
        for instance in view.instances:
            if instance.status in READY or instance.status in COMING:
                row, free = self._add(instance), instance.free_blocks
                if instance.claims and without_docker(instance):
                    for port in {port for claim in instance.claims for port in claim.ports}:
                        self.ports[port] = self.ports.get(port, 0) | row
                self.free[free] = self.free.get(free, 0) | row
        self.staying = len(self.machines)
        self._there = (1 << self.staying) - 1

    def _add(self, instance: Instance) -> int:
        row = 1 << len(self.machines)
        self.machines.append(instance)
        if instance.offer.is_container:  # it has its only job, or had it
            return row
        if unreported(instance):
            self._unreported |= row
            return row
        if instance.total_blocks == 1:
            self._whole |= row
            self._prices[instance.offer.price] = self._prices.get(instance.offer.price, 0) | row
        else:
            self._cut.setdefault(_kind(instance), _EqualMachines(instance)).rows |= row
        if instance.bought:
            self._bought |= row
        if without_docker(instance):
            self._plain |= row
        if unisolated(instance):
            self._shared |= row
        if not instance.unreachable and instance.health != "failure":
            if instance.status in READY:
                self.ready |= row
            else:
                self.coming |= row
        return row

    def join(self, instance: Instance, journal: Journal) -> int:
        """Add a machine that was just bought and has blocks left; returns its row as a set. If the purchase is undone,
        the row stays but is never free again."""
        row = self._add(instance)
        journal.put(self.free, instance.free_blocks, self.free.get(instance.free_blocks, 0) | row)
        return row

    def resize(self, row: int, before: int, after: int, journal: Journal) -> None:
        """This machine had `before` free blocks and now has `after`."""
        journal.put(self.free, before, self.free[before] & ~row)
        journal.put(self.free, after, self.free.get(after, 0) | row)

    def listen(self, row: int, ports: Iterable[int], journal: Journal) -> None:
        """Record that a job on this machine listens on these ports. In a container it doesn't share them."""
        if row & self._plain:
            for port in ports:
                journal.put(self.ports, port, self.ports.get(port, 0) | row)

    # --- what fits ---------------------------------------------------------------------------------------------------

    def shares(self, requirements: JobRequirements, query: Query) -> list[PoolShare]:
        """The machines that fit, free or not."""
        found = []
        chosen = self.chosen(requirements)
        if whole := self._whole and chosen and self._fitting(requirements, query) & chosen:
            for price, rows in self._prices.items():
                if rows & whole and (query.max_price is None or price <= query.max_price):
                    found.append(PoolShare(price, 1, rows & whole))
        anywhere = requirements._replace(instances=()) if requirements.instances else requirements
        for alike in self._cut.values():
            if blocks := blocks_for(anywhere, query, alike.one, self.view.fleet.name):
                price = alike.one.offer.price * blocks / alike.one.total_blocks
                found.append(PoolShare(price, blocks, alike.rows & chosen))
        return found

    def undecided(self, requirements: JobRequirements, query: Query) -> int:
        """Starting machines that fit if they get the zone of the job's volumes; their zone isn't known yet."""
        sites = query.sites
        if not sites:
            return 0
        may = {
            1 << row
            for row, one in enumerate(self.machines)
            if self.coming >> row & 1 and not one.zone and any(site.sells(one.offer, query.nodes) for site in sites)
        }
        fitting = self.shares(requirements, query._replace(sites=None)) if may else ()
        return sum(row for row in may if any(share.rows & row for share in fitting))

    def zone_of(self, undecided: int) -> str:
        """What a job waits for if only such machines may fit."""
        instance = self.machines[first_of(undecided)]
        return f"for the zone of {instance.name} in fleet `{self.view.fleet.name}`, which is still being created"

    def chosen(self, requirements: JobRequirements) -> int:
        """The machines that the run names; all if it names none."""
        if not requirements.instances:
            return -1
        fleet = self.view.fleet.name
        return sum(1 << row for row, one in enumerate(self.machines) if selects(requirements.instances, one, fleet))

    def _fitting(self, requirements: JobRequirements, query: Query) -> int:
        found = self._index.offered(query) & self._whole
        if requirements.container or requirements.barred:
            found &= ~self._plain
        if requirements.isolated:
            found &= ~self._shared
        if query.sites is not None:
            found &= sum(1 << row for row, one in enumerate(self.machines) if at_sites(query, one))
        provisioned, hosts = found & self._bought, found & ~self._bought
        provisioned = provisioned and provisioned & self._index.having(query.resources)
        return provisioned | (hosts and hosts & self._index.having(query.resources, provisioned=False))

    @cached_property
    def _index(self) -> MachineIndex:
        offers = [instance.offer for instance in self.machines]
        return MachineIndex(offers, [measured(offer.instance.resources) for offer in offers], range(len(offers)))

    @cached_property
    def different(self) -> list[Instance]:
        """One machine of each kind, except those that haven't reported yet."""
        known = [one for one in reversed(self.machines) if not (unreported(one) or one.offer.is_container)]
        return list({_kind(one): one for one in known}.values())[::-1]

    # --- what has a place --------------------------------------------------------------------------------------------

    def not_full(self, rows: int) -> int:
        return rows & ~self.free.get(0, 0)

    def listening(self, ports: Iterable[int]) -> int:
        """The machines where one of these ports is taken."""
        found = 0
        for port in ports:
            found |= self.ports.get(port, 0)
        return found

    def best(self, shares: Sequence[PoolShare], among: int) -> tuple[float, int, int, int] | None:
        """Price, free blocks, row number and blocks of the best place: the cheapest, and of those the one that leaves
        the fewest blocks free."""
        best: tuple[float, int, int, int] | None = None
        for price, blocks, fitting in shares:
            rows = fitting & among
            if rows and (best is None or price <= best[0]):
                for free in sorted(self.free):
                    if free >= blocks and (hit := rows & self.free[free]):
                        found = price, free, first_of(hit), blocks
                        best = found if best is None else min(best, found)
                        break
        return best

    def awaited(self, shares: Sequence[PoolShare], chosen: int = -1) -> str:
        """What a job waits for: a machine that fits but isn't free; empty if none fits. `chosen`: see the method."""
        rows = self._unreported & chosen
        for share in shares:
            rows |= share.rows & self._there
        if not rows:
            return ""
        # A free place that can't be used yet explains more than an occupied one.
        instance, where = self.machines[first_of(self.not_full(rows) or rows)], f"in fleet `{self.view.fleet.name}`"
        if unreported(instance):
            return f"for {instance.name} {where} to report its resources"
        if instance.unreachable:
            return f"for {instance.name} {where} to report again"
        if instance.health == "failure":
            why = f" ({instance.health_message})" if instance.health_message else ""
            return f"for {instance.name} {where} to be healthy again{why}"
        return f"for free capacity {where}"


def unreported(instance: Instance) -> bool:
    """A user's own host that hasn't reported yet: its resources are unknown."""
    return not instance.bought and instance.status in COMING and instance.started_at is None


def blocks_for(requirements: JobRequirements, query: Query, instance: Instance, fleet: str) -> int:
    """How many of the instance's blocks the job needs; 0: it doesn't fit. `fleet`: the name by which the project knows
    its fleet."""
    offer = instance.offer
    if (
        offer.is_container
        or not selects(requirements.instances, instance, fleet)
        or ((requirements.container or requirements.barred) and without_docker(instance))
        or (requirements.isolated and unisolated(instance))
        or not query.takes_place(offer.backend, offer.region, offer.availability_zones)
        or not query.takes_kind(offer)
        or not at_sites(query, instance)
    ):
        return 0
    has = offer.instance.resources
    blocks = blocks_needed(query.resources, has, instance.total_blocks, provisioned=instance.bought)
    dear = query.max_price is not None and offer.price * blocks / instance.total_blocks > query.max_price
    return 0 if dear else blocks


def at_sites(query: Query, instance: Instance) -> bool:
    """Is the instance at a site of the job's volumes?"""
    return query.sites is None or any(site.has(instance, query.nodes) for site in query.sites)


def _kind(instance: Instance) -> object:
    """Machines of equal kind fit the same jobs, in the same way, at the same price."""
    offer = instance.offer
    place = offer.backend, offer.region, offer.availability_zones, instance.zone, offer.price
    has, bundle = offer.instance.resources, offer.bundle
    what = offer.instance.name, has.spot, has_folders(offer), measured(has), bundle
    return place, what, instance.total_blocks, instance.bought, without_docker(instance), unisolated(instance)
