"""Azure's offers: the sizes in each region that the subscription can have, with prices and quotas.

An offer's price includes the smallest disk that is offered and the public address, if machines get one. A size without
a known price isn't offered.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

from chalicelib.backends.azure.client import AzureClient
from chalicelib.backends.azure.places import regions_of, zone_named
from chalicelib.backends.azure.prices import AzurePrices
from chalicelib.backends.azure.quotas import Quotas, availability, of_clusters, quotas
from chalicelib.backends.azure.reservations import Reserved, offers_in, reservations
from chalicelib.backends.azure.sizes import AzureSize, by_name, interconnect
from chalicelib.backends.kit.offers import HOURS, machine, made_to_order
from chalicelib.backends.kit.regions import listed_everywhere
from chalicelib.domain.offers import Offer, OfferTerms

log = logging.getLogger(__name__)

LEAST_DISK, MOST_DISK = 128, 4095  # GiB of a machine's own disk; the least is a whole step of the price list
USUAL_DISK = 9.6  # dollars a month for the least, where nobody says it
ADDRESS = 0.005  # dollars an hour for a public address, in every region
NO_ZONE = "with InfiniBand they are in an availability set, which is in no zone"


class AzureCatalog:
    def __init__(self, client: AzureClient, prices: AzurePrices) -> None:
        self._client, self._prices = client, prices

    def offers(self) -> Sequence[Offer]:
        """All offers. Raises if a region doesn't respond, because an incomplete catalog would look like a complete
        one."""
        reserved = reservations(self._client)
        return list(listed_everywhere(regions_of(self._client.config), lambda region: self._region(region, reserved)))

    def _region(self, region: str, reserved: Sequence[Reserved]) -> list[Offer]:
        path = f"/subscriptions/{self._client.ids.subscription}/providers/Microsoft.Compute/skus"
        listed = list(self._client.listed(path, {"$filter": f"location eq '{region}'"}, region))
        sizes = by_name(listed, region)
        if not sizes:
            return []
        limits = quotas(self._client, region)
        prices = self._prices.of_machines(region, sizes)
        if unpriced := sorted(name for name in sizes if name not in prices):
            log.warning("no price is known in %s of %s", region, ", ".join(unpriced))
        month = self._prices.of_disk(region, "E", LEAST_DISK) or USUAL_DISK
        found: list[Offer] = []
        for name, size in sorted(sizes.items()):
            price = prices.get(name)
            if price is not None and price.on_demand is not None:
                usual = list(self._offers(region, size, price.on_demand, limits, price.source, month, spot=False))
                found += [*usual, *(one for offer in usual for one in offers_in(offer, reserved))]
            if price is not None and price.spot is not None and size.spot:
                found += self._offers(region, size, price.spot, limits, price.source, month, spot=True)
        return found

    def _offers(
        self, region: str, size: AzureSize, price: float, limits: Quotas, source: str, month: float, *, spot: bool
    ) -> Iterator[Offer]:
        private: dict[str, Any] = {name: True for name in ("rdma", "accelerated") if getattr(size, name)}
        hour = month / HOURS
        terms = OfferTerms(
            disk=made_to_order(MOST_DISK, hour / LEAST_DISK),
            no_volumes_in_clusters=NO_ZONE if size.rdma and size.zones else "",
            cluster=of_clusters(limits, size, region, spot=spot),
            interconnect=interconnect(size.name) if size.rdma else None,
            prices=source,
            **private,
        )
        yield machine(
            "azure",
            size.name,
            region,
            price + hour + (ADDRESS if self._client.config.public_ips else 0.0),
            cpus=size.vcpus,
            memory_mib=size.memory_mib,
            gpus=size.gpus,
            spot=spot,
            disk_gib=LEAST_DISK,
            terms=terms,
            availability=availability(limits, size, spot=spot),
            availability_zones=tuple(zone_named(region, number) for number in size.zones) or None,
        )
