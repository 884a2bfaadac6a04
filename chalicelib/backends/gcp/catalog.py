"""Google's offers: the machine types in each region of the account, with prices and quotas.

All types with whole NVIDIA GPUs that the image has a driver for are offered, N1 machines with T4s, and a few families
without GPUs. An offer has one price for all zones of its region. It includes the disk, whose size depends on the run or
fleet, and the public address, if machines get one.

Each reservation of the project is an offer of its own. It costs as much as the machine on demand, because Google bills
that.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chalicelib.backends.gcp import quotas
from chalicelib.backends.gcp.client import GcpClients
from chalicelib.backends.gcp.config import GCPBackendConfig
from chalicelib.backends.gcp.errors import Body
from chalicelib.backends.gcp.gpudirect import interconnect
from chalicelib.backends.gcp.images import UNDRIVEN, is_arm
from chalicelib.backends.gcp.interfaces import RDMA_TYPES, ROCE
from chalicelib.backends.gcp.launch import HYPER, disk_type
from chalicelib.backends.gcp.network import GcpNetworks
from chalicelib.backends.gcp.places import GcpPlaces, GcpRegion, last, region_of
from chalicelib.backends.gcp.prices import ADDRESS, GcpPrices, MachineParts, PriceList
from chalicelib.backends.gcp.reservations import WARNING, GcpReservation, GcpReservations
from chalicelib.backends.kit.clock import Now
from chalicelib.backends.kit.gpus import gpu
from chalicelib.backends.kit.offers import GIB, HOURS, machine, made_to_order
from chalicelib.domain.instants import Micros
from chalicelib.domain.offers import Availability, Gpu, Offer, OfferTerms

log = logging.getLogger(__name__)

LEAST_DISK = 100  # GiB of the machine's own disk
MOST_DISK = 64 * 1024
WITH_GPUS = r"a2-\w+-\d+g|a3-(highgpu|megagpu|ultragpu)-\d+g|(a4|a4x)-highgpu-\d+g|g2-standard-\d+|g4-standard-\d+"
WITHOUT = r"e2-(micro|small|medium)|(e2|n2|n2d|c3)-(standard|highmem|highcpu)-\d+"
CARRIERS = r"n1-standard-(4|8|16|32)"  # of attached GPUs
TYPES = f'name eq "({WITH_GPUS}|{WITHOUT}|{CARRIERS})"'
T4 = "nvidia-tesla-t4"
MOST_CPUS: Mapping[int, int] = {1: 24, 2: 48, 4: 96}  # of an N1 machine with so many T4s
NOT_ON_DEMAND = ("a3-highgpu-1g", "a3-highgpu-2g", "a3-highgpu-4g", *RDMA_TYPES)  # sold as spot, or reserved
ONLY_RESERVED = ("a4x-highgpu-4g",)
NO_VOLUMES = "its machines take Hyperdisks alone, and volumes are Persistent Disks"
A100 = 40 * GIB  # MiB of the card that has no size in its name


@dataclass(frozen=True)
class _Sold(MachineParts):
    """A type with its GPUs, and where in a region it is."""

    attached: bool = False  # the GPUs aren't part of the type
    zones: list[str] = field(default_factory=list)

    @property
    def gpus(self) -> tuple[Gpu, ...] | None:
        """One entry for each device; None: they can't be used here."""
        if not self.accelerator:
            return ()
        card = gpu(self.accelerator, A100 if self.accelerator == "nvidia-tesla-a100" else 0, "nvidia")
        return None if card is None or card.name in UNDRIVEN else (card,) * self.cards


