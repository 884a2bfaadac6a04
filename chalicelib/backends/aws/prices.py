"""Prices of machines (on demand by type and region, spot by zone, too) and of volumes.

Prices are fetched per type, with one call for all regions, a few types at a time, and cached for a day. AWS throttles
faster callers, and a throttled refresh continues where it stopped. An account that may not read prices uses the
operator's price file, if there is one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from chalicelib.backends.aws.client import Clients
from chalicelib.backends.aws.places import usual_zone
from chalicelib.backends.kit.cache import LookupCache
from chalicelib.backends.kit.clock import Now
from chalicelib.backends.price_file import OfflinePrices
from chalicelib.domain.instants import DAY, SECOND
from chalicelib.errors import MissingPermission

HOME = "us-east-1"  # one of the few regions that publish the prices of all regions
AT_ONCE = 4
LINUX = "Linux/UNIX"

_USUAL = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "capacitystatus": "Used",
    "preInstalledSw": "NA",
    "licenseModel": "No License required",
}
_DISKS = {"productFamily": "Storage", "locationType": "AWS Region"}
Regional = Mapping[str, float]


class Prices:
    def __init__(self, clients: Clients, now: Now, offline: OfflinePrices | None = None) -> None:
        self._clients, self._now, self._offline = clients, now, offline
        self._known = LookupCache[Regional](now, DAY, keeps=bool)  # by type

    def on_demand(self, names: Iterable[str]) -> tuple[Mapping[str, Regional], str]:
        """Prices by type and region, and their source if it isn't AWS."""
        names = sorted(set(names))
        try:
            with ThreadPoolExecutor(AT_ONCE) as pool:
                return dict(zip(names, pool.map(self._of_machine, names), strict=True)), ""
        except MissingPermission:
            if self._offline is None:
                raise
        found: dict[str, dict[str, float]] = {}
        for (name, region), (price, _) in self._offline.of("aws").items():
            if price is not None:
                found.setdefault(name, {})[region] = price
        return found, self._offline.origin

    def of_volume(self, kind: str, region: str) -> float | None:
        """Of a GB for a month, on a volume of this type; None: neither AWS nor the file says it."""
        try:
            return self._of(kind, {**_DISKS, "volumeApiName": kind}, "GB-Mo").get(region)
        except MissingPermission:
            if self._offline is None:
                raise
            return self._offline.of("aws").get((kind, region), (None, None))[0]

    def _of_machine(self, name: str) -> Regional:
        return self._of(name, {**_USUAL, "instanceType": name}, "Hrs")

    def _of(self, name: str, wanted: Mapping[str, str], unit: str) -> Regional:
        return self._known.get(name, lambda: self._listed(wanted, unit))

    def _listed(self, wanted: Mapping[str, str], unit: str) -> Regional:
        filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()]
        parameters = {"ServiceCode": "AmazonEC2", "Filters": filters, "MaxResults": 100}
        found: dict[str, float] = {}
        for row in self._clients.pages("pricing", HOME, "get_products", "PriceList", **parameters):
            found.update(_priced(str(row), unit))
        return found

    def spot(self, region: str, names: Sequence[str]) -> Mapping[str, Mapping[str, float]]:
        """The present prices in the zones of a region, by type; of the file, under the zone `""`."""
        now = datetime.fromtimestamp(self._now() / SECOND, UTC)
        found: dict[str, dict[str, float]] = {}
        parameters = {
            "InstanceTypes": list(names),
            "ProductDescriptions": [LINUX],
            "StartTime": now,
            "MaxResults": 1000,
        }
        try:
            for each in self._clients.pages(
                "ec2", region, "describe_spot_price_history", "SpotPriceHistory", **parameters
            ):
                if usual_zone(each["AvailabilityZone"]):
                    zones = found.setdefault(each["InstanceType"], {})
                    zones.setdefault(each["AvailabilityZone"], float(each["SpotPrice"]))  # the newest comes first
        except MissingPermission:
            if self._offline is None:
                raise
            for (name, there), (_, price) in self._offline.of("aws").items():
                if there == region and price is not None:
                    found[name] = {"": price}
        return found


def _priced(row: str, unit: str) -> Regional:
    """Region and price of one row. Those of capacity blocks pass the same filters, and cost nothing."""
    body = json.loads(row)
    region = body["product"]["attributes"].get("regionCode", "")
    for term in body["terms"].get("OnDemand", {}).values():
        for dimension in term["priceDimensions"].values():
            price = float(dimension["pricePerUnit"].get("USD", 0))
            if price > 0 and dimension["unit"] == unit and "Capacity Block" not in dimension.get("description", ""):
                return {region: price}
    return {}
