"""The offer book: everything that could be bought, ready to be asked.

It is built once a catalogue refresh and asked by every plan and every queue pass, so the work is done at building
time: offers are ranked (usable first, then by price, ties in the backend's own order) and each points to its kind
(type and resources) and its place (backend, region, zones), of which there are far fewer than offers. A question then
decides each kind and each place once, and the answer is a walk over two arrays of small integers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from chalicelib.domain.instants import Micros
from chalicelib.domain.offers import Availability, Offer, Resources
from chalicelib.domain.specs.resources import ResourcesSpec
from chalicelib.planning.fitting import Blocks, blocks_needed, misfits, share, total_blocks

_MEMO = 64  # questions about kinds that are remembered; a queue asks few different ones
_HITS = 8  # whole answers that are: each may be as long as the book


@dataclass(frozen=True)
class Query:
    """What is asked of an offer or an instance. Names are lower case; None means any."""

    resources: ResourcesSpec
    spot: bool | None = False  # None: either market
    max_price: float | None = None
    backends: frozenset[str] | None = None
    regions: frozenset[str] | None = None
    zones: frozenset[str] | None = None
    instance_types: frozenset[str] | None = None
    blocks: Blocks = 1  # into how many shares the machine is to be cut
    machine: ResourcesSpec | None = None  # what the machine must be as a whole, where `resources` are of a share

    def takes_place(self, backend: str, region: str, zones: tuple[str, ...] | None) -> bool:
        if self.backends is not None and backend.lower() not in self.backends:
            return False
        if self.regions is not None and region.lower() not in self.regions:
            return False
        return self.zones is None or zones is None or any(zone.lower() in self.zones for zone in zones)

    def takes_kind(self, name: str, has: Resources) -> bool:
        if self.instance_types is not None and name.lower() not in self.instance_types:
            return False
        return self.spot is None or has.spot == self.spot


def lowered(names: Iterable[str] | None) -> frozenset[str] | None:
    return None if names is None else frozenset(name.lower() for name in names)


def slice_of(offer: Offer, blocks: int, total: int, availability: Availability | None = None) -> Offer:
    """The offer of a share of a machine: its resources and its part of the price."""
    if blocks == total == offer.blocks == offer.total_blocks and availability in (None, offer.availability):
        return offer
    instance = offer.instance
    if blocks != total:
        instance = instance.with_(resources=share(instance.resources, blocks, total))
    return offer.with_(
        instance=instance,
        price=offer.price if blocks == total else round(offer.price * blocks / total, 6),
        availability=availability or offer.availability,
        blocks=blocks,
        total_blocks=total,
    )


class OfferBook:
    """Immutable; `taken_at` says how old the offers are."""

    def __init__(self, offers: Iterable[Offer] = (), taken_at: Micros = 0) -> None:
        self.taken_at = taken_at
        self._ranked = tuple(sorted(offers, key=lambda offer: (not offer.availability.usable, offer.price)))
        self._usable = sum(offer.availability.usable for offer in self._ranked)
        self._prices = [offer.price for offer in self._ranked]
        kinds: dict[object, int] = {}
        places: dict[object, int] = {}
        self._kind = [kinds.setdefault(_kind_key(offer), len(kinds)) for offer in self._ranked]
        self._place = [
            places.setdefault((offer.backend, offer.region, offer.availability_zones), len(places))
            for offer in self._ranked
        ]
        first = {kind: offer for kind, offer in zip(reversed(self._kind), reversed(self._ranked), strict=True)}
        self._kinds = [(first[i].instance.name, first[i].instance.resources) for i in range(len(kinds))]
        self._places: list[tuple[str, str, tuple[str, ...] | None]] = list(places)  # type: ignore[arg-type]
        self._memo: dict[Query, list[int]] = {}
        self._hits_memo: dict[Query, tuple[list[int], list[int]]] = {}

    def __len__(self) -> int:
        return len(self._ranked)

    def match(self, query: Query, limit: int = 50) -> tuple[tuple[Offer, ...], int]:
        """The best `limit` offers and how many there are in all."""
        return self.match_any((query,), limit)

    def match_any(self, queries: Sequence[Query], limit: int = 50) -> tuple[tuple[Offer, ...], int]:
        """The same for offers that any of several queries takes; each offer counts once."""
        if len(queries) == 1:
            needed, hits = self._hits(queries[0])
            blocks = queries[0].blocks
            return tuple(self._cut(i, needed[self._kind[i]], blocks) for i in hits[:limit]), len(hits)
        found: dict[int, tuple[int, Blocks]] = {}
        for query in queries:
            needed, hits = self._hits(query)
            for i in hits:
                found.setdefault(i, (needed[self._kind[i]], query.blocks))
        ranked = sorted(found)
        return tuple(self._cut(i, *found[i]) for i in ranked[:limit]), len(ranked)

    def machines(self, query: Query, limit: int) -> list[tuple[Offer, int, int]]:
        """The best machines to buy: each whole, with the blocks needed of it and the blocks it is cut into."""
        needed, hits = self._hits(query)
        found = [(self._ranked[i], needed[self._kind[i]]) for i in hits[:limit]]
        return [(offer, n, total_blocks(query.blocks, offer.instance.resources) or 1) for offer, n in found]

    def dearest(self, queries: Sequence[Query]) -> float | None:
        """The highest price among the offers that any of these queries takes, of the share that it needs."""
        tops: list[float] = []
        for query in queries:
            needed, hits = self._hits(query)
            if query.blocks == 1:
                tops += [self._prices[i] for i in hits]
            else:
                tops += [self._cut(i, needed[self._kind[i]], query.blocks).price for i in hits]
        return max(tops, default=None)

    def _cut(self, index: int, needed: int, blocks: Blocks) -> Offer:
        offer = self._ranked[index]
        if blocks == 1:
            return offer
        total = total_blocks(blocks, offer.instance.resources) or 1
        return offer if total == 1 else slice_of(offer, needed, total)

    def _hits(self, query: Query) -> tuple[list[int], list[int]]:
        """Blocks needed by kind, and the ranks of the offers that fit."""
        known = self._hits_memo.get(query)
        if known is not None:
            return known
        needed = self._blocks_by_kind(replace(query, max_price=None, backends=None, regions=None, zones=None))
        allowed = [query.takes_place(*place) for place in self._places]
        hits: list[int] = []
        for start, end in ((0, self._usable), (self._usable, len(self._ranked))):
            stop = end if query.max_price is None else bisect_right(self._prices, query.max_price, start, end)
            pairs = zip(range(start, stop), self._kind[start:stop], self._place[start:stop], strict=True)
            hits += [i for i, kind, place in pairs if needed[kind] and allowed[place]]
        if len(self._hits_memo) >= _HITS:
            self._hits_memo.clear()
        self._hits_memo[query] = (needed, hits)
        return needed, hits

    def _blocks_by_kind(self, query: Query) -> list[int]:
        known = self._memo.get(query)
        if known is None:
            if len(self._memo) >= _MEMO:
                self._memo.clear()
            known = self._memo[query] = [self._needed(query, name, has) for name, has in self._kinds]
        return known

    @staticmethod
    def _needed(query: Query, name: str, has: Resources) -> int:
        if not query.takes_kind(name, has):
            return 0
        if query.machine is not None and next(misfits(query.machine, has), None) is not None:
            return 0
        total = total_blocks(query.blocks, has)
        return blocks_needed(query.resources, has, total) if total else 0


def _kind_key(offer: Offer) -> tuple[object, ...]:
    has = offer.instance.resources
    gpus = tuple([(gpu.name, gpu.memory_mib, gpu.vendor) for gpu in has.gpus])
    return (offer.instance.name, has.cpus, has.memory_mib, gpus, has.spot, has.disk.size_mib, has.cpu_arch)
