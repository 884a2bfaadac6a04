"""Crusoe's offers: the types in each location, with what is left of them, the project's quotas, and the operator's
prices.

A type without a known price isn't offered, and the log says so. Machines with disks of their own have these and no
others. The others have the system's disk, and are offered once more with a data disk that is as large as one wants, if
the price of disks is known. GB200 isn't offered: its machines need an image for ARM, and a domain of NVLink.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from chalicelib.backends.crusoe.client import Body, CrusoeClient
from chalicelib.backends.crusoe.disks import PERSISTENT
from chalicelib.backends.crusoe.launch import LOCAL, OS_DISK, has_fabric
from chalicelib.backends.crusoe.prices import CrusoePrices
from chalicelib.backends.crusoe.quotas import is_used_up, quotas
from chalicelib.backends.kit.gpus import gpu
from chalicelib.domain.gpu_names import WITH_ARM, squeeze
from chalicelib.domain.offers import (
    Availability,
    Disk,
    DiskTerms,
    InstanceType,
    Interconnect,
    Offer,
    OfferTerms,
    Resources,
)

log = logging.getLogger(__name__)

TYPES = ("compute", "vms", "types")
GIB = 1024
GB = 1000**3 / 1024**2  # MiB
HOURS = 730  # of a month
MOST_DISK = 5000  # GiB of a data disk
WITH_DISK = "disk"  # the order of an offer with a data disk
# Crusoe's images describe a machine's topology to NCCL in a file that /etc/nccl.conf names.
INFINIBAND = Interconnect(name="InfiniBand", folders=("/etc/nccl.conf", "/etc/crusoe/nccl_topo"))


class CrusoeCatalog:
    def __init__(self, client: CrusoeClient, prices: CrusoePrices, regions: Sequence[str] | None) -> None:
        self._client, self._prices, self._regions = client, prices, regions
        self._unpriced: set[str] = set()

    def offers(self) -> Sequence[Offer]:
        """All offers, or an error: an incomplete catalog would look like a complete one."""
        self._prices.check()
        types = {str(body["product_name"]): body for body in self._client.call("GET", *TYPES)["items"]}
        known, left, found = quotas(self._client), self._left(), list[Offer]()
        for (name, region), quantity in sorted(left.items()):
            if name in types and (self._regions is None or region in self._regions):
                state = Availability.available if quantity else Availability.not_available
                availability = Availability.no_quota if is_used_up(known, name) else state
                found += (offer.with_(availability=availability) for offer in self._offers(types[name], region))
        return found

    def _left(self) -> Mapping[tuple[str, str], int]:
        """How many machines of each type each location has room for. It isn't said whether the project may have them. A
        pair may be listed more than once."""
        left: dict[tuple[str, str], int] = {}
        for each in self._client.everybodys("capacities")["items"]:
            place = str(each.get("type") or ""), str(each["location"])
            left[place] = max(left.get(place, 0), int(each["quantity"]))
        return left

    def _offers(self, body: Body, region: str) -> Iterator[Offer]:
        has = _resources(body)
        if has is None:
            return
        name, local = str(body["product_name"]), int(body["disk_gb"] or 0)
        price = self._prices.of(name, region)
        if price is None:
            if name not in self._unpriced:
                log.warning("crusoe can't offer %s: its price isn't known", name)
                self._unpriced.add(name)
            return
        private: dict[str, Any] = {LOCAL: True} if local else {}
        network = INFINIBAND if has_fabric(name) else None
        terms = OfferTerms(prices=self._prices.origin, interconnect=network, **private)
        kind = InstanceType(name=name, resources=has)
        offer = Offer(backend="crusoe", instance=kind, region=region, price=round(price, 6), terms=terms)
        yield offer
        month = None if local else self._prices.of(PERSISTENT, region)
        if month is not None:
            hour, least = month / HOURS, OS_DISK + 1
            larger = kind.with_(resources=has.with_(disk=Disk(size_mib=least * GIB)))
            disk = DiskTerms(most_gib=MOST_DISK, gib_hour=round(hour, 9))
            yield offer.with_(
                instance=larger,
                price=round(price + least * hour, 6),
                terms=terms.with_(disk=disk, order=WITH_DISK),
            )


def _resources(body: Body) -> Resources | None:
    """None: it has GPUs that can't be used."""
    card = gpu(str(body["gpu_type"])) if body["num_gpu"] else None
    if body["num_gpu"] and (card is None or squeeze(card.name) in WITH_ARM):
        return None
    local = int(body["disk_gb"] or 0)
    return Resources(
        cpus=int(body["cpu_cores"]),
        memory_mib=int(body["memory_gb"]) * GIB,
        gpus=(card,) * int(body["num_gpu"]) if card else (),
        disk=Disk(size_mib=round(local * GB) if local else OS_DISK * GIB),
        cpu_arch="x86",
    )
