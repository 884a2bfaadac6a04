"""Offers of TPUs: the types that each zone of the account's regions lists. The price is that of the chips, which their
host is a part of, and of the public address, if machines get one. That of a slice is shared by its hosts.

Each zone has offers of its own: that it has no room shows only once a request has waited there for some time, and then
the next offer is tried."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from chalicelib.backends.gcp.config import GCPBackendConfig
from chalicelib.backends.gcp.errors import Body
from chalicelib.backends.gcp.network import GcpNetworks
from chalicelib.backends.gcp.places import GcpPlaces, region_of
from chalicelib.backends.gcp.prices import ADDRESS, GcpPrices, MachineParts, PriceList
from chalicelib.backends.gcp.tpu_client import TpuClient
from chalicelib.backends.gcp.tpu_types import tpu_type
from chalicelib.backends.kit.regions import everywhere
from chalicelib.domain.offers import InstanceType, Interconnect, Offer, OfferTerms

log = logging.getLogger(__name__)

NO_VOLUMES = "disks can't be attached to a TPU's host while it runs"


SLICE = Interconnect(name="ICI", rank_variable="TPU_WORKER_ID", addresses_variable="TPU_WORKER_HOSTNAMES")


def _topologies(kind: Body) -> Iterator[str]:
    return (str(each.get("topology", "")) for each in kind.get("acceleratorConfigs", ()))


class TpuCatalog:
    def __init__(
        self, client: TpuClient, config: GCPBackendConfig, places: GcpPlaces, networks: GcpNetworks, prices: GcpPrices
    ) -> None:
        self._client, self._config, self._places = client, config, places
        self._networks, self._prices = networks, prices

    def offers(self) -> Sequence[Offer]:
        prices, unpriced = self._prices.listed(), set[str]()
        found = [
            offer
            for zone, name in self._sold()
            for spot in (False, True)
            for offer in self._offer(name, zone, prices, unpriced, spot=spot)
        ]
        if unpriced:
            log.warning("gcp can't offer TPUs %s: their prices aren't known", ", ".join(sorted(unpriced)))
        return found

    def _sold(self) -> Sequence[tuple[str, str]]:
        """Zones, and a type of each."""
        subnets = self._networks.subnets()
        regions = {region.name for region in self._places.used() if region.name in subnets}
        zones = [zone for zone in self._client.locations() if region_of(zone) in regions]
        types = everywhere(zones, self._types) if zones else ()
        return [(zone, name) for zone, names in zip(zones, types, strict=True) for name in sorted(names)]

    def _types(self, zone: str) -> set[str]:
        listed = self._client.listed(zone, "acceleratorTypes")
        return {str(each["type"]) for each in listed if tpu_type(str(each["type"]), _topologies(each))}

    def _offer(self, name: str, zone: str, prices: PriceList, unpriced: set[str], *, spot: bool) -> Iterator[Offer]:
        kind, region = tpu_type(name), region_of(zone)
        if kind is None:
            return
        whole = prices.machine(MachineParts(name, 0, 0, kind.sold_as, kind.units * kind.hosts), region, spot=spot)
        if whole is None:
            if not spot:
                unpriced.add(f"{name} in {region}")
            return
        yield Offer(
            backend="gcp",
            instance=InstanceType(name=name, resources=kind.resources(name, spot=spot)),
            region=region,
            price=round(whole / kind.hosts + (ADDRESS[spot] if self._config.public_ips else 0.0), 6),
            terms=OfferTerms(
                prices=prices.source,
                no_volumes=NO_VOLUMES,
                order=zone,
                bundle=kind.hosts if kind.hosts > 1 else 0,
                interconnect=SLICE if kind.hosts > 1 else None,
            ),
            availability_zones=(zone,),
        )
