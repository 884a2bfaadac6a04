"""What the clusters can give to a request now, from their nodes and from what the pods there take."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from chalicelib.backends.kit.cache import SharedLookup
from chalicelib.backends.kit.regions import everywhere
from chalicelib.backends.kubernetes.client import Clusters
from chalicelib.backends.kubernetes.nodes import Node, nodes_of
from chalicelib.backends.kubernetes.offers import Search
from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.domain.offers import Offer
from chalicelib.errors import BackendError, InsufficientCapacity

log = logging.getLogger(__name__)

NODES, PODS = ("api", "v1", "nodes"), ("api", "v1", "pods")
RUNNING = "status.phase!=Succeeded,status.phase!=Failed"
EVERYWHERE = ("user", "shm_size", "volumes", "multinode")  # what a container can have in every namespace
UNRESTRICTED = ("", "privileged")  # levels of namespaces whose pods may be privileged


class Catalog:
    def __init__(self, clusters: Clusters, level: Callable[[str], str]) -> None:
        self._clusters, self._level = clusters, level
        self._nodes = SharedLookup[list[Node]]()

    def offers_for(self, request: OfferRequest) -> Sequence[Offer]:
        """Those of all regions that answer. Raises what the first of the others raises if there are none, and
        InsufficientCapacity, which says what each node lacks, if all have answered."""
        if request.spot:
            return []
        wanted = [each for each in self._clusters.regions if request.regions is None or each.lower() in request.regions]
        if not wanted:
            return []
        found = everywhere(wanted, lambda region: self._answer(region, request))
        offers = [offer for each in found if isinstance(each, Search) for offer in each.offers]
        if offers:
            return offers
        for each in found:
            if isinstance(each, BackendError):
                raise each
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
        search = Search(region, request, grants)
        search.add(self._nodes.get(region, lambda: self._listed(region)))  # those of one pass come at once
        return search

    def _listed(self, region: str) -> list[Node]:
        nodes = list(self._clusters.listed(region, NODES))
        pods = self._clusters.listed(region, PODS, fieldSelector=RUNNING)
        return nodes_of(nodes, pods, self._clusters.cluster(region).context)


def _text(search: object) -> str:
    assert isinstance(search, Search)
    return "; ".join(search.lacking) or "it has no nodes"
