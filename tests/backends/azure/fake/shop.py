"""Sizes of machines, their prices, and the quotas that they count against."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from tests.backends.azure.fake.api import PAGED, Part, error, link
from tests.backends.fakes.script import Call
from tests.backends.fakes.server import Refusal, answers

LOCATIONS = ("westeurope", "eastus", "northcentralus")
ZONES: Mapping[str, tuple[str, ...]] = {"westeurope": ("1", "2", "3"), "eastus": ("1", "2"), "northcentralus": ()}
PAGE = 100  # rows of the price list


@dataclass(frozen=True)
class Sold:
    family: str
    vcpus: int
    memory: float  # GB
    price: float
    spot: float = 0.0  # 0: not sold so
    gpus: int = 0
    zones: tuple[str, ...] = ("1", "2", "3")
    rdma: bool = False
    arm: bool = False
    generations: str = "V1,V2"
    disks: int = 8


SIZES: Mapping[str, Sold] = {
    "Standard_B2s": Sold("standardBSFamily", 2, 4, 0.048),
    "Standard_D2s_v5": Sold("standardDSv5Family", 2, 8, 0.115, 0.0226),
    "Standard_D8s_v5": Sold("standardDSv5Family", 8, 32, 0.46, 0.0904),
    "Standard_D2ps_v5": Sold("standardDPSv5Family", 2, 8, 0.09, arm=True),
    "Standard_NC4as_T4_v3": Sold("Standard NCASv3_T4 Family", 4, 28, 0.605, 0.121, gpus=1, zones=("1", "3")),
    "Standard_NC24ads_A100_v4": Sold("StandardNCADSA100v4Family", 24, 220, 4.775, 1.91, gpus=1, generations="V2"),
    "Standard_NC80adis_H100_v5": Sold(
        "StandardNCadsH100v5Family", 80, 640, 13.96, gpus=2, zones=("2",), generations="V2"
    ),
    "Standard_NV6ads_A10_v5": Sold("StandardNVADSA10v5Family", 6, 55, 0.454, gpus=1),
    "Standard_ND96isr_H100_v5": Sold(
        "standardNDSH100v5Family", 96, 1900, 98.32, 39.33, gpus=8, zones=("1",), rdma=True, generations="V2", disks=32
    ),
    "Standard_ND96isr_MI300X_v5": Sold(
        "standardNDISv5MI300XFamily", 96, 1850, 48.0, gpus=8, rdma=True, generations="V2"
    ),
    "Standard_HB120rs_v3": Sold("standardHBrsv3Family", 120, 448, 3.96, zones=(), rdma=True),
}
RATES = {"westeurope": 1.0, "eastus": 0.8, "northcentralus": 0.9}  # prices beside those above
DISKS = {"E10": 9.6, "E15": 19.2, "P10": 19.71, "P15": 38.02}  # dollars a month
QUOTA = 1_000  # vCPUs, unless a test has another


def stock(location: str, zone: str, size: str, *, spot: bool = False) -> str:
    return f"{'spot' if spot else 'stock'} of {size} in {location} {zone}"


def quota(location: str, name: str) -> str:
    return f"quota of {name} in {location}"


def sold_in(size: str, location: str) -> tuple[str, ...]:
    """The zones that have it."""
    return tuple(zone for zone in SIZES[size].zones if zone in ZONES[location])


class Shop(Part):
    # By size and location: rows that bar the subscription from it, beside others that don't.
    restrictions: Mapping[tuple[str, str], list[Any]] = {}
    sizes: Mapping[str, Sold] = SIZES
    prices_down = False
    no_prices: frozenset[str] = frozenset()  # sizes that the price list lacks

    @answers("ResourceSkus_list")
    def _skus(self, call: Call) -> Any:
        found = re.fullmatch(r"location eq '(\w+)'", call.query.get("$filter", ""))
        if found is None or call.query.get("includeExtendedLocations"):
            raise error(400, "InvalidFilter", "this fake is asked for one location")
        disk = {"resourceType": "disks", "name": "Premium_LRS", "locationInfo": [], "restrictions": []}
        rows = [disk, *(self._sku(name, found[1]) for name in self.sizes)]
        start = int(call.query.get(PAGED, "0"))
        size = self.script.page or 5
        more = {PAGED: str(start + size)} if start + size < len(rows) else {}
        return {"value": rows[start : start + size], **({"nextLink": link(call, more)} if more else {})}

    def _sku(self, name: str, location: str) -> Any:
        sold = self.sizes[name]
        can = {
            "vCPUs": str(sold.vcpus),
            "MemoryGB": f"{sold.memory:g}",
            "MaxDataDiskCount": str(sold.disks),
            "CpuArchitectureType": "Arm64" if sold.arm else "x64",
            "HyperVGenerations": sold.generations,
            "LowPriorityCapable": str(sold.spot > 0),
            "RdmaEnabled": str(sold.rdma),
            "AcceleratedNetworkingEnabled": str(name != "Standard_B2s"),
            **({"GPUs": str(sold.gpus)} if sold.gpus else {}),
        }
        return {
            "resourceType": "virtualMachines",
            "name": name,
            "family": sold.family,
            "locations": [location.title()],
            "locationInfo": [
                {"location": location.title(), "zones": [zone for zone in sold.zones if zone in ZONES[location]]}
            ],
            "capabilities": [{"name": key, "value": value} for key, value in can.items()],
            "restrictions": self.restrictions.get((name, location), []),
        }

    @answers("Usage_list")
    def _usages(self, call: Call) -> Any:
        location = call.path["location"]
        names = ["cores", "lowPriorityCores", "virtualMachines", *sorted({each.family for each in SIZES.values()})]
        return {"value": [self._usage(location, name) for name in names]}

    def _usage(self, location: str, name: str) -> Any:
        counter = quota(location, name)
        limit = self.script.limits.get(counter, QUOTA)
        shown = {"value": name, "localizedValue": name}
        return {"unit": "Count", "currentValue": self.books.used(counter), "limit": limit, "name": shown}

    def over_quota(self, location: str, counts: Mapping[str, int]) -> None:
        for counter, more in counts.items():
            limit, used = self.script.limits.get(counter, QUOTA), self.books.used(counter)
            if counter.startswith("quota") and used + more > limit:
                name = counter.removeprefix("quota of ").partition(" in ")[0]
                raise error(409, "OperationNotAllowed", over(name, location, limit, used, more))

    # --- the price list ----------------------------------------------------------------------------------------------

    @answers("RetailPrices_list")
    def _prices(self, call: Call) -> Any:
        if self.prices_down:
            raise Refusal(503, {"Error": "the price list is away"})
        if any(call.query.get(name) for name in ("currencyCode", "meterRegion")):
            raise error(400, "BadRequest", "this fake has one currency")
        wanted, start = call.query.get("$filter", ""), int(call.query.get("$skip", "0"))
        rows = [row for row in self._rows() if _selects(wanted, row)]
        size = self.script.page or PAGE
        more = start + size < len(rows)
        further = f"https://prices.azure.com:443/api/retail/prices?$filter={quote(wanted)}&$skip={start + size}"
        return {
            "BillingCurrency": "USD",
            "Count": len(rows[start : start + size]),
            "NextPageLink": further if more else None,
            "Items": rows[start : start + size],
        }

    def _rows(self) -> Iterable[Any]:
        for location, rate in RATES.items():
            for name, sold in self.sizes.items():
                if name not in self.no_prices:
                    yield from _of_size(name, sold, location, rate)
            for step, price in DISKS.items():
                product = "Standard SSD Managed Disks" if step[0] == "E" else "Premium SSD Managed Disks"
                yield _row("Storage", location, "", product, f"{step} LRS", f"{step} LRS Disk", price, "1/Month")
                yield _row("Storage", location, "", product, f"{step} LRS", f"{step} LRS Disk Mount", 0.1, "1/Month")


def _of_size(name: str, sold: Sold, location: str, rate: float) -> Iterable[Any]:
    """The row that counts, and those beside it."""
    product, short = f"Virtual Machines {sold.family}", name.removeprefix("Standard_").replace("_", " ")
    yield _row("Virtual Machines", location, name, f"{product} Windows", short, short, sold.price * rate * 2)
    yield _row("Virtual Machines", location, name, product, short, short, sold.price * rate)
    yield _row("Virtual Machines", location, name, f"{product} Cloud Services", short, short, sold.price * rate * 3)
    yield _row("Virtual Machines", location, name, product, f"{short} Low Priority", f"{short} Low Priority", 50.0)
    if sold.spot:
        yield _row("Virtual Machines", location, name, f"{product} Windows", f"{short} Spot", f"{short} Spot", 9.0)
        yield _row("Virtual Machines", location, name, product, f"{short} Spot", f"{short} Spot", sold.spot * rate)
        yield _row("Virtual Machines", location, name, product, f"{short} Spot", f"{short} Spot", 0.0)
    reserved = _row("Virtual Machines", location, name, product, short, short, sold.price * 8760)
    yield {**reserved, "type": "Reservation", "reservationTerm": "1 Year"}


def _row(
    service: str, location: str, name: str, product: str, sku: str, meter: str, price: float, unit: str = "1 Hour"
) -> Any:
    return {
        "currencyCode": "USD",
        "retailPrice": price,
        "unitPrice": price,
        "armRegionName": location,
        "meterName": meter,
        "productName": product,
        "skuName": sku,
        "serviceName": service,
        "unitOfMeasure": unit,
        "type": "Consumption",
        "isPrimaryMeterRegion": True,
        "armSkuName": name,
    }


def _selects(wanted: str, row: Any) -> bool:
    """Only what is written with `eq`, `and`, `or` and one level of brackets."""
    fields = {**row, "priceType": row["type"]}

    def is_so(term: str) -> bool:
        name, _, value = term.strip().partition(" eq ")
        if name not in fields or not re.fullmatch(r"'[^']*'", value):
            raise error(400, "BadRequest", f"no such filter: {term}")
        return bool(fields[name] == value.strip("'"))

    plain, _, choice = wanted.partition(" and (")
    return all(map(is_so, plain.split(" and "))) and (not choice or any(map(is_so, choice.rstrip(")").split(" or "))))


def over(name: str, location: str, limit: int, used: int, more: int) -> str:
    """As Azure words it."""
    what = "LowPriorityCores" if name == "lowPriorityCores" else f"{name} Cores"
    what = "Total Regional Cores" if name == "cores" else what
    return (
        f"Operation could not be completed as it results in exceeding approved {what} quota. Additional details - "
        f"Deployment Model: Resource Manager, Location: {location}, Current Limit: {limit}, Current Usage: {used}, "
        f"Additional Required: {more}, (Minimum) New Limit Required: {used + more}. Setup Alerts when Quota reaches "
        "threshold. Submit a request for Quota increase at https://aka.ms/ProdportalCRP/ by specifying parameters "
        "listed in the 'Details' section for deployment to succeed."
    )
