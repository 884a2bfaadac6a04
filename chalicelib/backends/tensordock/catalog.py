"""What TensorDock sells: for each location and GPU, machines with one or several, in sizes that are chosen here.

Each part has a price of its own there. What a location has, and its prices, are looked up once more before a creation.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from chalicelib.backends.kit.cache import LookupCache
from chalicelib.backends.kit.clock import Now
from chalicelib.backends.kit.gpus import gpu
from chalicelib.backends.kit.offers import GIB, machine
from chalicelib.backends.tensordock.client import Body, TensorDockClient
from chalicelib.domain.instants import MINUTE
from chalicelib.domain.offers import Availability, DiskTerms, Offer, OfferTerms
from chalicelib.errors import InsufficientCapacity

log = logging.getLogger(__name__)

LOCATIONS_LAST = MINUTE
DISK, STEP = 100, 50  # GB: the smallest, and from one size to the next
MOST_GPUS = 8
CPUS, MEMORY = 4, 16  # a GPU, and in GB, of the smallest size
SIZES = (1, 2, 4)  # as multiples of that
MEMORIES = {*range(16, 257, 16), 512}  # GB
DEARER = 1.1  # as a multiple of the offer's price: from there on it is another offer
LOCATION = "location"  # in an offer's own data: its id


class Size(NamedTuple):
    gpus: int
    cpus: int
    memory: int  # GB


class TensorDockCatalog:
    def __init__(self, client: TensorDockClient, now: Now, regions: Sequence[str] | None) -> None:
        self._client = client
        self._only = None if regions is None else {each.lower() for each in regions}
        self._cached = LookupCache[Sequence[Body]](now, LOCATIONS_LAST)

    def forget(self) -> None:
        """What there was: a creation has just shown that it has gone."""
        self._cached.clear()

    def regions(self) -> set[str]:
        return {region_of(each) for each in self._locations()}

    def offers(self) -> Sequence[Offer]:
        self.forget()
        found, unpriced = [], set[str]()
        for place in self._locations():
            if self._only is None or region_of(place) in self._only:
                found += [offer for card in place["gpus"] for offer in _offers(place, card, unpriced)]
        if unpriced:
            log.warning("TensorDock says no price of %s, so they aren't offered", ", ".join(sorted(unpriced)))
        return found

    def check_room(self, offer: Offer, disk_gb: int) -> None:
        """Raises InsufficientCapacity if the location has no longer what was offered, or not at that price."""
        name, where = offer.instance.name, offer.region
        has, location = offer.instance.resources, offer.backend_data[LOCATION]
        places = (each for each in self._locations() if each["id"] == location)
        card = next((each for place in places for each in place["gpus"] if each["v0Name"] == name), None)
        size = Size(len(has.gpus), has.cpus, has.memory_mib // GIB)
        if card is None or not _fits(card, size) or disk_gb > _most_disk(card):
            raise InsufficientCapacity(f"TensorDock has no {name} of this size left in {where}.")
        price = _price(card, size, has.disk.size_mib // GIB)
        if price is None or price > offer.price * DEARER:
            raise InsufficientCapacity(
                f"TensorDock's {name} in {where} was offered for ${offer.price:.2f} an hour, and costs more now."
            )

    def _locations(self) -> Sequence[Body]:
        return self._cached.get("", self._client.locations)


def region_of(place: Body) -> str:
    """A country and a city: TensorDock has no shorter name for a location than its id."""
    words = f"{place.get('country') or ''} {place.get('city') or ''}".lower()
    return re.sub(r"[^a-z0-9]+", "-", words).strip("-") or str(place["id"]).lower()


def _offers(place: Body, card: Body, unpriced: set[str]) -> Iterator[Offer]:
    """No port of a machine is opened, so only where that is possible: a dedicated address would open them all."""
    name = str(card["v0Name"])
    found = gpu(name)
    if found is None or not card.get("network_features", {}).get("port_forwarding_available", True):
        return
    for size in _sizes(card):
        price = _price(card, size)
        if price is None:
            unpriced.add(name)
            continue
        yield machine(
            "tensordock",
            name,
            region_of(place),
            price,
            cpus=size.cpus,
            memory_mib=size.memory * GIB,
            gpus=(found,) * size.gpus,
            disk_gib=DISK,
            availability=Availability.available,
            terms=OfferTerms(
                order=f"{size.gpus}-{size.cpus}-{size.memory}-{str(place['id'])[:8]}",
                disk=DiskTerms(most_gib=_most_disk(card), gib_hour=card["pricing"]["per_gb_storage_hr"]),
                **{LOCATION: place["id"]},
            ),
        )


def _sizes(card: Body) -> Iterator[Size]:
    for count in range(1, MOST_GPUS + 1):
        for multiple in SIZES:
            size = Size(count, CPUS * multiple * count, MEMORY * multiple * count)
            if size.memory in MEMORIES and _fits(card, size):
                yield size


def _fits(card: Body, size: Size) -> bool:
    most = card.get("resources") or {}
    room = (card["max_count"], most.get("max_vcpus", 0), most.get("max_ram_gb", 0))
    return all(wanted <= there for wanted, there in zip(size, room, strict=True)) and _most_disk(card) >= DISK


def _most_disk(card: Body) -> int:
    return int((card.get("resources") or {}).get("max_storage_gb") or 0) // STEP * STEP


def _price(card: Body, size: Size, disk: int = DISK) -> float | None:
    """An hour; None if a part of it is unknown."""
    parts = card.get("pricing") or {}
    prices = [card.get("price_per_hr"), *(parts.get(f"per_{name}_hr") for name in ("vcpu", "gb_ram", "gb_storage"))]
    known = [float(each) for each in prices if isinstance(each, int | float) and each >= 0]
    if len(known) < len(prices) or not known[0]:
        return None
    return round(sum(each * amount for each, amount in zip(known, (*size, disk), strict=True)), 6)
