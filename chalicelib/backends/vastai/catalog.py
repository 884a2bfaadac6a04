"""What Vast.ai has for a request now: machines that hosts rent out, each on demand or to whoever bids most.

Only what the request allows is searched for, and the best of it are offered. An offer is one machine, or some of its
GPUs, and lives for minutes. Its region is its country and what Vast.ai says of the place: `us-california`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from chalicelib.backends.kit.cache import LookupCache
from chalicelib.backends.kit.clock import Now
from chalicelib.backends.kit.regions import everywhere
from chalicelib.backends.vastai.cards import card_of, spelled
from chalicelib.backends.vastai.client import Body, VastAIClient
from chalicelib.backends.vastai.specs import VastAIProfileOptions
from chalicelib.domain.gpu_names import squeeze
from chalicelib.domain.instants import SECOND
from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.domain.offers import (
    CONTAINER,
    Availability,
    Disk,
    DiskTerms,
    InstanceType,
    Offer,
    OfferTerms,
    Resources,
)
from chalicelib.domain.ranges import Range
from chalicelib.domain.specs.resources import GPUSpec
from chalicelib.errors import InsufficientCapacity, Throttled

GIB, DISK = 1024, 100  # of an instance, in GiB, unless another size is requested
LEAST_DISK = 8
BID, ON_DEMAND = "bid", "on-demand"
HOURS = 720  # of a month, as storage is priced
MARGIN = 1.1  # a bid, as a multiple of the least: who bids no more than that is outbid first
LEAST_BID, MOST_BID = 0.001, 128.0  # USD an hour
MOST_GPUS = 16  # of one machine
BEST, MOST_OFFERS, MOST_ROWS = 30, 100, 400
RELIABILITY = 0.9  # at least, unless the options say otherwise
CUDA, DOWNLOAD = 12.8, 128  # that a host has at the least: the newest CUDA of its driver, and Mbit/s
LASTING = 24 * 3600  # seconds that an offer must last
ANSWER_LASTS = 20 * SECOND  # searches are few, and equal ones are made once
NEAR = 0.07  # how much less memory a card may report
ARCHITECTURES = {"amd64": "x86", "arm64": "arm"}
NUMBERS = ("id", "num_gpus", "gpu_ram", "cpu_ram", "disk_space")  # that each row should have
_COUNTRY = re.compile(r"[a-z]{2}")
_PLACE = re.compile(r"[^a-z0-9]+")


class VastAICatalog:
    def __init__(self, client: VastAIClient, now: Now, regions: Sequence[str] | None, *, community: bool) -> None:
        self._client, self._now, self._community = client, now, community
        self._regions = None if regions is None else [each.lower() for each in regions]
        self._answers = LookupCache[Sequence[Body]](now, ANSWER_LASTS)

    def offers_for(self, request: OfferRequest) -> Sequence[Offer]:
        """Raises InsufficientCapacity, if it knows why there is nothing."""
        spec = request.resources.gpu
        if spec is None or not _counts(spec.count):
            raise InsufficientCapacity(f"machines of Vast.ai have 1 to {MOST_GPUS} GPUs")
        if request.zones is not None:
            raise InsufficientCapacity("Vast.ai has no availability zones: name its places in `regions`")
        if self._countries(request.regions) == []:
            return []
        options = VastAIProfileOptions.model_validate({"type": "vastai", **request.options})
        markets = [BID] * (request.spot is not False) + [ON_DEMAND] * (request.spot is not True)
        answers = everywhere(markets, lambda market: self._unless_throttled(request, spec, options, market == BID))
        throttled = [answer for answer in answers if isinstance(answer, Throttled)]
        found = [offer for answer in answers if not isinstance(answer, Throttled) for offer in answer]
        if throttled and not found:
            raise throttled[0]
        countries = [each for each in request.regions or () if _COUNTRY.fullmatch(each)]
        if not found and countries:
            raise InsufficientCapacity(
                "`regions` of a run or fleet name a country and a place in it, such as `us-california`; "
                f"the country alone ({', '.join(countries)}) finds nothing"
            )
        return sorted(found, key=lambda offer: (offer.price, offer.key))[:MOST_OFFERS]

    def _unless_throttled(
        self, request: OfferRequest, spec: GPUSpec, options: VastAIProfileOptions, is_bid: bool
    ) -> Sequence[Offer] | Throttled:
        """Two searches at once may be too many for Vast.ai: then there is what the other one finds."""
        try:
            return self._market(request, spec, options, is_bid)
        except Throttled as error:
            return error

    def forget(self) -> None:
        """What was offered is known to have changed."""
        self._answers.clear()

    def _market(
        self, request: OfferRequest, spec: GPUSpec, options: VastAIProfileOptions, is_bid: bool
    ) -> Sequence[Offer]:
        """The cheapest of one market, or the best by Vast.ai's own score."""
        query = self._query(request, spec, options, is_bid)
        rows = self._answers.get(orjson.dumps(query).decode(), lambda: self._client.search(query))
        good = [row for row in rows if _is_whole(row) and _is_good(row, options)]
        found = [offer for row in good for offer in self._offer(row, request, is_bid)]
        return found[: MOST_OFFERS if options.offer_order == "price" else BEST]

    # --- what is searched for -----------------------------------------------------------------------------------------

    def _query(
        self, request: OfferRequest, spec: GPUSpec, options: VastAIProfileOptions, is_bid: bool
    ) -> dict[str, Any]:
        wanted, disk = request.resources, _disk(request)
        score, price = ["score", "desc"], ["min_bid" if is_bid else "dph_total", "asc"]
        query: dict[str, Any] = {
            "type": BID if is_bid else ON_DEMAND,
            "limit": MOST_ROWS if options.min_score is not None else MOST_OFFERS,
            "order": [price, score] if options.offer_order == "price" else [score, price],
            "allocated_storage": disk,
            "rentable": {"eq": True},
            "rented": {"eq": False},
            "verified": {"eq": True},
            "external": {"eq": False},
            "reliability": {"gte": _reliability(options)},
            "duration": {"gte": LASTING},
            "cuda_max_good": {"gte": CUDA},
            "inet_down": {"gte": DOWNLOAD},
            "num_gpus": {"in": _counts(spec.count)},
            "disk_space": {"gte": disk},
            "cpu_cores_effective": _bounds(wanted.cpu.count, fraction=0.999),
            "cpu_ram": {"gte": (wanted.memory.min or 0) * GIB},
            "gpu_ram": _bounds(spec.memory, GIB, NEAR),
            "gpu_total_ram": _bounds(spec.total_memory, GIB, NEAR),
        }
        if not self._community:
            query["datacenter"] = {"eq": True}
        if spec.name is not None:
            query["gpu_name"] = {"in": spelled(spec.name)}
        if spec.vendor is not None:
            query["gpu_arch"] = {"eq": spec.vendor}
        if spec.compute_capability is not None:
            major, minor = spec.compute_capability
            query["compute_cap"] = {"gte": major * 100 + minor * 10}
        if wanted.cpu.arch is not None:
            query["cpu_arch"] = {"eq": next(name for name, arch in ARCHITECTURES.items() if arch == wanted.cpu.arch)}
        if (countries := self._countries(request.regions)) is not None:
            query["geolocation"] = {"in": countries}
        if request.max_price is not None:
            query[price[0]] = {"lte": request.max_price}
        return {name: each for name, each in query.items() if each != {}}

    def _countries(self, regions: Sequence[str] | None) -> list[str] | None:
        """None: any. A place within a country can't be searched for."""
        limits = [{each[:2].upper() for each in names} for names in (regions, self._regions) if names is not None]
        return sorted(set.intersection(*limits)) if limits else None

    # --- what is found ------------------------------------------------------------------------------------------------

    def _offer(self, row: Body, request: OfferRequest, is_bid: bool) -> Iterator[Offer]:
        """What the search could only narrow down is decided here."""
        card = card_of(str(row["gpu_name"]), int(row["gpu_ram"]), row.get("gpu_arch"))
        cpus, region = int(row.get("cpu_cores_effective") or 0), region_of(row)
        rent = float(row.get("min_bid" if is_bid else "dph_base") or 0)
        if card is None or cpus < 1 or not region or rent <= 0 or not self._is_in(region, request.regions):
            return
        bid = min(MOST_BID, max(LEAST_BID, round(rent * MARGIN, 4))) if is_bid else None
        storage, space = float(row.get("storage_cost") or 0) / HOURS, int(row["disk_space"])
        disk = min(_disk(request), space)
        count = int(row["num_gpus"])
        terms: dict[str, Any] = {"bid": bid} if bid is not None else {}
        if row.get("end_date"):
            terms["ends_at"] = round(float(row["end_date"]) * SECOND)
        offer = Offer(
            backend="vastai",
            instance=InstanceType(
                name=str(row["gpu_name"]),
                resources=Resources(
                    cpus=cpus,
                    memory_mib=_memory(row),
                    gpus=(card,) * count,
                    spot=is_bid,
                    disk=Disk(size_mib=disk * GIB),
                    cpu_arch=ARCHITECTURES.get(str(row.get("cpu_arch") or "amd64")),
                ),
            ),
            region=region,
            price=round((bid or rent) + disk * storage, 6),
            availability=Availability.available,
            instance_runtime=CONTAINER,
            terms=OfferTerms(
                listing=str(row["id"]), disk=DiskTerms(most_gib=space, gib_hour=round(storage, 9)), **terms
            ),
        )
        if _fits(offer, request):
            yield offer

    def _is_in(self, region: str, requested: Sequence[str] | None) -> bool:
        configured = self._regions
        if configured is not None and region not in configured and region[:2] not in configured:
            return False
        return requested is None or region in requested


