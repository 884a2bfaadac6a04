"""What Google sells in two regions: types, and the price list that they are told by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

REGIONS = {
    "europe-west4": ("europe-west4-a", "europe-west4-b", "europe-west4-c"),
    "us-central1": ("us-central1-a", "us-central1-ai1a", "us-central1-b", "us-central1-c", "us-central1-f"),
}
PLACES = {"europe-west4": "Netherlands", "us-central1": "Americas"}
DEARER = {"europe-west4": 1.1, "us-central1": 1.0}


@dataclass(frozen=True)
class Type:
    name: str
    cpus: int
    memory_gb: float
    card: str = ""
    cards: int = 0
    ssds: int = 0
    zones: tuple[str, ...] = ("a", "b", "c")
    arm: bool = False
    parts: tuple[tuple[str, float], ...] = ()  # what it is billed as, and how much of it
    markets: tuple[str, ...] = ("STANDARD", "SPOT")
    disks: tuple[str, ...] = ("pd-balanced", "pd-ssd", "hyperdisk-balanced")


def _made(family: str, cpus: float, memory: float, *more: tuple[str, float]) -> tuple[tuple[str, float], ...]:
    return (f"{family} Instance Core", cpus), (f"{family} Instance Ram", memory), *more


_SSD = "SSD backed Local Storage"
HYPER = ("hyperdisk-balanced", "hyperdisk-ml")
TYPES = {
    each.name: each
    for each in (
        Type("e2-medium", 2, 4, parts=_made("E2", 1, 4)),
        Type("e2-standard-4", 4, 16, parts=_made("E2", 4, 16)),
        Type("n2-standard-2", 2, 8, parts=_made("N2", 2, 8)),
        Type("n2-standard-8", 8, 32, parts=_made("N2", 8, 32)),
        Type("c4a-standard-4", 4, 16, arm=True, parts=_made("C4A Arm", 4, 16), disks=HYPER),
        Type("n1-standard-4", 4, 15, parts=_made("N1 Predefined", 4, 15)),
        Type("n1-standard-32", 32, 120, parts=_made("N1 Predefined", 32, 120)),
        Type("g2-standard-4", 4, 16, "nvidia-l4", 1, parts=_made("G2", 4, 16, ("Nvidia L4 GPU", 1))),
        Type("g2-standard-24", 24, 96, "nvidia-l4", 2, parts=_made("G2", 24, 96, ("Nvidia L4 GPU", 2))),
        Type(
            "g4-standard-48",
            48,
            180,
            "nvidia-rtx-pro-6000",
            1,
            zones=("b",),
            parts=_made("G4", 48, 180, ("RTX 6000 96GB", 1)),
            disks=HYPER,
        ),
        Type("a2-highgpu-1g", 12, 85, "nvidia-tesla-a100", 1, parts=_made("A2", 12, 85, ("Nvidia Tesla A100 GPU", 1))),
        Type(
            "a2-ultragpu-1g",
            12,
            170,
            "nvidia-a100-80gb",
            1,
            1,
            parts=_made("A2", 12, 170, ("Nvidia Tesla A100 80GB GPU", 1), (_SSD, 375 / 730)),
        ),
        Type(
            "a3-highgpu-1g",
            26,
            234,
            "nvidia-h100-80gb",
            1,
            2,
            parts=_made("A3", 26, 234, ("Nvidia H100 80GB GPU", 1), (_SSD, 2 * 375 / 730)),
            markets=("SPOT",),
        ),
        Type(
            "a3-highgpu-8g",
            208,
            1872,
            "nvidia-h100-80gb",
            8,
            16,
            parts=_made("A3", 208, 1872, ("Nvidia H100 80GB GPU", 8), (_SSD, 16 * 375 / 730)),
        ),
        Type(
            "a3-megagpu-8g",
            208,
            1872,
            "nvidia-h100-mega-80gb",
            8,
            16,
            zones=("a", "c"),
            parts=_made("A3Plus", 208, 1872, ("Nvidia H100 80GB Plus GPU", 8), (_SSD, 16 * 375 / 730)),
        ),
        Type(
            "a4-highgpu-8g",
            224,
            3968,
            "nvidia-b200",
            8,
            32,
            zones=("b", "c"),
            parts=(("A4 Nvidia B200 (1 gpu slice)", 8),),
            markets=("SPOT",),
            disks=HYPER,
        ),
        Type(
            "a4x-highgpu-4g",
            140,
            884,
            "nvidia-gb200",
            4,
            32,
            zones=("b",),
            arm=True,
            parts=(("A4X Nvidia GB200 (1 gpu slice)", 4),),
            markets=(),
            disks=HYPER,
        ),
    )
}
T4_ZONES = ("us-central1-a", "us-central1-b", "europe-west4-b")
T4_CPUS = {1: 24, 2: 48, 4: 96}
# Dollars an hour in us-central1, on demand; of disks a month.
RATES = {
    "E2 Instance Core": 0.021811,
    "E2 Instance Ram": 0.002923,
    "N2 Instance Core": 0.031611,
    "N2 Instance Ram": 0.004237,
    "N1 Predefined Instance Core": 0.031611,
    "N1 Predefined Instance Ram": 0.004237,
    "C4A Arm Instance Core": 0.0338,
    "C4A Arm Instance Ram": 0.0038,
    "G2 Instance Core": 0.024988,
    "G2 Instance Ram": 0.002927,
    "G4 Instance Core": 0.03,
    "G4 Instance Ram": 0.0029,
    "A2 Instance Core": 0.031611,
    "A2 Instance Ram": 0.004237,
    "A3 Instance Core": 0.029304,
    "A3 Instance Ram": 0.002552,
    "A3Plus Instance Core": 0.029304,
    "A3Plus Instance Ram": 0.002552,
    "Nvidia Tesla T4 GPU": 0.35,
    "Nvidia L4 GPU": 0.560004,
    "RTX 6000 96GB": 2.5,
    "Nvidia Tesla A100 GPU": 2.933908,
    "Nvidia Tesla A100 80GB GPU": 3.93,
    "Nvidia H100 80GB GPU": 9.796550,
    "Nvidia H100 80GB Plus GPU": 10.344276,
    "A4 Nvidia B200 (1 gpu slice)": 16.11,
    "A4X Nvidia GB200 (1 gpu slice)": 18.2,
}
SPOT = 0.4  # of the price on demand
DISK_RATES = {"Balanced PD Capacity": 0.1, "Hyperdisk Balanced Capacity": 0.08, _SSD: 0.08}
OF_DISK = {"pd-balanced": "Balanced PD Capacity", "hyperdisk-balanced": "Hyperdisk Balanced Capacity"}
HYPER_FAMILIES = ("g4", "a4", "a4x")
ADDRESS = {False: 0.005, True: 0.0025}


def rate(part: str, region: str, *, spot: bool) -> float:
    usual = {**RATES, **DISK_RATES}[part] * DEARER[region]
    return round(usual * (SPOT if spot else 1), 6)


def price(name: str, region: str, *, spot: bool, t4s: int = 0, disk_gib: float = 100) -> float:
    """An hour of a machine with its disk and its address."""
    kind = TYPES[name]
    parts = (*kind.parts, *([("Nvidia Tesla T4 GPU", t4s)] if t4s else []))
    hyper = name.partition("-")[0] in HYPER_FAMILIES
    disk = rate(OF_DISK["hyperdisk-balanced" if hyper else "pd-balanced"], region, spot=False) / 730
    return sum(rate(part, region, spot=spot) * much for part, much in parts) + disk * disk_gib + ADDRESS[spot]


@dataclass
class _Sku:
    description: str
    regions: list[str]
    dollars: float
    unit: str = "h"
    market: str = "OnDemand"
    group: str = "CPU"
    tiers: list[float] = field(default_factory=list)

    def body(self, number: int) -> dict[str, Any]:
        rates = [
            {"startUsageAmount": at, "unitPrice": _money(dollars)}
            for at, dollars in enumerate([*self.tiers, self.dollars])
        ]
        expression = {"usageUnit": self.unit, "displayQuantity": 1, "tieredRates": rates}
        return {
            "name": f"services/6F81-5844-456A/skus/{number:04X}",
            "skuId": f"{number:04X}",
            "description": self.description,
            "category": {
                "serviceDisplayName": "Compute Engine",
                "resourceFamily": "Compute",
                "resourceGroup": self.group,
                "usageType": self.market,
            },
            "serviceRegions": self.regions,
            "pricingInfo": [{"pricingExpression": expression, "currencyConversionRate": 1}],
            "serviceProviderName": "Google",
        }


def skus() -> list[dict[str, Any]]:
    return [sku.body(number) for number, sku in enumerate(_listed(), 1)]


def _listed() -> Iterator[_Sku]:
    for region, place in PLACES.items():
        here = [region]
        for part in RATES:
            unit = "GiBy.h" if part.endswith("Ram") else "h"
            card = "GPU" in part or "96GB" in part or "slice" in part
            yield _Sku(f"{part} running in {place}", here, rate(part, region, spot=False), unit)
            of_spot = rate(part, region, spot=True)
            taken = f"{part} attached to Spot Preemptible VMs running in {place}"
            yield _Sku(
                taken if card else f"Spot Preemptible {part} running in {place}", here, of_spot, unit, "Preemptible"
            )
            # What looks like it, and is something else.
            yield _Sku(f"Commitment v1: {part} in {place} for 1 Year", here, 0.001, unit, "Commit1Yr")
            yield _Sku(f"Reserved {part} in {place} in Calendar Mode", here, 99.0, unit)
            yield _Sku(f"{part} attached to DWS Defined Duration VMs running in {place}", here, 88.0, unit)
        yield _Sku(f"N2 Custom Instance Core running in {place}", here, 77.0)
        yield _Sku(f"N2 Sole Tenancy Instance Core running in {place}", here, 77.0)
        yield _Sku(f"E2 Instance Core running in {place}", here, 0.0, market="OnDemand")
        for part in DISK_RATES:
            yield _Sku(f"{part} in {place}", here, rate(part, region, spot=False), "GiBy.mo", tiers=[0.0])
        of_ssd = f"{_SSD} attached to Spot Preemptible VMs in {place}"
        yield _Sku(of_ssd, here, rate(_SSD, region, spot=True), "GiBy.mo", "Preemptible")
        yield _Sku(f"Balanced PD Capacity in {place}", here, 5.0, "GiBy.mo", "Commit1Yr")


def reprice(body: dict[str, Any], factor: float) -> None:
    """Of a row of the list: all its tiers."""
    for each in body["pricingInfo"][0]["pricingExpression"]["tieredRates"]:
        each["unitPrice"] = _money(factor * (int(each["unitPrice"]["units"]) + each["unitPrice"]["nanos"] / 1e9))


def _money(dollars: float) -> dict[str, Any]:
    units = int(dollars)
    return {"currencyCode": "USD", "units": str(units), "nanos": round((dollars - units) * 1e9)}
