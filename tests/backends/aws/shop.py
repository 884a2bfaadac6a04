"""What things cost and how many one may have: prices, spot prices, quotas; and the parameters that name images.

moto has none of it. The prices are made up, by a rule; the rows are in the form that the Pricing API has, with the row
of a capacity block that costs nothing among them.
"""

from __future__ import annotations

import json
from datetime import timedelta
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from moto.ec2.models.instance_types import INSTANCE_TYPES

from tests.backends.aws.account import Account, Handler, page
from tests.backends.aws.rules import of_type, vcpus
from tests.backends.aws.wire import Call, Params, Refusal

IMAGES = {  # what AWS publishes in Parameter Store, of which moto has Amazon Linux alone
    f"/aws/service/deeplearning/ami/{arch}/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id": image
    for arch, image in (("x86_64", "ami-0d1a000000000001"), ("arm64", "ami-0d1a000000000002"))
}
# The first letters of a type, its quotas on demand and spot.
QUOTAS = (
    (("trn",), "L-2C3B7624", "L-6B0D517C"),
    (("inf",), "L-1945791B", "L-B5D1601B"),
    (("dl",), "L-6E869C2A", "L-85EED4F7"),
    (("p5",), "L-417A185B", "L-C4BD4855"),
    (("p",), "L-417A185B", "L-7212CCBC"),
    (("g", "vt"), "L-DB2E81BA", "L-3819A6DF"),
    (("a", "c", "d", "h", "i", "m", "r", "t", "z"), "L-1216C47A", "L-34B43A08"),
)
PLENTY = 100_000.0
# Where it sells, and how much dearer.
DEARER = {"us-east-1": 1.0, "us-east-2": 1.0, "us-west-2": 1.0, "eu-central-1": 1.15, "eu-west-1": 1.1}
VOLUMES = {"gp3": 0.08, "gp2": 0.1, "io2": 0.125}  # a GB and month


class Shop:
    def __init__(self, account: Account) -> None:
        self._account = account

    def handlers(self) -> dict[str, Handler]:
        return {
            "DescribeInstanceTypes": self.types,
            "DescribeInstanceTypeOfferings": self.offerings,
            "GetParameter": self.parameter,
            "GetProducts": self.products,
            "DescribeSpotPriceHistory": self.spot_prices,
            "GetServiceQuota": self.quota,
            "ListServiceQuotas": self.quotas,
        }

    def parameter(self, call: Call) -> Params:
        name = call.params["Name"]
        if name not in IMAGES:
            return self._account.moto(call)
        return {"Parameter": {"Name": name, "Type": "String", "Value": IMAGES[name], "Version": 1}}

    # --- types -------------------------------------------------------------------------------------------------------

    def types(self, call: Call) -> Params:
        """AWS's own descriptions of what is sold here: all of the 900 would take minutes, test by test."""
        wanted = call.params.get("InstanceTypes")
        if wanted and call.params.get("MaxResults"):
            raise Refusal("InvalidParameterCombination", "InstanceTypes can't be used with MaxResults")
        for name in wanted or ():
            of_type(name)
        found = [of_type(name) for name in wanted or self._account.script.sold]
        read = {"instance-type": lambda body: body["InstanceType"]}
        listed, token = page(_like(found, call, read), call.params, self._account.script.page)
        return {"InstanceTypes": listed, **({"NextToken": token} if token else {})}

    def offerings(self, call: Call) -> Params:
        script, kind = self._account.script, call.params.get("LocationType", "region")
        places = sorted(self._account.places.zones(call)) if kind == "availability-zone" else [call.region]
        found = [
            {"InstanceType": name, "LocationType": kind, "Location": place}
            for name in script.sold
            for place in places
            if f"{place}/{name}" not in script.not_offered
        ]
        read = {"instance-type": lambda body: body["InstanceType"], "location": lambda body: body["Location"]}
        listed, token = page(_like(found, call, read), call.params, script.page)
        return {"InstanceTypeOfferings": listed, **({"NextToken": token} if token else {})}

    # --- prices ------------------------------------------------------------------------------------------------------

    def products(self, call: Call) -> Params:
        wanted = {each["Field"]: each["Value"] for each in call.params.get("Filters", ())}
        if wanted.get("productFamily") == "Storage":
            kind = wanted["volumeApiName"]
            found = [_row_of_volume(kind, region) for region in DEARER] if kind in VOLUMES else []
            return {"FormatVersion": "aws_v1", "PriceList": found}
        name, region = wanted.get("instanceType"), wanted.get("regionCode")
        names = sorted(INSTANCE_TYPES) if name is None else [name] if name in INSTANCE_TYPES else []
        regions = DEARER if region is None else [region]
        rows = [(name, region, free) for name in names for region in regions for free in (False, True)]
        start, size = int(call.params.get("NextToken") or 0), min(int(call.params.get("MaxResults") or 100), 100)
        more = {"NextToken": str(start + size)} if start + size < len(rows) else {}
        shown = [_free_row(n, r) if free else _row(n, r, price(n, r)) for n, r, free in rows[start : start + size]]
        return {"FormatVersion": "aws_v1", "PriceList": shown, **more}

    def spot_prices(self, call: Call) -> Params:
        now = self._account.at()
        zones = sorted(self._account.places.zones(call))
        names = call.params.get("InstanceTypes") or sorted(INSTANCE_TYPES)
        rows = [(name, n, zone) for name in names for n, zone in enumerate(zones)]
        start, size = int(call.params.get("NextToken") or 0), min(int(call.params.get("MaxResults") or 1000), 1000)
        more = {"NextToken": str(start + size)} if start + size < len(rows) else {}
        shown = [
            {
                "InstanceType": name,
                "AvailabilityZone": zone,
                "ProductDescription": "Linux/UNIX",
                "SpotPrice": f"{spot_price(name, call.region, n):.6f}",
                "Timestamp": now - timedelta(hours=1),
            }
            for name, n, zone in rows[start : start + size]
        ]
        return {"SpotPriceHistory": shown, **more}

    # --- quotas ------------------------------------------------------------------------------------------------------

    def quota(self, call: Call) -> Params:
        code = call.params["QuotaCode"]
        if code not in {each for _, *codes in QUOTAS for each in codes}:
            raise Refusal("NoSuchResourceException", f"The quota {code} does not exist")
        return {"Quota": {"ServiceCode": "ec2", "QuotaCode": code, "Value": self._value(code)}}

    def quotas(self, call: Call) -> Params:
        codes = sorted({each for _, *codes in QUOTAS for each in codes} | {*self._account.script.quotas})
        return {"Quotas": [{"ServiceCode": "ec2", "QuotaCode": code, "Value": self._value(code)} for code in codes]}

    def limit(self, type_name: str, market: str) -> tuple[str, float] | None:
        """The error of a launch beyond the quota, and the quota; None: capacity blocks have none."""
        code = quota_code(type_name, market)
        if code is None:
            return None
        return "MaxSpotInstanceCountExceeded" if market == "spot" else "VcpuLimitExceeded", self._value(code)

    def _value(self, code: str) -> float:
        return self._account.script.quotas.get(code, PLENTY)


