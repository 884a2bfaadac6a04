"""EC2's offers: the types in each region of the account, with prices and quotas.

All types with whole NVIDIA GPUs that the default images support are offered, and a few families without GPUs. Others
can be added by name (`experimental_instance_types`). Shares of a GPU are left out, because they would look like a whole
one, as are types that a run can't request, and types without a fitting image in the account's `os_images`. An offer has
one price: for spot it is the highest of the zones, so no machine costs more than its offer says. The price includes the
disk, whose size depends on the run or fleet, and the public address, if machines get one.

Each reservation of the account is an offer of its own, whatever its type. It costs as much as the machine on demand,
because AWS bills that. A capacity block was paid when it was bought, so only the disk costs extra.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chalicelib.backends.aws.client import Clients
from chalicelib.backends.aws.config import AWSBackendConfig
from chalicelib.backends.aws.launch import without_address
from chalicelib.backends.aws.places import filters, regions_of, usual_zone
from chalicelib.backends.aws.prices import Prices
from chalicelib.backends.aws.quotas import Quotas, availability, of_clusters, quotas
from chalicelib.backends.aws.reservations import WARNING, ends_at, is_block, reservations
from chalicelib.backends.kit.clock import Now
from chalicelib.backends.kit.gpus import gpu
from chalicelib.backends.kit.regions import everywhere
from chalicelib.domain.instants import Micros
from chalicelib.domain.offers import Availability, Disk, DiskTerms, Gpu, InstanceType, Offer, OfferTerms, Resources

log = logging.getLogger(__name__)

GIB = 1024
MOST_VALUES = 200  # of a filter
LEAST_DISK = 100  # GiB of the machine's own disk, which the usual images need most of
MOST_DISK = 16 * 1024  # GiB of a gp3 volume, wherever it is
DISK = "gp3"
USUAL_DISK = 0.08  # dollars a month for a GiB, where nobody says it
NO_IDENTITY = "its disks aren't NVMe, and show no serial number to tell them apart by"
ADDRESS = 0.005  # dollars an hour for a public address, in every region
HOURS = 730  # of a month, as AWS bills disks
WITHOUT_GPU = ("t3", "m7i", "c7i", "r7i", "m7g", "c7g", "r7g")  # families
DEFAULT_TYPES = ("g*", "p*", *(f"{family}.*" for family in WITHOUT_GPU))
UNDRIVEN = frozenset({"V100", "K80", "M60"})  # older than what the open driver of the usual images runs on
MISCOUNTED = {"p5.4xlarge": 1}  # types that have whole GPUs, of which AWS has been seen to count none
ARCHITECTURES = {"x86_64": "x86", "arm64": "arm"}

Body = Mapping[str, Any]


@dataclass(frozen=True)
class Region:
    """What AWS reports about one region."""

    name: str
    types: Mapping[str, Body]
    zones: Mapping[str, Sequence[str]]  # by type
    spot: Mapping[str, Mapping[str, float]]  # by type and zone
    quotas: Quotas
    reserved: Sequence[Body] = ()
    only_reserved: Mapping[str, Body] = field(default_factory=dict)  # types that aren't sold otherwise


class AwsCatalog:
    def __init__(self, clients: Clients, config: AWSBackendConfig, prices: Prices, now: Now) -> None:
        self._clients, self._config, self._prices, self._now = clients, config, prices, now
        self._more = frozenset(config.experimental_instance_types or ())
        images = config.os_images
        self._images = {"cpu", "nvidia"} if images is None else {kind for kind, image in images if image is not None}

    def offers(self) -> Sequence[Offer]:
        """All offers. Raises if a region doesn't respond, because an incomplete catalog would look like a complete
        one."""
        regions = everywhere(regions_of(self._config), self._region)
        names = (name for region in regions for name in (*region.types, *region.only_reserved))
        prices, source = self._prices.on_demand(names)
        unknown = self._more.difference(*(region.types for region in regions))
        if unknown:
            log.warning(
                "aws can't offer %s: no such type in these regions, or no whole GPU", ", ".join(sorted(unknown))
            )
        return [
            offer
            for region in regions
            for each in (_offers(region, prices, source), _in_reservations(region, prices, source, self._now()))
            for offer in self._addressed(
                region, _with_disks(each, self._prices.of_volume(DISK, region.name) or USUAL_DISK)
            )
        ]

    def _addressed(self, region: Region, offers: Iterable[Offer]) -> Iterator[Offer]:
        """The offer with the price of public addresses, and their quota."""
        limit = of_clusters(region.quotas, region.name)
        for offer in offers:
            if not self._config.public_ips:
                yield offer
                continue
            terms, cards = offer.terms, offer.backend_data.get("efa", ())
            if limit is not None and cards and without_address(cards):
                terms = terms.with_(cluster=limit)
            yield offer.with_(terms=terms, price=round(offer.price + ADDRESS, 6))

    def _region(self, region: str) -> Region:
        names = [*DEFAULT_TYPES, *sorted(self._more)]
        listed = self._clients.pages(
            "ec2",
            region,
            "describe_instance_types",
            "InstanceTypes",
            Filters=filters(instance_type=names),
            MaxResults=100,
        )
        types = {each["InstanceType"]: each for each in listed if self._wanted(each)}
        reserved = reservations(self._clients, region)
        only_reserved = self._only_reserved(region, {each["InstanceType"] for each in reserved}.difference(types))
        if not types and not only_reserved:
            return Region(region, {}, {}, {}, {})
        spot = [name for name, body in types.items() if "spot" in body.get("SupportedUsageClasses", ())]
        prices = self._prices.spot(region, sorted(spot)) if spot else {}
        zones = self._zones(region, sorted(types)) if types else {}
        return Region(region, types, zones, prices, quotas(self._clients, region), reserved, only_reserved)

    def _only_reserved(self, region: str, names: Collection[str]) -> Mapping[str, Body]:
        """Types that are offered here only through a reservation."""
        if not names:
            return {}
        of_these_types = filters(instance_type=sorted(names)[:MOST_VALUES])
        listed = self._clients.pages(
            "ec2", region, "describe_instance_types", "InstanceTypes", Filters=of_these_types, MaxResults=100
        )
        return {each["InstanceType"]: each for each in listed if self._wanted(each, names)}

    def _zones(self, region: str, names: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """The zones that have each type. Local Zones are left out, because each of them has to be enabled
        separately."""
        found: dict[str, list[str]] = {}
        for start in range(0, len(names), MOST_VALUES):
            listed = self._clients.pages(
                "ec2",
                region,
                "describe_instance_type_offerings",
                "InstanceTypeOfferings",
                LocationType="availability-zone",
                Filters=filters(instance_type=names[start : start + MOST_VALUES]),
                MaxResults=1000,
            )
            for each in listed:
                if usual_zone(each["Location"]):
                    found.setdefault(each["InstanceType"], []).append(each["Location"])
        return {name: sorted(zones) for name, zones in found.items()}

    def _wanted(self, body: Body, also: Collection[str] = ()) -> bool:
        name = body["InstanceType"]
        named = name in self._more or name in also
        if "NeuronInfo" in body or _architecture(body) is None:
            return False
        if ("nvidia" if "GpuInfo" in body else "cpu") not in self._images:
            return False
        if "GpuInfo" not in body:
            return named or (name.partition(".")[0] in WITHOUT_GPU and not body.get("BareMetal"))
        if not all(_whole_gpus(name, gpu) and gpu["Manufacturer"] == "NVIDIA" for gpu in body["GpuInfo"]["Gpus"]):
            return False
        driven = UNDRIVEN.isdisjoint(gpu["Name"] for gpu in body["GpuInfo"]["Gpus"])
        return named or (driven and not body.get("BareMetal"))


def _offers(region: Region, prices: Mapping[str, Mapping[str, float]], source: str) -> Iterator[Offer]:
    for name, body in sorted(region.types.items()):
        zones = region.zones.get(name, ())
        price = prices.get(name, {}).get(region.name)
        if zones and price is not None and "on-demand" in body.get("SupportedUsageClasses", ("on-demand",)):
            yield _offer(region, body, zones, price, source, spot=False)
        of_spot = region.spot.get(name, {})
        sold = [zone for zone in zones if zone in of_spot or "" in of_spot]
        if sold:
            dearest = max(of_spot.get(zone, of_spot.get("", 0.0)) for zone in sold)
            yield _offer(region, body, sold, dearest, source if "" in of_spot else "", spot=True)


def _in_reservations(
    region: Region, prices: Mapping[str, Mapping[str, float]], source: str, now: Micros
) -> Iterator[Offer]:
    for reserved in region.reserved:
        name = reserved["InstanceType"]
        body = region.types.get(name) or region.only_reserved.get(name)
        price = 0.0 if is_block(reserved) else prices.get(name, {}).get(region.name)
        if body is None or price is None:
            continue
        offer = _offer(region, body, [reserved["AvailabilityZone"]], price, source, spot=False)
        end = ends_at(reserved)
        terms = offer.terms.with_(reservation=str(reserved["CapacityReservationId"]), ends_at=end)
        over = end is not None and now >= end - WARNING
        yield offer.with_(terms=terms, availability=Availability.not_available if over else _left(reserved))


def _left(reserved: Body) -> Availability:
    """One that is full may have room again before the offers are fetched again; one that hasn't begun can't be used."""
    if reserved["State"] != "active":
        return Availability.not_available
    return Availability.available if reserved.get("AvailableInstanceCount", 0) > 0 else Availability.unknown


def _with_disks(offers: Iterable[Offer], month: float) -> Iterator[Offer]:
    """The offers with the price of their disks. `month`: dollars per GiB and month."""
    hour = month / HOURS
    disk = DiskTerms(most_gib=MOST_DISK, gib_hour=round(hour, 9))
    for offer in offers:
        yield offer.with_(terms=offer.terms.with_(disk=disk), price=round(offer.price + LEAST_DISK * hour, 6))


def _offer(region: Region, body: Body, zones: Sequence[str], price: float, source: str, *, spot: bool) -> Offer:
    name, cpus = body["InstanceType"], int(body["VCpuInfo"]["DefaultVCpus"])
    has = Resources(
        cpus=cpus,
        memory_mib=int(body["MemoryInfo"]["SizeInMiB"]),
        gpus=_gpus(body),
        spot=spot,
        disk=Disk(size_mib=LEAST_DISK * GIB),
        cpu_arch=_architecture(body),
    )
    cards = _efa_cards(body)
    private: dict[str, Any] = {"efa": cards} if cards else {}
    known = body.get("EbsInfo", {}).get("NvmeSupport") == "required"
    return Offer(
        backend="aws",
        instance=InstanceType(name=name, resources=has),
        region=region.name,
        price=round(price, 6),
        terms=OfferTerms(no_volumes="" if known else NO_IDENTITY, prices=source, **private),
        availability=availability(region.quotas, name, cpus, spot=spot),
        availability_zones=tuple(zones),
    )


def _architecture(body: Body) -> str | None:
    """Newer than 32 bits; a Mac has none that a job could use."""
    known = (ARCHITECTURES.get(each) for each in body["ProcessorInfo"].get("SupportedArchitectures", ()))
    return next((each for each in known if each), None)


def _gpus(body: Body) -> tuple[Gpu, ...]:
    """One entry for each device."""
    found: list[Gpu | None] = []
    for each in body.get("GpuInfo", {}).get("Gpus", ()):
        card = gpu(each["Name"], each["MemoryInfo"]["SizeInMiB"], "nvidia")
        found += [card] * _whole_gpus(body["InstanceType"], each)
    return tuple(card for card in found if card is not None)


def _whole_gpus(type_name: str, gpu: Body) -> int:
    """How many whole ones; 0: shares of one. AWS counts none where a type has shares, and says in newer answers how
    large these are."""
    share = float(gpu.get("GpuPartitionSize", 1.0))
    if share < 1:
        return 0
    counted = gpu.get("Count") or ("GpuPartitionSize" in gpu and gpu.get("LogicalGpuCount")) or 0
    return int(counted) or MISCOUNTED.get(type_name, 0)


def _efa_cards(body: Body) -> list[int]:
    """The network cards that support an EFA, as many as the type may have."""
    network = body.get("NetworkInfo", {})
    most = network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0)
    cards = [
        int(card["NetworkCardIndex"])
        for card in network.get("NetworkCards", ())
        if not {"efa", "efa-only"}.isdisjoint(card.get("InterfaceTypes", ("efa",)))
    ]
    return sorted(cards)[:most]
