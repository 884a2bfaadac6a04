"""Crusoe's offers: the types in each location, with what is left of them, the project's quotas, and the operator's
prices.

A type without a known price isn't offered, and `dstack offer` says so. Machines with disks of their own have these and
no others. The others have the system's disk, and are offered once more with a data disk that is as large as one wants,
if the price of disks is known. GB200 isn't offered: its machines need an image for ARM, and a domain of NVLink.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from chalicelib.backends.crusoe.client import Body, CrusoeClient
from chalicelib.backends.crusoe.disks import PERSISTENT
from chalicelib.backends.crusoe.launch import LOCAL, OS_DISK, has_fabric
from chalicelib.backends.crusoe.quotas import is_used_up, quotas
from chalicelib.backends.kit.gpus import gpu
from chalicelib.backends.kit.offers import GIB, HOURS, machine, made_to_order
from chalicelib.backends.kit.operators_prices import OperatorsPrices, price_of
from chalicelib.domain.gpu_names import WITH_ARM, squeeze
from chalicelib.domain.offers import Availability, Disk, Gpu, Interconnect, Offer, OfferTerms

TYPES = ("compute", "vms", "types")
GB = 1000**3 / 1024**3  # GiB
MOST_DISK = 5000  # GiB of a data disk
WITH_DISK = "disk"  # the order of an offer with a data disk
# Crusoe's images describe a machine's topology to NCCL in a file that /etc/nccl.conf names.
INFINIBAND = Interconnect(name="InfiniBand", folders=("/etc/nccl.conf", "/etc/crusoe/nccl_topo"))


class CrusoeCatalog:
    def __init__(self, client: CrusoeClient, prices: OperatorsPrices, regions: Sequence[str] | None) -> None:
        self._client, self._prices, self._regions = client, prices, regions

    def offers(self) -> Sequence[Offer]:
        """All offers, or an error: an incomplete catalog would look like a complete one. A type without a price is
        named beside the prices' source."""
        prices = self._prices.known()
        types = {str(body["product_name"]): body for body in self._client.call("GET", *TYPES)["items"]}
        quota, found, unpriced = quotas(self._client), list[Offer](), set[str]()
        for (name, region), left in sorted(self._left().items()):
            cards = _cards(types[name]) if name in types and region in (self._regions or (region,)) else None
            if cards is None:
                continue
            price, body = price_of(prices, name, region), types[name]
            if price is None:
                unpriced.add(name)
                continue
            state, local = Availability.available if left else Availability.not_available, int(body["disk_gb"] or 0)
            offer = machine(
                "crusoe",
                name,
                region,
                price,
                cpus=int(body["cpu_cores"]),
                memory_mib=int(body["memory_gb"]) * GIB,
                gpus=cards,
                disk_gib=local * GB if local else OS_DISK,
                availability=Availability.no_quota if is_used_up(quota, name) else state,
                terms=_terms(body),
            )
            found += [offer, *_with_data_disk(offer, price_of(prices, PERSISTENT, region))]
        source = self._prices.origin(unpriced)
        return [offer.with_(terms=offer.terms.with_(prices=source)) for offer in found]

    def _left(self) -> Mapping[tuple[str, str], int]:
        """How many machines of each type each location has room for. It isn't said whether the project may have them. A
        pair may be listed more than once."""
        left: dict[tuple[str, str], int] = {}
        for each in self._client.everybodys("capacities")["items"]:
            place = str(each.get("type") or ""), str(each["location"])
            left[place] = max(left.get(place, 0), int(each["quantity"]))
        return left


def _terms(body: Body) -> OfferTerms:
    private: dict[str, Any] = {LOCAL: True} if body["disk_gb"] else {}
    network = INFINIBAND if has_fabric(str(body["product_name"])) else None
    return OfferTerms(interconnect=network, **private)


def _with_data_disk(offer: Offer, month: float | None) -> Iterator[Offer]:
    """The same once more, with a disk to order. `month`: dollars for a GiB."""
    if month is None or offer.backend_data.get(LOCAL):
        return
    hour, least = month / HOURS, OS_DISK + 1
    has = offer.instance.resources.with_(disk=Disk(size_mib=least * GIB))
    yield offer.with_(
        instance=offer.instance.with_(resources=has),
        price=round(offer.price + least * hour, 6),
        terms=offer.terms.with_(disk=made_to_order(MOST_DISK, hour), order=WITH_DISK),
    )


def _cards(body: Body) -> tuple[Gpu, ...] | None:
    """One for each GPU; None: they can't be used."""
    card = gpu(str(body["gpu_type"])) if body["num_gpu"] else None
    if body["num_gpu"] and (card is None or squeeze(card.name) in WITH_ARM):
        return None
    return (card,) * int(body["num_gpu"]) if card else ()
