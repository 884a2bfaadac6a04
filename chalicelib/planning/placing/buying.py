"""Buying a new machine: which offer a fleet would buy for a job, and when it may not buy at all."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from chalicelib.domain.jobs import Job
from chalicelib.domain.offers import Offer
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.matching.machine_index import Query
from chalicelib.planning.matching.offer_book import OfferBook
from chalicelib.planning.matching.pools import Pool
from chalicelib.planning.matching.requirements import JobRequirements

MOST_TRIED = 25  # offers tried for one submission before it counts as out of capacity


@dataclass(frozen=True)
class Purchase:
    """A new instance of this fleet: the whole machine's offer, and the number of its blocks that the job takes."""

    view: FleetView
    offer: Offer  # the machine's
    blocks: int
    total: int

    @property
    def price(self) -> float:
        return self.offer.price * self.blocks / self.total


def tried_by(job: Job) -> set[str]:
    """The offers that failed for this submission."""
    return {attempt.offer_key for attempt in job.attempts}


def best_buy(book: OfferBook, view: FleetView, query: Query, tried: Collection[str]) -> Purchase | None:
    found = book.best(query, tried)
    if found is None:
        return None
    offer, blocks, total = found
    return Purchase(view, in_zones(offer, query), blocks, total)


def in_zones(offer: Offer, query: Query) -> Offer:
    """The offer, limited to the requested zones, or to the zone of the job's volumes."""
    site = next((site for site in query.places or () if site.sells(offer, query.nodes)), None)
    if site is not None and site.zone:
        zones = [zone for zone in offer.availability_zones or () if zone.lower() == site.zone]
        return offer.with_(availability_zones=tuple(zones) or (site.zone,))
    if query.zones is None or offer.availability_zones is None:
        return offer
    return offer.with_(availability_zones=tuple(z for z in offer.availability_zones if z.lower() in query.zones))


def may_grow(pool: Pool, count: int, requirements: JobRequirements) -> bool:
    """May the fleet, which has `count` instances, buy one for this job, now or once it has room?"""
    nodes = pool.view.spec.configuration.nodes
    if nodes is None or nodes.max == 0 or requirements.reuse_only or requirements.instances:
        return False
    for_good = pool.staying == count <= nodes.min  # every instance stays, so no room will appear
    return not (for_good and nodes.max is not None and len(pool.view.instances) >= nodes.max)


def is_full(pool: Pool, count: int) -> bool:
    nodes = pool.view.spec.configuration.nodes
    return nodes is not None and nodes.max is not None and count >= nodes.max