def quota_code(type_name: str, market: str) -> str | None:
    codes = next((codes for starts, *codes in QUOTAS if type_name.startswith(starts)), None)
    return None if codes is None or market == "capacity-block" else codes[market == "spot"]


@cache
def price(type_name: str, region: str = "us-east-1") -> float:
    gpus = sum(gpu.get("Count", 0) for gpu in of_type(type_name).get("GpuInfo", {}).get("Gpus", ()))
    return round((0.05 * vcpus(type_name) + 0.5 * gpus) * DEARER.get(region, 1.0), 6)


def disk_price(region: str, gib: float) -> float:
    """Dollars an hour, on gp3."""
    return volume_price("gp3", region) * gib / 730


def spot_price(type_name: str, region: str, zone: int) -> float:
    """In the zone of that number: a third of the price on demand, and a little more from zone to zone."""
    return price(type_name, region) * (0.3 + 0.01 * zone)


def _like(found: list[Params], call: Call, read: dict[str, Any]) -> list[Params]:
    """Filters of types may have wildcards."""
    for each in call.params.get("Filters", ()):
        if each["Name"] not in read:
            raise Refusal("InvalidParameterValue", f"The filter '{each['Name']}' is invalid")
        value = read[each["Name"]]
        found = [body for body in found if any(fnmatchcase(value(body), pattern) for pattern in each["Values"])]
    return found


@cache
def _row(name: str, region: str, dollars: float, term: str = "On Demand") -> str:
    dimension = {
        "unit": "Hrs",
        "pricePerUnit": {"USD": f"{dollars:.10f}"},
        "description": f"${dollars} per {term} Linux {name} Instance Hour",
    }
    attributes = {
        "instanceType": name,
        "regionCode": region,
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "capacitystatus": "Used",
        "preInstalledSw": "NA",
        "usagetype": f"BoxUsage:{name}",
        "vcpu": str(vcpus(name)),
    }
    terms = {"OnDemand": {f"{name}.A": {"priceDimensions": {f"{name}.A.B": dimension}}}}
    return json.dumps({"product": {"productFamily": "Compute Instance", "attributes": attributes}, "terms": terms})


def volume_price(kind: str, region: str) -> float:
    return round(VOLUMES[kind] * DEARER[region], 6)


def _row_of_volume(kind: str, region: str) -> str:
    dollars = volume_price(kind, region)
    description = f"${dollars} per GB-month of {kind} provisioned storage - {region}"
    dimension = {"unit": "GB-Mo", "pricePerUnit": {"USD": f"{dollars:.10f}"}, "description": description}
    attributes = {"volumeApiName": kind, "regionCode": region, "usagetype": f"EBS:VolumeUsage.{kind}"}
    terms = {"OnDemand": {f"{kind}.A": {"priceDimensions": {f"{kind}.A.B": dimension}}}}
    return json.dumps({"product": {"productFamily": "Storage", "attributes": attributes}, "terms": terms})


def _free_row(name: str, region: str) -> str:
    return _row(name, region, 0.0, "Capacity Block")
