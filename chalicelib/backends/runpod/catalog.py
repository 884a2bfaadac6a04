"""What Runpod has for a request now: GPU pods, on demand and spot, and CPU pods, by data center, and those of the
community cloud.

Its catalogue says for one number of GPUs, or of CPUs, where there is some left, so only the numbers that the request
allows are looked up, the smallest first. A data center is a region; the community cloud is one more, because nobody can
choose where in it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from chalicelib.backends.kit.cache import LookupCache
from chalicelib.backends.kit.clock import Now
from chalicelib.backends.kit.gpus import gpu
from chalicelib.backends.runpod.client import Body, Client
from chalicelib.backends.runpod.facts import MOST_NODES
from chalicelib.backends.runpod.spot import SpotPrice, cluster_prices, spot_prices
from chalicelib.backends.spi import IncompleteOffers
from chalicelib.domain.gpu_names import squeeze
from chalicelib.domain.instants import HOUR, MINUTE, SECOND
from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.domain.offers import (
    CONTAINER,
    Availability,
    ClusterLimit,
    Disk,
    DiskTerms,
    Gpu,
    InstanceType,
    Offer,
    OfferTerms,
    Resources,
)
from chalicelib.domain.ranges import Range
from chalicelib.domain.specs.resources import GPUSpec, ResourcesSpec
from chalicelib.errors import BackendError, InsufficientCapacity

log = logging.getLogger(__name__)

COMMUNITY = "COMMUNITY"  # the region of the community cloud
MOST_GPUS, MOST_NUMBERS, MOST_OFFERS = 8, 3, 100
GIB, DISK = 1024, 100  # of a GPU pod, in GiB, unless another size is requested
MOST_DISK = 2000  # GiB; no limit is published
FLOOR_CPUS, FLOOR_MEMORY = 4, 15  # a GPU, and in GiB, if the older API, which knows, doesn't answer
LEAST_DISK_PER_CPU, MOST_MEMORY_PER_CPU = 10, 8  # GiB
KNOWN_FOR = 10 * SECOND  # what the catalogue and the spot market said: an account may make few calls
CLUSTER = ClusterLimit(
    most=MOST_NODES, why=f"Runpod sells clusters of 2 to {MOST_NODES} pods", hint=f"use {MOST_NODES} nodes at most"
)
BID = "bid"  # in an offer's own data: for a GPU, in dollars an hour


class RunpodCatalog:
    def __init__(self, client: Client, now: Now, regions: Sequence[str] | None, *, community: bool) -> None:
        self._client, self._regions, self._community = client, regions, community
        self._sizes = LookupCache[Body](now, 6 * HOUR, keeps=bool)
        self._tried = LookupCache[Body](now, MINUTE)
        self._bodies = LookupCache[Sequence[Body]](now, KNOWN_FOR)
        self._cluster_prices = LookupCache[Mapping[str, float]](now, KNOWN_FOR)
        self._spot_prices = LookupCache[Mapping[tuple[str, str], SpotPrice]](now, KNOWN_FOR)

    def forget(self) -> None:
        """What Runpod has: a creation has just shown that it has other things."""
        self._bodies.clear()
        self._spot_prices.clear()
        self._cluster_prices.clear()

    def data_centers(self) -> Sequence[str]:
        return [str(each["id"]) for each in self._client.listed("catalog/datacenters", "dataCenters")]

    def offers_for(self, request: OfferRequest) -> Sequence[Offer]:
        if request.zones is not None:
            raise InsufficientCapacity("Runpod has no availability zones: name its data centers in `regions`")
        missing = dict[str, None]()
        if request.nodes > 1:
            wanted = [*self._clusters(request)]
        else:
            wanted = [*self._gpu_pods(request, missing), *self._cpu_pods(request)]
        found = [
            offer
            for offer in wanted
            if _is_wanted(offer.region, request.regions, self._regions) and _fits(offer, request)
        ]
        best = sorted(found, key=lambda offer: (offer.price, offer.key))[:MOST_OFFERS]
        return IncompleteOffers(best, f"no spot pods: {'; '.join(missing)}") if missing else best

    # --- with GPUs ----------------------------------------------------------------------------------------------------

    def _gpu_pods(self, request: OfferRequest, missing: dict[str, None]) -> Iterator[Offer]:
        """`missing`: gets the reasons why spot prices aren't known."""
        spec = request.resources.gpu
        if spec is None:
            return
        clouds = ("SECURE", *(("COMMUNITY",) if self._community else ()))
        numbers = _numbers(spec.count, range(1, MOST_GPUS + 1))
        for count in numbers if spec.count.min else numbers[:1]:
            for cloud in clouds:
                kinds = [
                    each for body in self._catalog("gpus", cloud=cloud, count=count) for each in _kinds(body, cloud)
                ]
                if not request.spot:
                    yield from (offer for kind in kinds for offer in self._on_demand(kind, cloud, count))
                if request.spot is not False:
                    wanted = [kind for kind in kinds if _is_card(kind.card, spec)]
                    yield from self._spot(request, wanted, cloud, count, missing)

    def _on_demand(self, kind: _Kind, cloud: str, count: int) -> Iterator[Offer]:
        if kind.price <= 0 or count > kind.most:
            return
        cpus, memory = self._gpu_size(kind.name, cloud.lower(), count)
        has = _with_gpus(kind.card, count, cpus, memory)
        for region in kind.regions:
            yield _offer(kind.name, region, has, kind.price * count, MOST_DISK, str(count))

    def _spot(
        self, request: OfferRequest, kinds: Sequence[_Kind], cloud: str, count: int, missing: dict[str, None]
    ) -> Iterator[Offer]:
        regions = {region for kind in kinds if count <= kind.most for region in kind.regions}
        places = sorted(each for each in regions if _is_wanted(each, request.regions, self._regions))
        try:
            prices = self._bids(places, cloud, count) if places else {}
        except BackendError as error:
            if request.spot:  # nothing else was asked for
                raise
            log.warning("no prices of spot pods: %s", error)
            missing[str(error).rstrip(".")] = None
            return
        for kind in kinds:
            for region in kind.regions:
                price = prices.get((kind.name, "" if region == COMMUNITY else region))
                if price is not None and count <= kind.most:
                    cpus, memory = self._gpu_size(kind.name, cloud.lower(), count)
                    has = _with_gpus(kind.card, count, price.cpus or cpus, price.memory_gib or memory, spot=True)
                    bid = {BID: price.bid}
                    yield _offer(kind.name, region, has, price.bid * count, MOST_DISK, str(count), **bid)

    def _bids(self, regions: Sequence[str], cloud: str, count: int) -> Mapping[tuple[str, str], SpotPrice]:
        secure = cloud == "SECURE"
        places = regions if secure else ("",)
        return self._spot_prices.get(
            f"{cloud}/{count}/{','.join(places)}", lambda: spot_prices(self._client, count, places, is_secure=secure)
        )

    def _gpu_size(self, kind: str, side: str, count: int) -> tuple[int, int]:
        for body in self._limits().get("gpuTypes") or ():
            least = body.get(f"{side}{count}") or {}
            if body["id"] == kind and least.get("minVcpu") and least.get("minMemory"):
                return int(least["minVcpu"]), int(least["minMemory"])
        return FLOOR_CPUS * count, FLOOR_MEMORY * count

    def _clusters(self, request: OfferRequest) -> Iterator[Offer]:
        """Each offer is one of its pods, at a price that only the older API says. They are sold with eight GPUs a pod,
        and none is a spot pod."""
        spec = request.resources.gpu
        if request.nodes > MOST_NODES or request.spot:
            raise InsufficientCapacity(f"Runpod sells clusters of 2 to {MOST_NODES} pods, on demand alone")
        if spec is None or not _numbers(spec.count, [MOST_GPUS]):
            raise InsufficientCapacity(f"each pod of Runpod's clusters has {MOST_GPUS} GPUs: write `gpu: {MOST_GPUS}`")
        prices = self._cluster_prices.get("", lambda: cluster_prices(self._client))
        for body in self._catalog("gpus", product="CLUSTER", cloud="SECURE", count=MOST_GPUS):
            for kind in _kinds(body, "SECURE"):
                for offer in self._on_demand(kind._replace(price=prices.get(kind.name, 0.0)), "SECURE", MOST_GPUS):
                    more = {"order": f"{offer.terms.order} cluster", "grants": (*offer.terms.grants, "multinode")}
                    yield offer.with_(terms=offer.terms.with_(**more, cluster=CLUSTER))

    # --- without ------------------------------------------------------------------------------------------------------

    def _cpu_pods(self, request: OfferRequest) -> Iterator[Offer]:
        spec = request.resources.gpu
        if request.spot or (spec is not None and (spec.count.min or 0) > 0):
            return
        least = self._least_cpus(request.resources)
        for count in _numbers(request.resources.cpu.count, [2**n for n in range(1, 8) if 2**n >= least]):
            for body in self._catalog("cpus", vcpuCount=count):
                yield from self._cpu_offers(body, count)

    def _least_cpus(self, wanted: ResourcesSpec) -> float:
        """With fewer, no pod has the memory or the disk."""
        disk = (wanted.disk.size.min or 0) if wanted.disk else 0
        disks = [self._disk_per_cpu(str(body["id"])) for body in self._limits().get("cpuFlavors") or ()]
        return max((wanted.memory.min or 0) / MOST_MEMORY_PER_CPU, disk / max(disks, default=LEAST_DISK_PER_CPU))

    def _cpu_offers(self, body: Body, count: int) -> Iterator[Offer]:
        price = float(body["price"]["securePerVcpu"] or 0)
        if not body["vcpu"]["min"] <= count <= body["vcpu"]["max"] or price <= 0 or body.get("availability") == "NONE":
            return
        most = count * self._disk_per_cpu(str(body["id"]))
        memory = round(body["ramGbPerVcpu"] * count)
        has = Resources(cpus=count, memory_mib=memory * GIB, disk=Disk(size_mib=min(DISK, most) * GIB), cpu_arch="x86")
        for region in _in_stock(body):
            yield _offer(f"{body['id']}-{count}-{memory}", region, has, price * count, most, "")

    def _disk_per_cpu(self, flavour: str) -> int:
        for body in self._limits().get("cpuFlavors") or ():
            if body["id"] == flavour and body.get("diskLimitPerVcpu"):
                return int(body["diskLimitPerVcpu"])
        return LEAST_DISK_PER_CPU

    # --- look-ups -----------------------------------------------------------------------------------------------------

    def _catalog(self, kind: str, product: str = "POD", **query: str | int) -> Sequence[Body]:
        """Those of the kind, with where there are some left."""
        filters = {name: str(each) for name, each in query.items()}
        look_up = self._client.listed
        return self._bodies.get(
            f"{kind} {product} {filters}",
            lambda: list(look_up(f"catalog/{kind}", kind, include="AVAILABILITY", product=product, **filters)),
        )

    def _limits(self) -> Body:
        """Empty if the older API doesn't answer: what it knows has a floor."""

        def look_up() -> Body:
            try:
                return self._client.sizes()
            except BackendError as error:
                log.warning("no sizes of pods: %s", error)
                return {}

        return self._tried.get("", lambda: self._sizes.get("", look_up))


