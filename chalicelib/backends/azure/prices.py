"""Prices of machines and disks, from Azure's public price list, by region; kept for a day.

The list has rows for Windows, for other services that run on machines, and for a kind of machine that came before spot:
these are dropped. It has no login and no promise to answer, so the operator's price file steps in, if there is one, and
where the list lacks a size.

A disk costs what the next larger step costs, not what its size would.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from chalicelib.backends.azure.client import AzureClient
from chalicelib.backends.azure.places import Body
from chalicelib.backends.kit.cache import LookupCache
from chalicelib.backends.kit.clock import Now
from chalicelib.backends.kit.tables import table
from chalicelib.backends.price_file import OfflinePrices
from chalicelib.domain.instants import DAY
from chalicelib.errors import BackendError

log = logging.getLogger(__name__)

AT_ONCE = 15  # sizes in one filter
DISKS = table("azure/prices.toml")


@dataclass(frozen=True)
class Price:
    """Of a size, in dollars an hour; None: unknown, or not sold."""

    on_demand: float | None = None
    spot: float | None = None
    source: str = ""  # if it isn't Azure


class AzurePrices:
    def __init__(self, client: AzureClient, now: Now, offline: OfflinePrices | None = None) -> None:
        self._client, self._offline = client, offline
        self._machines: LookupCache[Mapping[str, Price]] = LookupCache(now, DAY, keeps=bool)
        self._disks: LookupCache[Mapping[str, float]] = LookupCache(now, DAY, keeps=bool)

    def of_machines(self, region: str, names: Collection[str]) -> Mapping[str, Price]:
        """Prices by size. The file has those that the list doesn't have."""
        listed: Mapping[str, Price] = {}
        try:
            key = " ".join([region, *sorted(names)])
            listed = self._machines.get(key, lambda: self._fetched(region, sorted(names)))
        except BackendError as error:
            if self._offline is None:
                raise
            log.warning("the prices of %s are from a file: %s", region, error)
        rows = self._offline.of("azure") if self._offline else {}
        origin = self._offline.origin if self._offline else ""
        filed = {name: Price(*rows[name, region], origin) for name in names if (name, region) in rows}
        return {**filed, **listed}

    def _fetched(self, region: str, names: list[str]) -> Mapping[str, Price]:
        found: dict[str, Price] = {}
        for start in range(0, len(names), AT_ONCE):
            some = " or ".join(f"armSkuName eq '{name}'" for name in names[start : start + AT_ONCE])
            wanted = f"serviceName eq 'Virtual Machines' and armRegionName eq '{region}' and priceType eq 'Consumption'"
            for row in self._client.prices(f"{wanted} and ({some})"):
                _note(found, row)
        return found

    def of_disk(self, region: str, kind: str, gib: int) -> float | None:
        """A month of a disk of that size; None: the price list doesn't say. `kind`: E or P, for Standard
        and Premium SSD."""
        step = next((number for size, number in DISKS["steps"] if size >= gib), None)
        try:
            rates = self._disks.get(f"{region} {kind}", lambda: self._of_disks(region, kind))
        except BackendError as error:
            log.warning("the prices of disks in %s aren't known: %s", region, error)
            return None
        return rates.get(f"{kind}{step} LRS Disk")

    def _of_disks(self, region: str, kind: str) -> Mapping[str, float]:
        wanted = f"serviceName eq 'Storage' and armRegionName eq '{region}' and priceType eq 'Consumption'"
        rows = self._client.prices(f"{wanted} and productName eq '{DISKS['products'][kind]}'")
        return {str(row["meterName"]): float(row["retailPrice"]) for row in rows if row["retailPrice"] > 0}


def _note(found: dict[str, Price], row: Body) -> None:
    name, price = str(row["armSkuName"]), float(row["retailPrice"])
    sold_as = f"{row.get('skuName', '')} {row.get('meterName', '')}"
    product = str(row.get("productName", ""))
    if price <= 0 or row.get("unitOfMeasure") != "1 Hour":
        return
    if "Windows" in product or "Cloud Services" in product or "Low Priority" in sold_as:
        return
    if row.get("currencyCode", "USD") != "USD" or not row.get("isPrimaryMeterRegion", True):
        return
    known = found.get(name, Price())
    if "Spot" in sold_as:
        found[name] = Price(known.on_demand, max(price, known.spot or 0.0))
    else:
        found[name] = Price(max(price, known.on_demand or 0.0), known.spot)
