"""What Google sells of TPUs, where, and what that costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SPOT = 0.4
DEARER = {"europe-west4": 1.1, "us-central1": 1.0}
PLACES = {"europe-west4": "Netherlands", "us-central1": "Iowa"}
COMPUTE, OLD = "6F81-5844-456A", "E000-3F24-B8AA"
CHIPS = {"TpuV5e": 1.2, "TpuV5p": 4.2, "TpuV6e": 2.7}  # an hour of one
DEVICES = {"Tpu-v2": 4.5, "Tpu-v3": 8.0}  # of eight cores
LITE = ("v5litepod-1", "v5litepod-4", "v5litepod-8", "v5litepod-16", "v5litepod-256")
ZONES: Mapping[str, tuple[str, ...]] = {
    "europe-west4-a": ("v3-8", "v3-32", "v6e-1", "v6e-4", "v6e-8", "v6e-16", *LITE),
    "europe-west4-b": LITE,
    "us-central1-a": (*LITE, "v5p-8", "v5p-16"),
    "us-central1-b": (*LITE, "v2-8", "v2-32", "v4-8"),
    "us-central1-c": (*LITE, "tpu7x-8"),
    "us-central2-b": ("v4-8", "v4-16"),
}
PODS = {"Tpu-v2": 6.0, "Tpu-v3": 10.64}  # an hour of eight cores of a slice of several hosts, on demand alone
TOPOLOGIES: Mapping[str, str] = {
    "v2-32": "4x4",
    "v3-32": "4x4",
    "v4-16": "2x2x2",
    "v5litepod-16": "4x4",
    "v5litepod-256": "16x16",
    "v5p-16": "2x2x2",
    "v6e-16": "4x4",
}
CLOSED = ("us-central1-f",)  # to this project
RUNTIMES = {
    "v2": "tpu-ubuntu2204-base",
    "v3": "tpu-ubuntu2204-base",
    "v5litepod": "v2-alpha-tpuv5-lite",
    "v5p": "v2-alpha-tpuv5",
    "v6e": "v2-alpha-tpuv6e",
}
BILLED = {"v2": "Tpu-v2", "v3": "Tpu-v3", "v5litepod": "TpuV5e", "v5p": "TpuV5p", "v6e": "TpuV6e"}


def chips(name: str) -> int:
    """Those called by cores have two of these each."""
    family, _, number = name.partition("-")
    return int(number) if family in ("v5litepod", "v6e") else int(number) // 2


def hosts(name: str) -> int:
    """Each of several has four chips."""
    return chips(name) // 4 if name in TOPOLOGIES else 1


def price(name: str, region: str, *, spot: bool) -> float:
    """Of a host, with its address."""
    part = BILLED[name.partition("-")[0]]
    devices = PODS if hosts(name) > 1 else DEVICES
    hour = CHIPS[part] * chips(name) / hosts(name) if part in CHIPS else devices[part]
    return hour * DEARER[region] * (SPOT if spot else 1) + (0.0025 if spot else 0.005)


def skus() -> list[tuple[str, dict[str, Any]]]:
    """Each with its service."""
    found: list[tuple[str, dict[str, Any]]] = []

    def add(service: str, text: str, region: str, dollars: float, market: str = "OnDemand") -> None:
        number = f"{0x7000 + len(found):04X}"
        rate = {"currencyCode": "USD", "units": str(int(dollars)), "nanos": round(dollars % 1 * 1e9)}
        body = {
            "name": f"services/{service}/skus/{number}",
            "skuId": number,
            "description": text,
            "category": {"resourceFamily": "Compute", "resourceGroup": "TPU", "usageType": market},
            "serviceRegions": [region],
            "pricingInfo": [
                {"pricingExpression": {"usageUnit": "h", "tieredRates": [{"startUsageAmount": 0, "unitPrice": rate}]}}
            ],
        }
        found.append((service, body))

    for region, place in PLACES.items():
        for part, usual in CHIPS.items():
            hour = usual * DEARER[region]
            add(COMPUTE, f"{part} running in {place}", region, hour)
            taken = f"{part} attached to Spot Preemptible VMs running in {place}"
            add(COMPUTE, taken, region, hour * SPOT, "Preemptible")
            # What looks like it, and is something else.
            add(COMPUTE, f"{part} attached to DWS Defined Duration VMs running in {place}", region, 0.01)
            add(COMPUTE, f"Reserved {part.removeprefix('Tpu')} TPU in Calendar Mode in {place}", region, 99.0)
            add(COMPUTE, f"Commitment v1: {part} in {place} for 1 Year", region, 0.01, "Commit1Yr")
        for part, usual in DEVICES.items():
            hour = usual * DEARER[region]
            add(OLD, f"{part} Accelerator in {place}", region, hour)
            add(OLD, f"Preemptible {part} Accelerator in {place}", region, hour * SPOT)
            add(OLD, f"{part} Pod Accelerator in {place}", region, PODS[part] * DEARER[region])
            add(OLD, f"{part} Pod Accelerator Commitment in {place}", region, 77.0, "Commit1Yr")
            add(OLD, f"{part} Accelerator Commitment in {place}", region, 88.0, "Commit1Yr")
    return found