def region_of(row: Body) -> str:
    """`California, US` is `us-california`; empty if there is no country."""
    place, _, country = str(row.get("geolocation") or "").rpartition(",")
    country = country.strip().lower()
    if not _COUNTRY.fullmatch(country):
        return ""
    return "-".join(filter(None, (country, _PLACE.sub("-", place.lower()).strip("-"))))


def _is_whole(row: Body) -> bool:
    """Has it all that an offer needs? One that hasn't doesn't cost the others."""
    return all(isinstance(row.get(name), int | float) for name in NUMBERS) and bool(row.get("gpu_name"))


def _is_good(row: Body, options: VastAIProfileOptions) -> bool:
    """The score can't be searched for."""
    reliable = float(row.get("reliability2") or row.get("reliability") or 0) >= _reliability(options)
    return reliable and (options.min_score is None or float(row.get("score") or 0) >= options.min_score)


def _fits(offer: Offer, request: OfferRequest) -> bool:
    has, wanted = offer.instance.resources, request.resources
    names = wanted.gpu.name if wanted.gpu is not None else None
    return (
        wanted.memory.holds(has.memory_mib / GIB)
        and (request.max_price is None or offer.price <= request.max_price)
        and (request.instance_types is None or offer.instance.name.lower() in request.instance_types)
        and (names is None or squeeze(has.gpus[0].name) in map(squeeze, names))
    )


