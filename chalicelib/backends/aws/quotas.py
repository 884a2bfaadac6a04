"""Quotas: how many vCPUs an account may have at once, by region, family and market, and how many elastic addresses.

In nearly every new account the quotas of the GPU families are zero, so a plan marks offers that can't be launched. A
quota that AWS doesn't report counts as unknown, never as too small.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from chalicelib.backends.aws.client import Clients
from chalicelib.backends.kit.hints import hint
from chalicelib.domain.offers import Availability, ClusterLimit
from chalicelib.errors import BackendError

Quotas = Mapping[str, float]  # by code; of machines in vCPUs
ADDRESSES = "L-0263D0A3"  # elastic ones in a region: five, unless somebody has asked for more

# The letters that a type's name begins with: its quotas on demand and spot.
_CODES: Mapping[str, tuple[str, str | None]] = {
    "trn": ("L-2C3B7624", "L-6B0D517C"),
    "inf": ("L-1945791B", "L-B5D1601B"),
    "dl": ("L-6E869C2A", "L-85EED4F7"),
    **dict.fromkeys(("g", "gr", "vt"), ("L-DB2E81BA", "L-3819A6DF")),
    **dict.fromkeys(("a", "c", "d", "h", "i", "im", "is", "m", "r", "t", "z"), ("L-1216C47A", "L-34B43A08")),
}
_P_SPOT = {"2": "L-7212CCBC", "3": "L-7212CCBC", "4": "L-7212CCBC", "5": "L-C4BD4855"}  # later ones: sources differ


def quotas(clients: Clients, region: str) -> Quotas:
    """A region's quotas; none if the account may not read them."""
    listed = clients.pages("service-quotas", region, "list_service_quotas", "Quotas", ServiceCode="ec2", MaxResults=100)
    return hint(
        lambda: {str(each["QuotaCode"]): float(each["Value"]) for each in listed},
        {},
        f"the quotas of {region}",
        BackendError,
    )


def code_of(name: str, *, spot: bool) -> str | None:
    """The quota that a type counts against, if it is known."""
    family = re.match(r"([a-z]+)(\d?)", name)
    if family is None:
        return None
    letters, generation = family.groups()
    on_demand, of_spot = (
        ("L-417A185B", _P_SPOT.get(generation)) if letters == "p" else _CODES.get(letters, (None, None))
    )
    return of_spot if spot else on_demand


def of_clusters(found: Quotas, region: str) -> ClusterLimit | None:
    """How many machines a cluster can have of which each takes an elastic address, if that is known."""
    if (quota := found.get(ADDRESSES)) is None:
        return None
    return ClusterLimit(
        most=int(quota),
        why=f"each takes an elastic address, and the account may have {quota:g} in {region}",
        hint=f"ask AWS for more ({ADDRESSES}, EC2-VPC Elastic IPs), or give the backend `public_ips: false`",
    )


def availability(found: Quotas, name: str, vcpus: int, *, spot: bool) -> Availability:
    """Whether one machine fits into the quota. That AWS lists a type doesn't mean that it has one."""
    quota = found.get(code_of(name, spot=spot) or "")
    return Availability.no_quota if quota is not None and quota < vcpus else Availability.unknown
