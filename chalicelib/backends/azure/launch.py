"""The request that creates a machine. It is a pure function, so a repeated creation has the same request to the byte.

These parts are there for a reason:

* One request makes all: Azure makes the network card, its address and the disk along with the machine. Each has a
  `deleteOption`, because by default they stay, and are billed, when the machine goes.
* The names of card and address begin with the machine's, and they bear its tags, so that what a failure leaves behind
  shows whose it is. Azure adds something of its own to these names.
* The boot script is custom data, not user data: that could be read by all jobs, through the metadata service.
* A spot machine that is taken back is deleted; by default it would keep its disk and its quota.
* Azure wants a key for its administrator. Nobody has the private half of this one, and no port is open.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chalicelib.backends.azure.places import TAGS, number_of
from chalicelib.backends.kit.owners import all_tags, labels
from chalicelib.backends.kit.scripts import check_gateway, user_data
from chalicelib.backends.kit.ssh_key import NOBODYS_KEY
from chalicelib.backends.spi import CreateRequest
from chalicelib.domain.instances import Handle
from chalicelib.errors import Unfit

MOST_SCRIPT = 65_535  # bytes of custom data
IMAGE = {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2204", "version": "latest"}
LEAST_DISK = 64  # GiB, which the image has
DISK = "StandardSSD_LRS"
ADMIN = "dstack"
KEY = " ".join(NOBODYS_KEY.split()[:2])  # without the comment
AVAILABILITY = "availability"  # the kind of group in which InfiniBand works


@dataclass(frozen=True)
class AzurePlace:
    """A zone to try, or a region without any, with the network there."""

    zone: str  # empty: none
    subnet: str
    group: str  # a security group
    reservation: str = ""  # the id of a capacity reservation group


@dataclass(frozen=True)
class AzureSettings:
    """The account's settings for machines."""

    public_ips: bool = True
    identity: str = ""  # the id of a managed one
    tags: Mapping[str, str] | None = None


def tags_for(request: CreateRequest, settings: AzureSettings) -> dict[str, str]:
    return labels(all_tags(request, settings.tags), TAGS, "Azure")


def launch(request: CreateRequest, place: AzurePlace, settings: AzureSettings) -> dict[str, Any]:
    spot, group = request.offer.instance.resources.spot, request.placement_group
    check_gateway(request, public_ips=settings.public_ips)
    if spot and group is not None and is_availability_set(group):
        raise Unfit(
            f"Azure has no spot machines with InfiniBand between them, so {request.offer.instance.name} can't be one.",
            hint="Use `spot_policy: on-demand` for this cluster.",
        )
    tags = tags_for(request, settings)
    body: dict[str, Any] = {
        "location": request.offer.region,
        "tags": tags,
        "properties": {
            "hardwareProfile": {"vmSize": request.offer.instance.name},
            "storageProfile": {"imageReference": IMAGE, "osDisk": _disk(request)},
            "osProfile": _system(request),
            "networkProfile": {
                "networkApiVersion": "2022-11-01",
                "networkInterfaceConfigurations": [_card(request, place, tags, public=settings.public_ips)],
            },
            **({"priority": "Spot", "evictionPolicy": "Delete", "billingProfile": {"maxPrice": -1}} if spot else {}),
            **_together(group),
            **_reserved(place.reservation),
        },
    }
    if place.zone:
        body["zones"] = [number_of(place.zone)]
    if settings.identity:
        body["identity"] = {"type": "UserAssigned", "userAssignedIdentities": {settings.identity: {}}}
    return body


def is_availability_set(group: Handle) -> bool:
    return group.data.get("type") == AVAILABILITY


def _together(group: Handle | None) -> dict[str, Any]:
    if group is None:
        return {}
    return {"availabilitySet" if is_availability_set(group) else "proximityPlacementGroup": {"id": group.id}}


def _reserved(group: str) -> dict[str, Any]:
    return {"capacityReservation": {"capacityReservationGroup": {"id": group}}} if group else {}


def _disk(request: CreateRequest) -> dict[str, Any]:
    return {
        "name": request.name,
        "createOption": "FromImage",
        "diskSizeGB": max(-(-request.disk_mib // 1024), LEAST_DISK),
        "caching": "ReadWrite",
        "deleteOption": "Delete",
        "managedDisk": {"storageAccountType": DISK},
    }


def _system(request: CreateRequest) -> dict[str, Any]:
    script = user_data(request, MOST_SCRIPT, "Azure")
    key = {"path": f"/home/{ADMIN}/.ssh/authorized_keys", "keyData": KEY}
    return {
        "computerName": request.name,
        "adminUsername": ADMIN,
        "customData": base64.b64encode(script.encode()).decode(),
        "linuxConfiguration": {"disablePasswordAuthentication": True, "ssh": {"publicKeys": [key]}},
    }


def _card(request: CreateRequest, place: AzurePlace, tags: dict[str, str], *, public: bool) -> dict[str, Any]:
    inside: dict[str, Any] = {"subnet": {"id": place.subnet}, "primary": True}
    if public:
        inside["publicIPAddressConfiguration"] = {
            "name": request.name,
            "sku": {"name": "Standard", "tier": "Regional"},
            "properties": {"publicIPAllocationMethod": "Static", "deleteOption": "Delete"},
            "tags": tags,
        }
    has = {
        "primary": True,
        "deleteOption": "Delete",
        "enableAcceleratedNetworking": bool(request.offer.backend_data.get("accelerated")),
        "networkSecurityGroup": {"id": place.group},
        "ipConfigurations": [{"name": "main", "properties": inside}],
    }
    return {"name": request.name, "properties": has, "tags": tags}
