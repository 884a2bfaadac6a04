"""Nebius's offers: every preset of every platform in each project, on demand and, where it is sold, preemptible.

The calculator prices all of them in one call for a project. The price includes the disk, whose size depends on the run
or fleet. What the advice on capacity and the quotas say is a hint: without the right to read them, an offer's
availability is unknown.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chalicelib.backends.kit.gpus import gpu
from chalicelib.backends.kit.hints import hint
from chalicelib.backends.kit.offers import GIB, machine, made_to_order
from chalicelib.backends.kit.regions import listed_everywhere
from chalicelib.backends.nebius.client import NebiusClient
from chalicelib.backends.nebius.launch import DISK, LARGEST_DISK, PREEMPTIBLE
from chalicelib.backends.nebius.places import Places
from chalicelib.backends.nebius.prices import create, hourly
from chalicelib.backends.nebius.reservations import is_for, left, reservations
from chalicelib.domain.offers import Availability, Gpu, Interconnect, Offer, OfferTerms
from chalicelib.errors import Transient

log = logging.getLogger(__name__)

LEAST_DISK = 100  # GiB
GRACE = "gpu-gb"  # platforms of ARM machines that are sold as whole racks
INFINIBAND = Interconnect(  # a card for each of the eight GPUs
    name="InfiniBand",
    env={"NCCL_IB_HCA": "mlx5", "UCX_NET_DEVICES": ",".join(f"mlx5_{card}:1" for card in range(8))},
)
_CARD = re.compile(r"gpu-([a-z0-9]+)")
_CARDS = {"rtx6000": "RTX PRO 6000"}  # whose platform has another name
_SURE = ("AVAILABILITY_LEVEL_HIGH", "AVAILABILITY_LEVEL_MEDIUM", "AVAILABILITY_LEVEL_LOW")

Body = Mapping[str, Any]


@dataclass(frozen=True)
class Advice:
    """What Nebius says of one preset in a region, over all fabrics."""

    fabrics: Mapping[str, int]  # how many machines each has room for; those of the smallest number are last
    available: Mapping[str, bool]  # by market: `on_demand`, `preemptible`


@dataclass(frozen=True)
class _Hints:
    """What is known of a tenant's capacity."""

    advice: Mapping[tuple[str, str, str], Advice]  # by region, platform and preset
    quotas: Mapping[tuple[str, str], int]  # by region and name
    reserved: Sequence[Body]


class NebiusCatalog:
    def __init__(self, client: NebiusClient, places: Places, fabrics: Sequence[str] | None) -> None:
        self._client, self._places, self._fabrics = client, places, fabrics

    def offers(self) -> Sequence[Offer]:
        """All offers. Raises if a region doesn't answer, because an incomplete catalog would look like a complete
        one."""
        regions = sorted(self._places.projects())
        hints = _Hints(self.advice(), self._quotas(), reservations(self._client, self._places))
        return list(listed_everywhere(regions, lambda region: self._region(region, hints)))

    def advice(self) -> Mapping[tuple[str, str, str], Advice]:
        """By region, platform and preset; nothing without the right to read it."""
        rows: dict[tuple[str, str, str], list[Body]] = {}
        for each in self._of_tenant("capacity.v1.ResourceAdviceService", "the regions where Nebius has capacity"):
            spec = each["spec"]
            kind = spec.get("compute_instance", {})
            key = (
                str(spec.get("region", "")),
                str(kind.get("platform", "")),
                str(kind.get("preset", {}).get("name", "")),
            )
            rows.setdefault(key, []).append(each)
        return {key: self._advice(found) for key, found in rows.items()}

    def _advice(self, rows: Sequence[Body]) -> Advice:
        room = {
            str(each["spec"]["fabric"]): int(each.get("status", {}).get("on_demand", {}).get("available", 0))
            for each in rows
            if each["spec"].get("fabric") and (not self._fabrics or each["spec"]["fabric"] in self._fabrics)
        }
        best = sorted(room, key=lambda fabric: (-room[fabric], fabric))
        return Advice(
            {fabric: room[fabric] for fabric in best},
            {market: any(_has_room(each, market) for each in rows) for market in ("on_demand", "preemptible")},
        )

    def _quotas(self) -> Mapping[tuple[str, str], int]:
        return {
            (str(each["spec"].get("region", "")), str(each["metadata"].get("name", ""))): int(each["spec"]["limit"])
            for each in self._of_tenant("quotas.v1.QuotaAllowanceService", "Nebius's quotas")
            if "limit" in each["spec"]
        }

    def _of_tenant(self, service: str, what: str) -> list[dict[str, Any]]:
        wanted = {"parent_id": self._places.tenant()}
        return hint(lambda: list(self._client.listed(service, wanted)), [], what)

    def _region(self, region: str, hints: _Hints) -> list[Offer]:
        project = self._places.project(region)
        listed = list(self._client.listed("compute.v1.PlatformService", {"parent_id": project}, region=region))
        sold = [each for platform in listed for each in _sold(region, platform, hints)]
        prices = self._prices(region, project, sold)
        disk = prices.get(DISK)
        if disk is None:
            raise Transient(f"Nebius's calculator returned no price of a disk in {region}.")
        if unpriced := sorted(offer.key for offer in sold if _named(offer) not in prices):
            log.warning("Nebius's calculator returned no price of %s", ", ".join(unpriced))
        priced = [_priced(offer, prices[_named(offer)], disk) for offer in sold if _named(offer) in prices]
        return [*priced, *(one for offer in priced for one in _in_reservations(offer, hints.reserved))]

    def _prices(self, region: str, project: str, offers: Sequence[Offer]) -> dict[str, float]:
        """Dollars an hour, by the name of what is priced."""
        disk = create("Disk", project, DISK, {"type": DISK, "size_gibibytes": str(LEAST_DISK)})
        return hourly(self._client, region, [*(_machine(project, offer) for offer in offers), disk])


