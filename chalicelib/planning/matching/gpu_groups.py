"""GPUs on offer, grouped by model and, if requested, by backend, region and count.

Catalogs have a hundred thousand offers and some thousand kinds of them. So the offers of a group are never made: the
rows of the book that match are reduced to the cheapest and the dearest of each kind, and only these kinds are grouped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Literal, NamedTuple

from chalicelib.domain.offers import Gpu, Offer
from chalicelib.planning.matching.bitmaps import selectors


class GpuKind(NamedTuple):
    """What offers with GPUs can have in common: all of this but the price."""

    model: tuple[str, int, str | None]  # name, memory and vendor
    gpu: Gpu
    cards: int  # of an instance
    backend: str
    region: str
    spot: bool
    availability: str

    @classmethod
    def of(cls, offer: Offer) -> GpuKind:
        has = offer.instance.resources
        gpu = has.gpus[0]
        model = (gpu.name, gpu.memory_mib, gpu.vendor)
        return cls(model, gpu, len(has.gpus), offer.backend, offer.region, has.spot, offer.availability.value)


KindPrices = tuple[GpuKind, float, float]  # with its least and its greatest price, in dollars an hour


@dataclass
class GpuGroup:
    """One kind of GPU. Prices are dollars an hour: `prices` for one GPU, `offer_prices` for the instance."""

    gpu: Gpu
    backend: str | None = None
    region: str | None = None
    backends: dict[str, None] = field(default_factory=dict)
    regions: dict[str, None] = field(default_factory=dict)
    availability: dict[str, None] = field(default_factory=dict)
    markets: dict[Literal["spot", "on-demand"], None] = field(default_factory=dict)
    counts: list[int] = field(default_factory=list)
    prices: list[float] = field(default_factory=list)
    offer_prices: list[float] = field(default_factory=list)


def grouped(found: Iterable[KindPrices], by: frozenset[str]) -> list[GpuGroup]:
    """`by`: what parts groups besides the model: backend, region, count."""
    groups: dict[tuple[object, ...], GpuGroup] = {}
    by_backend, by_region, by_count = (each in by for each in ("backend", "region", "count"))
    for kind, low, high in found:
        model, gpu, count, backend, region, spot, availability = kind
        one, place = backend if by_backend else None, region if by_region else None
        key = (model, one, place, count if by_count else None)
        group = groups.get(key)
        if group is None:
            group = groups[key] = GpuGroup(gpu, one, place)
        group.backends[backend] = None
        group.regions[region] = None
        group.availability[availability] = None
        group.markets["spot" if spot else "on-demand"] = None
        group.counts.append(count)
        group.prices += (low / count, high / count)
        group.offer_prices += (low, high)
    return list(groups.values())


def one_by_one(offers: Iterable[Offer]) -> Iterator[KindPrices]:
    return ((GpuKind.of(offer), offer.price, offer.price) for offer in offers if offer.instance.resources.gpus)


class KindRows:
    """The kinds of a table's rows, which are sorted by price among those that are as available."""

    def __init__(self, offers: Sequence[Offer], prices: Sequence[float]) -> None:
        known: dict[tuple[object, ...], int] = {}
        self._prices = prices
        self._kinds: list[GpuKind] = []
        self._of: list[int] = []  # of each row, the number of its kind
        for offer in offers:
            has = offer.instance.resources
            if not has.gpus:
                self._of.append(_NONE)
                continue
            one = has.gpus[0]
            same = (one.name, one.memory_mib, one.vendor, len(has.gpus), offer.backend, offer.region, has.spot)
            number = known.setdefault((*same, offer.availability.value), len(known))
            if number == len(self._kinds):
                self._kinds.append(GpuKind.of(offer))
            self._of.append(number)

    def among(self, found: int) -> Iterator[KindPrices]:
        """The kinds among these rows, in the order of the first row of each."""
        chosen = selectors(found)
        kinds, prices = self._of[: len(chosen)], self._prices[: len(chosen)]
        high = dict(zip(compress(kinds, chosen), compress(prices, chosen), strict=True))  # its last price
        upwards = chosen[::-1]
        low = dict(zip(compress(kinds[::-1], upwards), compress(prices[::-1], upwards), strict=True))
        high.pop(_NONE, None)
        return zip(map(self._kinds.__getitem__, high), map(low.__getitem__, high), high.values(), strict=True)


_NONE = -1  # it has no GPU