class _Kind(NamedTuple):
    """A kind of GPU in one of the clouds, where there are as many left as was asked."""

    name: str
    card: Gpu
    price: float  # of one
    most: int  # in a pod
    regions: Sequence[str]


def _kinds(body: Body, cloud: str) -> Iterator[_Kind]:
    side = cloud.lower()
    card = gpu(body["id"], int(body["memory"]) * GIB)
    if card is not None and body[side] and body.get("availability") != "NONE":
        regions = [COMMUNITY] if cloud == "COMMUNITY" else _in_stock(body)
        yield _Kind(str(body["id"]), card, float(body["price"][side] or 0), int(body["maxCount"][side] or 0), regions)


def _numbers(wanted: Range[int], sold: Sequence[int]) -> Sequence[int]:
    """The smallest that fit."""
    fitting = [n for n in sold if (wanted.min or 0) <= n and (wanted.max is None or n <= wanted.max)]
    return fitting[:MOST_NUMBERS]


def _in_stock(body: Body) -> Sequence[str]:
    return [str(each["id"]) for each in body.get("dataCenters") or () if each["availability"] != "NONE"]


def _is_wanted(region: str, requested: Sequence[str] | None, configured: Sequence[str] | None) -> bool:
    if configured is not None and region not in configured:
        return False
    return requested is None or region.lower() in requested


