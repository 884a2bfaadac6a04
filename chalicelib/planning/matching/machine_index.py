"""An index of machines by what they offer: which of them meet the requirements.

`fitting` checks one machine; this checks all of them at once. Every requirement is a column of a bitmap index, and the
answer is the set of rows that meet them all. `fitting.misfits` explains what is wrong with any other machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from chalicelib.domain.gpu_names import squeeze
from chalicelib.domain.offers import Offer
from chalicelib.domain.specs.resources import GPUSpec, ResourcesSpec
from chalicelib.planning.matching.bitmaps import Column
from chalicelib.planning.matching.fitting import UNKNOWN, Blocks, Measures, arch_wanted, disk_wanted
from chalicelib.planning.matching.offer_options import OfferOptions
from chalicelib.planning.volumes.mounts import has_folders
from chalicelib.planning.volumes.sites import Site


def lowered(names: Iterable[str] | None) -> frozenset[str] | None:
    return None if names is None else frozenset([name.lower() for name in names])


class Query(NamedTuple):
    """The requirements on an offer or an instance. Names are lower case; None means any."""

    resources: ResourcesSpec
    spot: bool | None = False  # None: either market
    max_price: float | None = None
    backends: frozenset[str] | None = None
    regions: frozenset[str] | None = None
    zones: frozenset[str] | None = None
    instance_types: frozenset[str] | None = None
    blocks: Blocks = 1  # the number of shares to split the machine into
    machine: ResourcesSpec | None = None  # required of the whole machine, if `resources` are for a share
    host: bool = False  # whether it must have folders of its own
    sites: tuple[Site, ...] | None = None  # the possible sites of its volumes
    nodes: int = 0  # the size of its cluster; 0: it isn't in one
    bundles: frozenset[int] | None = frozenset()  # sizes of bundles that will do, beside single machines; None: any
    reservation: str | None = None  # its reserved capacity; None: an offer may have none, an instance any
    container: frozenset[str] = frozenset()  # what a container must grant; a machine grants anything
    options: OfferOptions = ()  # how markets are to choose

    @property
    def places(self) -> tuple[Site, ...] | None:
        """The sites that are in its zones."""
        if self.sites is None or self.zones is None:
            return self.sites
        return tuple(site for site in self.sites if not site.zone or site.zone in self.zones)

    @property
    def disk_gib(self) -> float:
        """The size of the disk to create: the smallest that is allowed."""
        minimums = (spec.disk.size.min for spec in (self.resources, self.machine) if spec is not None and spec.disk)
        return max((size for size in minimums if size is not None), default=0.0)

    def takes_place(self, backend: str, region: str, zones: tuple[str, ...] | None) -> bool:
        if self.backends is not None and backend.lower() not in self.backends:
            return False
        if self.regions is not None and region.lower() not in self.regions:
            return False
        return self.zones is None or zones is None or any(zone.lower() in self.zones for zone in zones)

    def takes_bundle(self, size: int) -> bool:
        return size == 1 or self.bundles is None or size in self.bundles

    def takes_kind(self, offer: Offer) -> bool:
        if self.instance_types is not None and offer.instance.name.lower() not in self.instance_types:
            return False
        if self.host and not has_folders(offer):
            return False
        if self.reservation is not None and offer.reservation != self.reservation:
            return False
        if not self.takes_bundle(offer.bundle):
            return False
        if offer.grants is not None and not self.container <= offer.grants:
            return False
        return self.spot is None or offer.instance.resources.spot == self.spot


def _zones(offer: Offer) -> tuple[str, ...]:
    return _ANYWHERE if offer.availability_zones is None else tuple(zone.lower() for zone in offer.availability_zones)


def _grants(offer: Offer) -> tuple[str, ...]:
    return _ANYTHING if offer.grants is None else tuple(sorted(offer.grants))


_ANYWHERE = ("",)
_ANYTHING = ("*",)


def _offered(value: Callable[[Offer], Any]) -> cached_property[Column]:
    return cached_property(lambda index: Column([value(offer) for offer in index.offers], range(len(index.offers))))


def _measured(what: str) -> cached_property[Column]:
    return cached_property(lambda index: Column([getattr(has, what) for has in index.measures], index.kinds))


class MachineIndex:
    """A table with a machine per row. `kinds[row]` is its index in `measures`, which can be much shorter. Columns are
    built on first use."""

    def __init__(self, offers: Sequence[Offer], measures: Sequence[Measures], kinds: Sequence[int]) -> None:
        self.offers, self.measures, self.kinds = offers, measures, kinds
        self.all = (1 << len(offers)) - 1

    backend = _offered(lambda offer: offer.backend.lower())
    region = _offered(lambda offer: offer.region.lower())
    zones = _offered(_zones)
    type = _offered(lambda offer: offer.instance.name.lower())
    spot = _offered(lambda offer: offer.instance.resources.spot)
    host = _offered(has_folders)
    reservation = _offered(lambda offer: offer.reservation)
    nodes = _offered(lambda offer: offer.most_nodes)
    bundle = _offered(lambda offer: offer.bundle)
    grants = _offered(_grants)
    arch, cpus, memory, disk = map(_measured, ("arch", "cpus", "memory", "disk"))
    gpus, gpu, vendor, gpu_memory = map(_measured, ("gpus", "plain_gpu", "vendor", "gpu_memory"))
    total_memory, capability = map(_measured, ("total_memory", "capability"))

    def offered(self, query: Query) -> int:
        """The rows of the right kind in the right place, regardless of resources."""
        found = self.all
        if query.backends is not None:
            found &= self.backend.any_of(query.backends)
        if query.regions is not None:
            found &= self.region.any_of(query.regions)
        if query.zones is not None:
            accepted = query.zones.union(_ANYWHERE)
            found &= self.zones.any_of(names for names in self.zones.values if not accepted.isdisjoint(names))
        if query.instance_types is not None:
            found &= self.type.any_of(query.instance_types)
        if query.host:
            found &= self.host.equal(True)
        if query.reservation is not None:
            found &= self.reservation.equal(query.reservation)
        if query.nodes:
            found &= self.nodes.any_of(most for most in self.nodes.values if most >= query.nodes)
        if query.bundles is not None:
            found &= self.bundle.any_of(size for size in self.bundle.values if query.takes_bundle(size))
        if query.container:
            granted = (each for each in self.grants.values if each == _ANYTHING or query.container <= {*each})
            found &= self.grants.any_of(granted)
        if query.places is not None:
            found &= self._sold_at(query.places, query.nodes)
        return found if query.spot is None else found & self.spot.equal(query.spot)

    def _sold_at(self, sites: Sequence[Site], nodes: int) -> int:
        return sum(1 << row for row, offer in enumerate(self.offers) if any(site.sells(offer, nodes) for site in sites))

    def having(self, spec: ResourcesSpec, *, whole: bool = True, provisioned: bool = True) -> int:
        """The rows that meet the spec. If not `whole`, a share of the machine may meet it, so upper bounds don't apply.
        `provisioned`: the machines are created to order."""
        cpus, memory = spec.cpu.count, spec.memory
        found = self.cpus.between(cpus.min, cpus.max if whole else None)
        found &= self.memory.between(memory.min, memory.max if whole else None)
        if arch := arch_wanted(spec, provisioned):
            found &= self.arch.any_of((arch, UNKNOWN))
        if found and (disk := disk_wanted(spec, provisioned)):
            found &= self.disk.between(disk.size.min, disk.size.max)
        return found & self._with(spec.gpu, whole) if found and spec.gpu is not None else found

    def _with(self, spec: GPUSpec, whole: bool) -> int:
        wanted = self.all
        if spec.vendor:
            wanted &= self.vendor.equal(spec.vendor)
        if spec.name:
            wanted &= self.gpu.any_of(map(squeeze, spec.name))
        if spec.memory:
            wanted &= self.gpu_memory.between(spec.memory.min, spec.memory.max)
        if spec.total_memory:
            wanted &= self.total_memory.between(spec.total_memory.min, spec.total_memory.max if whole else None)
        if spec.compute_capability:
            wanted &= self.capability.between(spec.compute_capability)
        if wanted != self.all:
            wanted |= self.gpus.equal(0)  # a machine without GPUs has nothing else to meet
        return wanted & self.gpus.between(spec.count.min, spec.count.max if whole else None)
