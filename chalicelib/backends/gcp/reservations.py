"""The project's reserved capacity, of those reservations that machines have to name.

Open reservations aren't offered, since no machine is ever launched into one. An account that may not read reservations
has none to offer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from chalicelib.backends.gcp.client import GcpClients
from chalicelib.backends.gcp.errors import Body
from chalicelib.backends.gcp.places import instant, last, region_of
from chalicelib.domain.instants import MINUTE, Micros
from chalicelib.domain.offers import Availability
from chalicelib.errors import MissingPermission, Unfit

log = logging.getLogger(__name__)

WARNING: Micros = 10 * MINUTE  # before a reservation ends, its machines are told
_COMING = ("CREATING", "READY", "UPDATING")


@dataclass(frozen=True)
class GcpReservation:
    name: str
    zone: str
    type: str
    status: str
    left: int  # machines
    accelerator: str = ""  # attached to the type
    cards: int = 0
    ssds: tuple[str, ...] = ()  # the interface of each local disk, which a machine must have to match
    is_bound: bool = False  # dense capacity, whose machines end with the reservation
    ends_at: Micros | None = None  # if that is so
    policy: str = ""  # the placement policy that its machines must have

    @property
    def availability(self) -> Availability:
        """One that is full may have room again before the offers are fetched again."""
        if self.status == "CREATING":
            return Availability.not_available
        return Availability.available if self.left > 0 else Availability.unknown


class GcpReservations:
    def __init__(self, clients: GcpClients, now: Callable[[], Micros]) -> None:
        self._clients, self._now = clients, now

    def all(self, within: str | Sequence[str] = "") -> Sequence[GcpReservation]:
        try:
            listed = list(self._clients.pages("reservations.aggregatedList", within=within))
        except MissingPermission as error:
            log.info("the reservations of %s stay unknown: %s", self._clients.project, error)
            return ()
        return [_read(each) for each in listed if each.get("specificReservationRequired") and each["status"] in _COMING]

    def named(self, name: str, type_name: str, zones: Sequence[str]) -> GcpReservation:
        """The one that machines of the type are launched into, in one of the zones: each zone may have one of the
        name. Raises Unfit if they can't be."""
        of_name = [each for each in self.all(region_of(zones[0])) if each.name == name]
        there = sorted((each for each in of_name if each.zone in zones), key=lambda each: zones.index(each.zone))
        if of_name and not there:
            where = ", ".join(sorted(each.zone for each in of_name))
            raise Unfit(f"The reservation {name} is in {where}, not in {', '.join(zones)}.")
        found = next((each for each in there if each.type == type_name), next(iter(there), None))
        if found is None or found.status == "CREATING":
            state = f"is {found.status}" if found else "isn't there"
            raise Unfit(f"The reservation {name} can't be used: it {state}.")
        if found.type != type_name:
            raise Unfit(f"The reservation {name} is for {found.type}, not {type_name}.")
        if found.ends_at is not None and self._now() >= found.ends_at - WARNING:
            raise Unfit(f"The reservation {name} ends, and its machines with it.")
        return found


def _read(body: Body) -> GcpReservation:
    of: Body = body.get("specificReservation", {})
    has = of.get("instanceProperties", {})
    card: Body = next(iter(has.get("guestAccelerators", ())), {})
    given = int(of.get("assuredCount") or of.get("count") or 0)
    bound = body.get("deploymentType") == "DENSE"
    ends = str(body.get("deleteAtTime", ""))
    return GcpReservation(
        str(body["name"]),
        last(str(body["zone"])),
        last(str(has.get("machineType", ""))),
        str(body["status"]),
        given - int(of.get("inUseCount") or 0),
        last(str(card.get("acceleratorType", ""))),
        int(card.get("acceleratorCount", 0)),
        tuple(str(each.get("interface", "SCSI")) for each in has.get("localSsds", ())),
        bound,
        instant(ends) if bound and ends else None,
        next((last(str(each)) for each in body.get("resourcePolicies", {}).values()), ""),
    )
