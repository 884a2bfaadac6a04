"""The project's reserved capacity, of those reservations that machines have to name.

Open reservations aren't offered, since no machine is ever launched into one. An account that may not read reservations
has none to offer.

A future reservation can be named before it begins. Google makes a reservation of it then, which machines are launched
into; the future one leads to it. Machines of one in calendar mode end with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from chalicelib.backends.gcp.client import GcpClients
from chalicelib.backends.gcp.errors import Body
from chalicelib.backends.gcp.places import instant, last, region_of
from chalicelib.backends.kit.clock import Now
from chalicelib.backends.kit.hints import hint
from chalicelib.domain.instants import MINUTE, SECOND, Micros
from chalicelib.domain.offers import Availability
from chalicelib.errors import Unfit

Place = tuple[str, str]  # zone and name
WARNING: Micros = 10 * MINUTE  # before a reservation ends, its machines are told
# After a future reservation begins, in which the one that is made of it may still be missing.
SHOWN: Micros = 30 * MINUTE
_COMING = ("CREATING", "READY", "UPDATING")
_APPROVED = ("APPROVED", "COMMITTED", "PENDING_AMENDMENT_APPROVAL", "PROCURING", "PROVISIONING")


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
    target: str = ""  # the reservation that Google has made of this future one
    starts_at: Micros | None = None  # of a future one of which none is made yet

    @property
    def availability(self) -> Availability:
        """One that is full may have room again before the offers are fetched again."""
        if self.status == "CREATING":
            return Availability.not_available
        return Availability.available if self.left > 0 else Availability.unknown


class GcpReservations:
    def __init__(self, clients: GcpClients, now: Now) -> None:
        self._clients, self._now = clients, now

    def all(self, within: str | Sequence[str] = "") -> Sequence[GcpReservation]:
        bodies = self._listed("reservations", within)
        found = {
            (each.zone, each.name): each
            for body in bodies
            if body.get("specificReservationRequired") and body["status"] in _COMING
            for each in [_read(body)]
        }
        for body in self._listed("futureReservations", within):
            if body.get("specificReservationRequired"):
                found |= _future(body, found, self._now())
        return list(found.values())

    def _listed(self, collection: str, within: str | Sequence[str]) -> Sequence[Body]:
        return hint(
            lambda: list[Body](self._clients.pages(f"{collection}.aggregatedList", within=within)),
            list[Body](),
            f"the {collection} of {self._clients.project}",
        )

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
            if found is not None and found.starts_at is not None:
                state = f"begins at {datetime.fromtimestamp(found.starts_at / SECOND, UTC):%Y-%m-%d %H:%M} UTC"
            raise Unfit(f"The reservation {name} can't be used: it {state}.")
        if found.type != type_name:
            raise Unfit(f"The reservation {name} is for {found.type}, not {type_name}.")
        if found.ends_at is not None and self._now() >= found.ends_at - WARNING:
            raise Unfit(f"The reservation {name} ends, and its machines with it.")
        return found


def _read(body: Body) -> GcpReservation:
    of: Body = body.get("specificReservation", {})
    given = int(of.get("assuredCount") or of.get("count") or 0)
    bound = body.get("deploymentType") == "DENSE"
    ends = str(body.get("deleteAtTime", ""))
    return GcpReservation(
        name=str(body["name"]),
        zone=last(str(body["zone"])),
        status=str(body["status"]),
        left=given - int(of.get("inUseCount") or 0),
        is_bound=bound,
        ends_at=instant(ends) if bound and ends else None,
        policy=next((last(str(each)) for each in body.get("resourcePolicies", {}).values()), ""),
        **_machine(of),
    )


def _machine(of: Body) -> dict[str, Any]:
    """What its machines are."""
    has = of.get("instanceProperties", {})
    card: Body = next(iter(has.get("guestAccelerators", ())), {})
    return {
        "type": last(str(has.get("machineType", ""))),
        "accelerator": last(str(card.get("acceleratorType", ""))),
        "cards": int(card.get("acceleratorCount", 0)),
        "ssds": tuple(str(each.get("interface", "SCSI")) for each in has.get("localSsds", ())),
    }


def _future(body: Body, made: Mapping[Place, GcpReservation], now: Micros) -> Mapping[Place, GcpReservation]:
    """A future reservation, and what is different about the reservations that Google has `made` of it. Nothing once it
    has ended, or if it was refused."""
    name, zone, status = str(body["name"]), last(str(body["zone"])), body.get("status", {})
    begins, ends = _window(body.get("timeWindow", {}))
    own = [made[place] for url in status.get("autoCreatedReservations", ()) if (place := (zone, last(url))) in made]
    if body.get("reservationMode") == "CALENDAR":
        own = [replace(each, is_bound=True, ends_at=ends) for each in own]
    found = {(zone, each.name): each for each in own}
    if (zone, name) in made or (ends is not None and now >= ends):
        return found
    if own:
        best = max(own, key=lambda each: (each.status != "CREATING", each.left))
        return {**found, (zone, name): replace(best, name=name, target=best.name)}
    procured = status.get("procurementStatus")
    is_new = procured == "FULFILLED" and begins is not None and now < begins + SHOWN
    if procured not in _APPROVED and not is_new:
        return found
    of = body.get("specificSkuProperties", {})
    coming = GcpReservation(name, zone, status="CREATING", left=0, ends_at=ends, starts_at=begins, **_machine(of))
    return {**found, (zone, name): coming}


def _window(of: Body) -> tuple[Micros | None, Micros | None]:
    """When it begins and ends."""
    begins = instant(str(of.get("startTime", ""))) or None
    lasts = int(of.get("duration", {}).get("seconds", 0)) * SECOND
    ends = instant(str(of.get("endTime", ""))) or (begins + lasts if begins and lasts else None)
    return begins, ends
