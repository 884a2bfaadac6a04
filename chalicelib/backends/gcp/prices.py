"""Prices of machines and disks, from the price list of Cloud Billing.

The list has no machines, but what they are made of: cores, memory, GPUs and local disks, on demand and spot. The parts
are told by their descriptions alone, such as "Spot Preemptible N2 Instance Core running in Frankfurt". A machine with a
part that the list doesn't have has no price, and isn't offered. The list is read once a day. An account that may not
read it uses the operator's price file, if there is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chalicelib.backends.gcp.client import COMPUTE, GcpClients
from chalicelib.backends.gcp.errors import Body
from chalicelib.backends.kit.cache import LookupCache
from chalicelib.backends.kit.clock import Now
from chalicelib.backends.kit.offers import GIB, HOURS
from chalicelib.backends.kit.tables import table
from chalicelib.backends.price_file import OfflinePrices, Priced
from chalicelib.domain.instants import DAY
from chalicelib.errors import MissingPermission

ADDRESS: Mapping[bool, float] = {False: 0.005, True: 0.0025}  # dollars an hour, on demand and spot, in every region
SSD_GIB = 375  # of a local disk
SHARED: Mapping[str, float] = {"e2-micro": 0.25, "e2-small": 0.5, "e2-medium": 1.0}  # cores that are billed of two
_LISTED = table("gcp/prices.toml")
_FAMILIES: Mapping[str, str] = _LISTED["families"]
_CARDS: Mapping[str, Sequence[str]] = _LISTED["cards"]
_SLICES = frozenset({"nvidia-b200", "nvidia-gb200", *(name for name in _CARDS if name.startswith("tpu-"))})
DISKS: Mapping[str, str] = _LISTED["disks"]
_SSD = "SSD backed Local Storage"
_MARKETS = {"OnDemand": False, "Preemptible": True}
_PART = re.compile(r"(?:Spot Preemptible )?(.+?)(?: attached to Spot Preemptible VMs)?(?: running)?(?: in .+)?")
_OLD_TPU = re.compile(
    r"(?:Preemptible )?Tpu-(v[23])( Pod)? Accelerator(?: Preemptible)?(?: (?:in |running in )?[\w ()-]+)?", re.I
)

Part = tuple[str, str, bool]  # its name in the list, the region, spot
Parts = Mapping[Part, float]


@dataclass(frozen=True)
class MachineParts:
    """What a machine is made of."""

    type: str
    cpus: int
    memory_mib: int
    accelerator: str = ""
    cards: int = 0
    ssds: int = 0


@dataclass(frozen=True)
class PriceList:
    """Prices as they are known at one time: those of parts, or, without them, of machines, from the operator's file."""

    parts: Parts
    filed: Priced
    source: str = ""  # where prices are from, if not from Google

    def machine(self, machine: MachineParts, region: str, *, spot: bool) -> float | None:
        """An hour of it, without disk and address; None: it isn't sold so, or a part has no price."""
        if not self.parts:
            found = self.filed.get((machine.type, region), (None, None))
            return found[1] if spot else found[0]
        total = 0.0
        for names, amount in _bill(machine):
            prices = [price for name in names if (price := self.parts.get((name, region, spot))) is not None]
            if not prices:
                return None
            total += max(prices) * amount
        return total

    def disk(self, kind: str, region: str) -> float | None:
        """Of a GiB for a month."""
        if self.parts:
            return self.parts.get((DISKS[kind], region, False)) if kind in DISKS else None
        return self.filed.get((kind, region), (None, None))[0]


class GcpPrices:
    def __init__(
        self,
        clients: GcpClients,
        now: Now,
        offline: OfflinePrices | None = None,
        services: Sequence[str] = (COMPUTE,),
    ) -> None:
        self._clients, self._offline, self._services = clients, offline, services
        self._known = LookupCache[Parts](now, DAY, keeps=bool)

    def listed(self) -> PriceList:
        try:
            return PriceList(self._known.get("", lambda: dict(self._listed())), {})
        except MissingPermission:
            if self._offline is None:
                raise
            return PriceList({}, self._offline.of("gcp"), self._offline.origin)

    def _listed(self) -> Iterator[tuple[Part, float]]:
        dearest: dict[Part, float] = {}
        for sku in (each for service in self._services for each in self._clients.skus(service)):
            name, spot = _sold_as(sku)
            if name not in _NAMES or (price := _price(sku, of_disk=name in _DISK_NAMES)) is None:
                continue
            for region in sku.get("serviceRegions", ()):
                part = name, str(region), spot
                dearest[part] = max(price, dearest.get(part, 0.0))
        yield from dearest.items()


def _sold_as(sku: Body) -> tuple[str, bool]:
    """Which part it is the price of, and whether that is of spot machines. The name is empty if it is neither a price
    on demand nor one of spot machines, and that of no part if it is of something else."""
    text = str(sku.get("description", ""))
    spot = _MARKETS.get(sku.get("category", {}).get("usageType", ""))
    if spot is None:
        return "", False
    if old := _OLD_TPU.fullmatch(text):  # spot ones are in the list as on demand
        return f"Tpu-{old[1].lower()}{' Pod' if old[2] else ''}", spot or "preemptible" in text.lower()
    found = _PART.fullmatch(text)
    return (found[1] if found else ""), spot


def family_of(type_name: str) -> str:
    """As the price list names it."""
    first, _, rest = type_name.partition("-")
    kind = f"{first}-{rest.partition('-')[0]}"
    return _FAMILIES.get(kind) or _FAMILIES.get(first) or first.upper()


def _bill(machine: MachineParts) -> Iterator[tuple[Sequence[str], float]]:
    """The names of each part, and how much there is of it."""
    if machine.accelerator:
        yield _CARDS.get(machine.accelerator, (machine.accelerator,)), machine.cards
    if machine.accelerator not in _SLICES:
        family = family_of(machine.type)
        yield (f"{family} Instance Core",), SHARED.get(machine.type, machine.cpus)
        yield (f"{family} Instance Ram",), machine.memory_mib / GIB
        if machine.ssds:
            yield (_SSD,), machine.ssds * SSD_GIB / HOURS


def _price(sku: Body, *, of_disk: bool) -> float | None:
    """The dearest rate; others are discounts. None: it isn't for an hour, or for a month of a disk."""
    pricing: Any = next(iter(sku.get("pricingInfo", ())), {})
    expression = pricing.get("pricingExpression", {})
    if expression.get("usageUnit") not in (("GiBy.mo",) if of_disk else ("h", "GiBy.h")):
        return None
    rates = [each.get("unitPrice", {}) for each in expression.get("tieredRates", ())]
    found = max((int(rate.get("units", 0)) + rate.get("nanos", 0) / 1e9 for rate in rates), default=0.0)
    return found if found > 0 else None


_DISK_NAMES = frozenset({_SSD, *DISKS.values()})
_NAMES = frozenset(
    {
        *(f"{family_of(f'{family}-x')} Instance {part}" for family in _LISTED["offered"] for part in ("Core", "Ram")),
        *(name for names in _CARDS.values() for name in names),
        *_DISK_NAMES,
    }
)
