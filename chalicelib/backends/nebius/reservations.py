"""The tenant's reserved capacity: capacity block groups, which Nebius itself makes, each for one platform in a region.

An account that may not read them has none to offer. A machine uses reserved capacity only if it names the group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chalicelib.backends.kit.hints import hint
from chalicelib.backends.nebius.client import NebiusClient
from chalicelib.backends.nebius.places import Places
from chalicelib.backends.spi import CreateRequest
from chalicelib.domain.offers import Availability
from chalicelib.errors import Unfit

ACTIVE, COMING = "STATE_ACTIVE", "STATE_ALLOCATING"
Body = Mapping[str, Any]


def reservations(client: NebiusClient, places: Places) -> Sequence[Body]:
    """Those that can be used, now or later."""
    wanted = {"parent_id": places.tenant(), "page_size": "200"}
    service, none = "capacity.v1.CapacityBlockGroupService", list[Body]()
    listed = hint(lambda: list[Body](client.listed(service, wanted)), none, "the capacity block groups")
    return [each for each in listed if each["status"].get("state") in (ACTIVE, COMING)]


def is_for(reservation: Body, region: str, platform: str) -> bool:
    return (reservation["status"].get("region"), _affinity(reservation).get("platform")) == (region, platform)


def fabric_of(identity: str, known: Sequence[Body]) -> str:
    """The InfiniBand fabric of its machines; empty if it has none."""
    found = next((each for each in known if each["metadata"]["id"] == identity), None)
    return str(_affinity(found).get("fabric", "")) if found else ""


def _affinity(reservation: Body) -> Body:
    found: Body = reservation["status"].get("resource_affinity", {}).get("compute_v1", {})
    return found


def left(reservation: Body) -> Availability:
    """One that is full may have room again before the offers are fetched again; one that hasn't begun can't be used."""
    status = reservation["status"]
    if status["state"] != ACTIVE:
        return Availability.not_available
    full = int(status.get("usage", 0)) >= int(status.get("current_limit", 0))
    return Availability.unknown if full else Availability.available


def policy(request: CreateRequest, known: Sequence[Body]) -> Body:
    """Of a machine. By default it would use up whatever capacity is reserved. `known`: the tenant's reservations."""
    wanted, offer = request.reservation, request.offer
    if wanted is None:
        return {"policy": "FORBID"}
    if offer.instance.resources.spot:
        raise Unfit(f"A spot machine can't be in the capacity block group {wanted}.")
    found = next((each for each in known if each["metadata"]["id"] == wanted), None)
    if found is None or found["status"]["state"] != ACTIVE:
        raise Unfit(f"The capacity block group {wanted} isn't active, or isn't the tenant's.")
    if not is_for(found, offer.region, offer.instance.name.partition(" ")[0]):
        raise Unfit(f"The capacity block group {wanted} isn't for {offer.instance.name} in {offer.region}.")
    return {"policy": "STRICT", "reservation_ids": [wanted]}
