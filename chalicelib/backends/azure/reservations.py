"""The subscription's reserved capacity: capacity reservation groups, each with reservations of sizes and zones.

A machine is in a group only if it names it. Azure puts one that the group has no room for where there is any, at the
usual price and within the usual quotas, so a full group is refused here. Groups that Azure fills by itself (`Open`) and
blocks aren't offered, and a login that may not read groups has none to offer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from chalicelib.backends.azure.client import AzureClient
from chalicelib.backends.azure.places import Body, group_of, name_of, properties, region_of, state_of, zone_of
from chalicelib.backends.kit.hints import hint
from chalicelib.backends.kit.regions import outcomes
from chalicelib.backends.spi import CreateRequest
from chalicelib.domain.offers import Availability, Offer
from chalicelib.errors import BackendError, Gone, InsufficientCapacity, Unfit

GROUPS = "capacityReservationGroups"
COMING = ("Pending", "Approved", "Committed")  # states of a reservation that is made for a later time
LIVE = ("", "Live", "PartiallyFulfilled")


@dataclass(frozen=True)
class Reserved:
    """The machines of one size that a group has in a zone, or in a region without any."""

    group: str  # its id
    region: str
    zone: str
    size: str
    is_live: bool
    left: int

    @property
    def name(self) -> str:
        """As people write it."""
        return f"{group_of(self.group)}/{name_of(self.group)}"


def reservations(client: AzureClient) -> Sequence[Reserved]:
    """Those that can be used, now or later."""
    path = f"/subscriptions/{client.ids.subscription}/providers/Microsoft.Compute/{GROUPS}"
    groups = hint(lambda: list(client.listed(path)), list[Body](), "the capacity reservation groups")
    found: list[Reserved] = []
    for members in outcomes([str(each["id"]) for each in groups if _is_named(each)], lambda group: _of(client, group)):
        if isinstance(members, Gone):  # it was deleted meanwhile
            continue
        if isinstance(members, BackendError):
            raise members
        found += members
    return found


def _is_named(group: Body) -> bool:
    return str(properties(group).get("reservationType", "Targeted")) == "Targeted"


def _of(client: AzureClient, group: str) -> list[Reserved]:
    """What a group has. A login may see the group and not its reservations."""
    path, query = f"{group}/capacityReservations", {"$expand": "instanceView"}
    bodies = hint(lambda: list(client.listed(path, query)), list[Body](), f"the reservations of {group}")
    return [each for body in bodies for each in _read(group, body)]


def _read(group: str, body: Body) -> Iterator[Reserved]:
    view, sku = properties(body).get("instanceView") or {}, body["sku"]
    state = str((view.get("reservationStateInfo") or {}).get("reservationState", ""))
    made, use = state_of(body), view.get("utilizationInfo") or {}
    if made in ("creating", "succeeded", "updating") and state in (*LIVE, *COMING):
        given = int(use.get("currentCapacity", sku.get("capacity") or 0))
        left = given - len(use.get("virtualMachinesAllocated") or ())
        is_live = made != "creating" and state in LIVE
        yield Reserved(group, region_of(body), zone_of(body), str(sku["name"]), is_live, left)


def offers_in(offer: Offer, known: Sequence[Reserved]) -> Iterator[Offer]:
    """The same machine in each group that has it, at its price, which a reservation doesn't change. What is reserved
    counts against no quota any more."""
    fits = [each for each in known if (each.region, each.size) == (offer.region, offer.instance.name)]
    for name in dict.fromkeys(each.name for each in fits):
        there = [each for each in fits if each.name == name]
        terms = offer.terms.with_(reservation=name, cluster=None)
        zones = tuple(sorted(each.zone for each in there if each.zone)) or None
        yield offer.with_(terms=terms, availability=_availability(there), availability_zones=zones)


def _availability(there: Sequence[Reserved]) -> Availability:
    """A group that is full may have room again before the offers are fetched again."""
    live = [each for each in there if each.is_live]
    if not live:
        return Availability.not_available
    return Availability.available if any(each.left > 0 for each in live) else Availability.unknown


def places_in(request: CreateRequest, known: Sequence[Reserved]) -> tuple[str, Sequence[str]]:
    """The id of the request's group, and the zones where it has room. Raises why it can't be used."""
    wanted, size = request.reservation, request.offer.instance.name
    text = f"The capacity reservation group {wanted}"
    if request.offer.instance.resources.spot or request.placement_group is not None:
        raise Unfit(f"{text} takes neither spot machines nor those of a cluster.")
    here = [each for each in known if each.name == wanted and each.region == request.offer.region and each.is_live]
    fits = [each for each in here if each.size == size and (not request.zones or each.zone in request.zones)]
    if not fits:
        has = ", ".join(sorted(f"{each.size} in {each.zone or each.region}" for each in here)) or "nothing"
        raise Unfit(f"{text} has no {size} now: it has {has} in {request.offer.region}.")
    zones = sorted(each.zone for each in fits if each.left > 0)
    if not zones:
        raise InsufficientCapacity(f"{text} is full: all of its machines of the size {size} are in use.")
    return fits[0].group, zones