def _reliability(options: VastAIProfileOptions) -> float:
    return RELIABILITY if options.min_reliability is None else float(options.min_reliability)


def _memory(row: Body) -> int:
    """In MiB. Of a part of a machine, it is the part that its CPUs are: a row has the memory of all of it."""
    whole, cores = int(row["cpu_ram"]), row.get("cpu_cores")
    share = float(row["cpu_cores_effective"]) / cores if cores else float(row.get("gpu_frac") or 1)
    return int(whole * min(share, 1))


def _disk(request: OfferRequest) -> int:
    """In GiB."""
    spec = request.resources.disk
    least = spec.size.min if spec is not None else None
    most = spec.size.max if spec is not None else None
    return max(LEAST_DISK, -int(-least // 1) if least is not None else int(min(DISK, most or DISK)))


def _counts(count: Range[int]) -> list[int]:
    most = MOST_GPUS if count.max is None else min(MOST_GPUS, count.max)
    return list(range(max(1, count.min or 1), most + 1))


def _bounds(wanted: Range[Any] | None, unit: int = 1, near: float = 0.0, fraction: float = 0.0) -> dict[str, float]:
    if wanted is None:
        return {}
    least = {"gte": round(wanted.min * unit * (1 - near), 3)} if wanted.min is not None else {}
    return least | ({"lte": round(wanted.max * unit * (1 + near) + fraction, 3)} if wanted.max is not None else {})