class GcpCatalog:
    def __init__(
        self,
        clients: GcpClients,
        config: GCPBackendConfig,
        places: GcpPlaces,
        networks: GcpNetworks,
        prices: GcpPrices,
        now: Now,
    ) -> None:
        self._clients, self._config, self._places = clients, config, places
        self._networks, self._prices, self._now = networks, prices, now
        self._reservations = GcpReservations(clients, now)

    def offers(self) -> Sequence[Offer]:
        """All offers. Raises if a part of them can't be listed, because an incomplete catalog would look like a
        complete one."""
        within = self._config.regions or ""
        rows = list(self._clients.pages("machineTypes.aggregatedList", within=within, filter=TYPES))
        cards = list(self._clients.pages("acceleratorTypes.aggregatedList", within=within, filter=f'name = "{T4}"'))
        project = self._clients.call("projects.get")
        limits = {str(each["metric"]): float(each.get("limit", 0)) for each in project.get("quotas", ())}
        subnets = self._networks.subnets()
        regions = {region.name: region for region in self._places.used() if region.name in subnets}
        prices = self._prices.listed()
        types, unpriced = _sold(rows, {last(each["zone"]) for each in cards}), set[str]()
        found = [
            offer
            for (region, _), sold in types.items()
            if region in regions
            for spot in (False, True)
            if sold.type not in (ONLY_RESERVED if spot else NOT_ON_DEMAND)
            for offer in self._offer(regions[region], limits, prices, sold, unpriced, spot=spot)
        ]
        for reserved in self._reservations.all(within):
            region = region_of(reserved.zone)
            known = types.get((region, f"{reserved.type}/{reserved.cards}")) or _only(types, region, reserved.type)
            if known is not None and region in regions:
                found += [
                    _in_reservation(offer, reserved, self._now())
                    for offer in self._offer(regions[region], {}, prices, known, unpriced, spot=False)
                ]
        if unpriced:
            log.warning("gcp can't offer %s: their prices aren't known", ", ".join(sorted(unpriced)))
        return found

    def _offer(
        self,
        region: GcpRegion,
        limits: quotas.Limits,
        prices: PriceList,
        sold: _Sold,
        unpriced: set[str],
        *,
        spot: bool,
    ) -> Iterator[Offer]:
        gpus, fabric = sold.gpus, self._networks.fabric(region.name)
        zones = [zone for zone in sold.zones if sold.type not in RDMA_TYPES or zone == fabric.zone]
        if gpus is None or not zones or not fabric.holds(sold.type):
            return
        kind = disk_type(sold.type)
        hour, month = prices.machine(sold, region.name, spot=spot), prices.disk(kind, region.name)
        if hour is None or month is None:
            if not spot:
                unpriced.add(f"{sold.type} in {region.name}")
            return
        price = hour + LEAST_DISK * month / HOURS + (ADDRESS[spot] if self._config.public_ips else 0.0)
        private: dict[str, Any] = {"accelerator": sold.accelerator} if sold.attached else {}
        terms = OfferTerms(
            disk=made_to_order(MOST_DISK, month / HOURS),
            prices=prices.source,
            interconnect=ROCE
            if sold.type in RDMA_TYPES
            else interconnect(sold.type, self._config.gpudirect_of(sold.type), len(fabric.extra)),
            no_volumes=NO_VOLUMES if kind == HYPER else "",
            order=f"{sold.cards}x{sold.accelerator}" if sold.attached else "",
            **private,
        )
        yield machine(
            "gcp",
            sold.type,
            region.name,
            price,
            cpus=sold.cpus,
            memory_mib=sold.memory_mib,
            gpus=gpus,
            spot=spot,
            disk_gib=LEAST_DISK,
            cpu_arch="arm" if is_arm(sold.type) else "x86",
            terms=terms,
            availability=quotas.availability(region.quotas, limits, sold, spot=spot),
            availability_zones=tuple(sorted(zones)),
        )


def _only(types: Mapping[tuple[str, str], _Sold], region: str, name: str) -> _Sold | None:
    """The type in the region, where all of it is part of the type."""
    return next(
        (each for (at, _), each in types.items() if (at, each.type) == (region, name) and not each.attached), None
    )


def _in_reservation(offer: Offer, reserved: GcpReservation, now: Micros) -> Offer:
    terms = offer.terms.with_(reservation=reserved.name, starts_at=reserved.starts_at, ends_at=reserved.ends_at)
    over = reserved.ends_at is not None and now >= reserved.ends_at - WARNING
    availability = Availability.not_available if over else reserved.availability
    return offer.with_(terms=terms, availability=availability, availability_zones=(reserved.zone,))


def _sold(rows: Sequence[Body], with_t4: set[str]) -> Mapping[tuple[str, str], _Sold]:
    """By region, and by type and GPUs."""
    found: dict[tuple[str, str], _Sold] = {}

    def add(zone: str, sold: _Sold) -> None:
        of = found.setdefault((region_of(zone), f"{sold.type}/{sold.cards}"), sold)
        of.zones.append(zone)

    for row in rows:
        name, zone = str(row["name"]), last(str(row["zone"]))
        if row.get("deprecated") or (row.get("architecture") == "ARM64") != is_arm(name):
            continue
        base = name, int(row["guestCpus"]), int(row["memoryMb"])
        ssds = int(row.get("bundledLocalSsds", {}).get("partitionCount", 0))
        built_in = next(iter(row.get("accelerators", ())), None)
        if built_in:
            card, cards = str(built_in["guestAcceleratorType"]), int(built_in["guestAcceleratorCount"])
            add(zone, _Sold(*base, last(card), cards, ssds))
        elif name.startswith("n1-"):
            for cards in MOST_CPUS:
                if zone in with_t4 and base[1] <= MOST_CPUS[cards]:
                    add(zone, _Sold(*base, T4, cards, ssds, attached=True))
        else:
            add(zone, _Sold(*base, ssds=ssds))
    return found
