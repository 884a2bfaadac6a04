"""The request that creates a machine. It is a pure function, so a repeated one has the same request to the byte."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from chalicelib.backends.azure.config import AzureBackendConfig
from chalicelib.backends.azure.places import TAGS, number_of
from chalicelib.backends.kit.bodies import filled
from chalicelib.backends.kit.owners import all_tags, labels
from chalicelib.backends.kit.scripts import check_gateway, user_data
from chalicelib.backends.kit.ssh_key import NOBODYS_KEY
from chalicelib.backends.kit.tables import table
from chalicelib.backends.spi import CreateRequest
from chalicelib.domain.instances import Handle
from chalicelib.errors import Unfit

_BODIES = table("azure/launch.toml")
MOST_SCRIPT = 65_535  # bytes of custom data
LEAST_DISK = 64  # GiB, which the image has
KEY = " ".join(NOBODYS_KEY.split()[:2])  # without the comment
AVAILABILITY = "availability"  # the kind of group in which InfiniBand works


@dataclass(frozen=True)
class AzurePlace:
    """A zone to try, or a region without any, with the network there."""

    zone: str  # empty: none
    subnet: str
    group: str  # a security group
    reservation: str = ""  # the id of a capacity reservation group


def launch(request: CreateRequest, place: AzurePlace, config: AzureBackendConfig, identity: str) -> dict[str, Any]:
    """`identity`: the id of a managed one; may be empty."""
    spot, group = request.offer.instance.resources.spot, request.placement_group
    check_gateway(request, public_ips=config.public_ips)
    if spot and group is not None and is_availability_set(group):
        raise Unfit(
            f"Azure has no spot machines with InfiniBand between them, so {request.offer.instance.name} can't be one.",
            hint="Use `spot_policy: on-demand` for this cluster.",
        )
    values = {
        "name": request.name,
        "region": request.offer.region,
        "zone": number_of(place.zone) or None,
        "size": request.offer.instance.name,
        "tags": labels(all_tags(request, config.tags), TAGS, "Azure"),
        "gib": max(-(-request.disk_mib // 1024), LEAST_DISK),
        "script": base64.b64encode(user_data(request, MOST_SCRIPT, "Azure").encode()).decode(),
        "key": KEY,
        "subnet": place.subnet,
        "security group": place.group,
        "accelerated": bool(request.offer.backend_data.get("accelerated")),
        "availability set": group.id if group and is_availability_set(group) else None,
        "proximity group": group.id if group and not is_availability_set(group) else None,
        "reservation": place.reservation or None,
        "identity": _identity(identity) if identity else None,
    }
    address = filled(_BODIES["address"], values) if config.public_ips else None
    body: dict[str, Any] = filled(_BODIES["machine"], {**values, "address": address})
    if spot:
        body["properties"] |= _BODIES["spot"]
    return body


def _identity(given: str) -> dict[str, Any]:
    return {"type": "UserAssigned", "userAssignedIdentities": {given: {}}}


def is_availability_set(group: Handle) -> bool:
    return group.data.get("type") == AVAILABILITY