def _has_room(row: Body, market: str) -> bool:
    found = row.get("status", {}).get(market, {})
    return found.get("data_state") == "DATA_STATE_FRESH" and found.get("availability_level") in _SURE


def _sold(region: str, platform: Body, hints: _Hints) -> Iterator[Offer]:
    """Without prices."""
    name, spec = str(platform["metadata"]["name"]), platform.get("spec", {})
    if name.startswith(GRACE):
        return
    markets = (False, True) if platform.get("status", {}).get("allowed_for_preemptibles") else (False,)
    quota = hints.quotas.get((region, str(spec.get("gpu_count_quota_type", ""))))
    for preset in spec.get("presets", ()):
        has = preset["resources"]
        cards = _cards(name, spec, int(has.get("gpu_count", 0)))
        if cards is None:
            continue
        found = hints.advice.get((region, name, str(preset["name"])))
        private: dict[str, Any] = {}
        if preset.get("allow_gpu_clustering"):
            private = {"fabrics": list(found.fabrics) if found else [], "interconnect": INFINIBAND}
        for spot in markets:
            yield machine(
                "nebius",
                f"{name} {preset['name']}",
                region,
                0.0,
                cpus=int(has["vcpu_count"]),
                memory_mib=int(has["memory_gibibytes"]) * GIB,
                gpus=cards,
                spot=spot,
                disk_gib=LEAST_DISK,
                terms=OfferTerms.model_validate(private),
                availability=_availability(found, len(cards), None if spot else quota, spot=spot),
            )


def _cards(platform: str, spec: Body, count: int) -> tuple[Gpu, ...] | None:
    """One for each; None if the platform's card isn't known, so that nobody could ask for it."""
    if not count:
        return ()
    found = _CARD.match(platform)
    memory = int(spec.get("gpu_memory_gigabytes", 0)) * GIB
    card = gpu(_CARDS.get(found[1], found[1].upper()), memory, "nvidia") if found else None
    return None if card is None else (card,) * count


def _availability(advice: Advice | None, gpus: int, quota: int | None, *, spot: bool) -> Availability:
    """What is full now may have room before the offers are fetched again."""
    if quota is not None and quota < gpus:
        return Availability.no_quota
    if advice is not None and advice.available["preemptible" if spot else "on_demand"]:
        return Availability.available
    return Availability.unknown


def _priced(offer: Offer, hour: float, disk: float) -> Offer:
    terms = offer.terms.with_(disk=made_to_order(LARGEST_DISK, disk / LEAST_DISK))
    return offer.with_(terms=terms, price=round(hour + disk, 6))


def _in_reservations(offer: Offer, reserved: Sequence[Body]) -> Iterator[Offer]:
    """The same machine in each reservation that is for it, at its price: what the contract bills isn't told."""
    if offer.instance.resources.spot:
        return
    for each in reserved:
        if is_for(each, offer.region, offer.instance.name.partition(" ")[0]):
            terms = offer.terms.with_(reservation=str(each["metadata"]["id"]))
            yield offer.with_(terms=terms, availability=left(each))


def _named(offer: Offer) -> str:
    return f"{offer.instance.name} {'spot' if offer.instance.resources.spot else 'on-demand'}"


def _machine(project: str, offer: Offer) -> Body:
    """Without a disk, which is priced by itself."""
    platform, _, preset = offer.instance.name.partition(" ")
    market = PREEMPTIBLE if offer.instance.resources.spot else {}
    return create("Instance", project, _named(offer), {"resources": {"platform": platform, "preset": preset}, **market})
