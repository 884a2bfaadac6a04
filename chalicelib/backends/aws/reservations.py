"""The account's reserved capacity: on-demand capacity reservations, and capacity blocks.

An account that may not read them has none to offer. Reservations for other systems than Linux can't be used here.
"""

from __future__ import annotations

from collections.abc import Sequence

from chalicelib.backends.aws.client import Clients
from chalicelib.backends.aws.places import Body, filters, usual_zone
from chalicelib.backends.kit.hints import hint
from chalicelib.domain.instants import MINUTE, SECOND, Micros

EARLY: Micros = 30 * MINUTE  # before the end of a block, AWS ends its machines
WARNING: Micros = 10 * MINUTE  # before that, it announces it

# Those that can be used, now or later.
COMING = ("active", "assessing", "delayed", "payment-pending", "pending", "scheduled")


def reservations(clients: Clients, region: str) -> Sequence[Body]:
    """A region's reservations, including those that other accounts share with this one."""
    call, key = "describe_capacity_reservations", "CapacityReservations"
    listed = hint(
        lambda: list[Body](clients.pages("ec2", region, call, key, Filters=filters(state=COMING), MaxResults=100)),
        list[Body](),
        f"the reservations of {region}",
    )
    return [each for each in listed if usual_zone(each["AvailabilityZone"]) and _is_linux(each)]


def is_block(reservation: Body) -> bool:
    return bool(reservation.get("ReservationType") == "capacity-block")


def ends_at(reservation: Body) -> Micros | None:
    """When AWS begins to end the machines of a block. Those of other reservations go on, as if they had none."""
    end = reservation.get("EndDate")
    return None if end is None or not is_block(reservation) else round(end.timestamp() * SECOND) - EARLY


def group_of(reservation: Body) -> str:
    """The reservation's placement group, which its machines must be in; empty if it has none."""
    return str(reservation.get("PlacementGroupArn", "")).rpartition("/")[2]


def _is_linux(reservation: Body) -> bool:
    return str(reservation.get("InstancePlatform", "Linux/UNIX")).startswith("Linux")
