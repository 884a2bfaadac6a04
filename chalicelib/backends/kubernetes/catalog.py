"""What the clusters can give to a request now, from their nodes and from what the pods there take."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from chalicelib.backends.kit.cache import LookupCache, SharedLookup
from chalicelib.backends.kit.clock import Now
from chalicelib.backends.kit.regions import everywhere
from chalicelib.backends.kubernetes.autoscalers import autoscalers_of, noting_autoscalers
from chalicelib.backends.kubernetes.client import Body, Clusters
from chalicelib.backends.kubernetes.nodes import Node, nodes_of
from chalicelib.backends.kubernetes.offers import Search
from chalicelib.backends.kubernetes.quotas import Allowance
from chalicelib.backends.spi import IncompleteOffers
from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.domain.offers import Offer
from chalicelib.errors import BackendError, InsufficientCapacity, MissingPermission, Transient, Unfit

log = logging.getLogger(__name__)

SLICES = ("apis", "resource.k8s.io", "v1", "resourceslices")
NODES, PODS = ("api", "v1", "nodes"), ("api", "v1", "pods")
RUNNING = "status.phase!=Succeeded,status.phase!=Failed"
# What a container can have in every namespace.
EVERYWHERE = ("user", "shm_size", "volumes", "multinode", "nodes_login", "nodes_volumes", "network")
UNRESTRICTED = ("", "privileged")  # levels of namespaces whose pods may be privileged


@dataclass(frozen=True)
class _Listed:
    """A cluster at one moment."""

    nodes: list[Node]
    allowance: Allowance
    autoscaler: str


class Catalog:
    def __init__(self, clusters: Clusters, level: Callable[[str], str], now: Now) -> None:
        self._clusters, self._level = clusters, level
        self._listed = SharedLookup[_Listed]()
        self._denied = LookupCache[Sequence[Body] | None](now, keeps=lambda found: found is None)
        self._drivers = LookupCache[Mapping[str, str]](now)

    def offers_for(self, request: OfferRequest) -> Sequence[Offer]:
        """Those of all regions that answer, with what others say in place of an answer. Without any offer, raises what
        the first of these raises, or InsufficientCapacity, which says what each node lacks, or which contexts there
        are."""
        if request.spot:
            return []
        wanted = [each for each in self._clusters.regions if request.regions is None or each.lower() in request.regions]
        if not wanted:
            raise InsufficientCapacity(
                f"no requested region is one of its contexts: {', '.join(self._clusters.regions)}"
            )
        found = everywhere(wanted, lambda region: self._answer(region, request))
        offers = [offer for each in found if isinstance(each, Search) for offer in each.offers]
        failures = {region: each for region, each in zip(wanted, found, strict=True) if isinstance(each, BackendError)}
        if offers:
            missing = " ".join(f"{region}: {error}" for region, error in failures.items())
            return IncompleteOffers(offers, missing) if missing else offers
        for error in failures.values():
            raise error
        lacking = [f"{region}: {_text(each)}" for region, each in zip(wanted, found, strict=True)]
        raise InsufficientCapacity(". ".join(lacking))

    def _answer(self, region: str, request: OfferRequest) -> Search | BackendError:
        try:
            return self._search(region, request)
        except BackendError as error:
            log.warning("no offers of %s: %s", region, error)
            return error

    def _search(self, region: str, request: OfferRequest) -> Search:
        context = self._clusters.cluster(region).context
        privileged = context.privileged and self._level(region) in UNRESTRICTED
        grants = (*(("privileged",) if privileged else ()), *EVERYWHERE)
        found = self._listed.get(region, lambda: self._ask(region))  # the requests of one pass come at once
        drivers = self._drivers.get(region, lambda: self._ask_drivers(region)) if _wants_gpus(request) else {}
        search = Search(
            region, request, grants, allowance=found.allowance, drivers=drivers, autoscaler=found.autoscaler
        )
        search.add(found.nodes)
        return search

    def _ask(self, region: str) -> _Listed:
        cluster, scalers = self._clusters.cluster(region), set[str]()
        nodes = list(self._clusters.listed(region, NODES))
        pods = noting_autoscalers(self._clusters.listed(region, PODS, fieldSelector=RUNNING), scalers)
        has_room = nodes_of(nodes, pods, cluster.context)
        quotas, ranges = (self._allowed(region, kind) for kind in ("resourcequotas", "limitranges"))
        allowance = Allowance(cluster.namespace, quotas, ranges, cluster.context.priority_class_name)
        scalers.update(autoscalers_of(nodes))
        return _Listed(has_room, allowance, " and ".join(sorted(scalers)))

    def _allowed(self, region: str, kind: str) -> Sequence[Body]:
        """Without the permission, none: the API server then says so when a pod is created."""
        path = ("api", "v1", "namespaces", self._clusters.cluster(region).namespace, kind)

        def ask() -> Sequence[Body] | None:
            try:
                return list(self._clusters.listed(region, path))
            except MissingPermission:
                return None

        return self._denied.get(f"{region}/{kind}", ask) or ()

    def _ask_drivers(self, region: str) -> Mapping[str, str]:
        """Of nodes whose devices DRA manages. They only explain, so whatever fails there are none."""
        try:
            slices = list(self._clusters.listed(region, SLICES))
        except (MissingPermission, Transient, Unfit) as error:
            log.debug("the devices of DRA in %s aren't known: %s", region, error)
            return {}
        specs = [each.get("spec", {}) for each in slices]
        return {str(each["nodeName"]): str(each.get("driver", "")) for each in specs if each.get("nodeName")}


def _wants_gpus(request: OfferRequest) -> bool:
    gpu = request.resources.gpu
    return gpu is not None and bool(gpu.count.min)


def _text(search: object) -> str:
    assert isinstance(search, Search)
    return "; ".join(search.lacking) or "it has no nodes"