def _fits(offer: Offer, request: OfferRequest) -> bool:
    """Only so far that what fits isn't crowded out by what doesn't."""
    has, wanted = offer.instance.resources, request.resources
    return (
        wanted.cpu.count.holds(has.cpus)
        and wanted.memory.holds(has.memory_mib / GIB)
        and (wanted.disk is None or (wanted.disk.size.min or 0) <= offer.most_disk)
        and (request.max_price is None or offer.price <= request.max_price)
        and (request.instance_types is None or offer.instance.name.lower() in request.instance_types)
        and (wanted.gpu is None or not has.gpus or _is_card(has.gpus[0], wanted.gpu))
    )


def _is_card(card: Gpu, wanted: GPUSpec) -> bool:
    names = None if wanted.name is None else {squeeze(name) for name in wanted.name}
    return (
        (names is None or squeeze(card.name) in names)
        and (wanted.vendor is None or card.vendor == wanted.vendor)
        and (wanted.memory is None or wanted.memory.holds(card.memory_mib / GIB))
    )


def _with_gpus(card: Gpu, count: int, cpus: int, memory: int, *, spot: bool = False) -> Resources:
    gpus, disk = (card,) * count, Disk(size_mib=DISK * GIB)
    return Resources(cpus=cpus, memory_mib=memory * GIB, gpus=gpus, spot=spot, disk=disk, cpu_arch="x86")


def _offer(name: str, region: str, has: Resources, price: float, most_disk: int, order: str, **own: Any) -> Offer:
    """`own`: what only `create` reads."""
    return Offer(
        backend="runpod",
        instance=InstanceType(name=name, resources=has),
        region=region,
        price=round(price, 6),
        availability=Availability.available,
        instance_runtime=CONTAINER,
        terms=OfferTerms(
            disk=DiskTerms(most_gib=most_disk, gib_hour=0.0),
            order=order,
            grants=() if region == COMMUNITY else ("volumes",),
            **own,
        ),
    )
