"""What Lambda sells: each type in each region, with its price.

Lambda says in which regions a type is available at the moment, which changes by the minute, and not where it is sold at
all. So types are offered in every region, and just before a launch those with capacity are looked up: an offer without
is refused then, and takes nothing from the few launches that an account may make.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from chalicelib.backends.kit.cache import LookupCache
from chalicelib.backends.kit.clock import Now
from chalicelib.backends.kit.gpus import gpu
from chalicelib.backends.kit.offers import GIB, machine
from chalicelib.backends.lambda_cloud.client import Body, LambdaClient
from chalicelib.domain.gpu_names import WITH_ARM, squeeze
from chalicelib.domain.instants import HOUR, MINUTE
from chalicelib.domain.offers import Availability, Offer
from chalicelib.errors import InsufficientCapacity, Unfit

CAPACITY_LASTS = MINUTE  # what Lambda has said of it


class LambdaCatalog:
    def __init__(self, client: LambdaClient, now: Now, regions: Sequence[str] | None) -> None:
        self._client, self._only = client, regions
        self._types = LookupCache[Mapping[str, Body]](now, CAPACITY_LASTS)
        self._regions = LookupCache[Sequence[str]](now, HOUR)

    def forget(self) -> None:
        """Where there was capacity: a launch has just shown that it has gone."""
        self._types.clear()

    def regions(self) -> Sequence[str]:
        return self._regions.get("", self._client.regions)

    def offers(self) -> Sequence[Offer]:
        """The types are looked up anew, and last: if that call is too early, the next attempt begins with it."""
        regions = self._only or self.regions()
        self.forget()
        kinds = self._kinds()
        return [offer for kind in kinds.values() for region in regions for offer in _offer(kind, region)]

    def check_capacity(self, offer: Offer) -> None:
        name = offer.instance.name
        kind = self._kinds().get(name)
        if kind is None:
            raise Unfit(f"Lambda has no instance type {name}.")
        if offer.region not in _with_capacity(kind):
            raise InsufficientCapacity(f"Lambda has no {name} left in {offer.region}.")

    def _kinds(self) -> Mapping[str, Body]:
        return self._types.get("", self._client.instance_types)


def _offer(kind: Body, region: str) -> Iterator[Offer]:
    """None for a type whose price or GPU is unknown."""
    body = kind["instance_type"]
    specs, cents = body["specs"], int(body["price_cents_per_hour"])
    count = int(specs["gpus"])
    card = gpu(str(body["gpu_description"])) if count else None
    if cents <= 0 or (count and card is None):
        return
    yield machine(
        "lambda",
        str(body["name"]),
        region,
        cents / 100,
        cpus=int(specs["vcpus"]),
        memory_mib=int(specs["memory_gib"]) * GIB,
        gpus=(card,) * count if card else (),
        disk_gib=int(specs["storage_gib"]),
        cpu_arch="arm" if card and squeeze(card.name) in WITH_ARM else "x86",
        availability=Availability.available if region in _with_capacity(kind) else Availability.unknown,
    )


def _with_capacity(kind: Body) -> set[str]:
    return {str(each["name"]) for each in kind["regions_with_capacity_available"]}
