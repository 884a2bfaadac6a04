"""The request that launches a machine. It is a pure function, so a repeated launch has the same request to the byte.

These parts are there for a reason:

* The request's id is for this launch *and zone*, as the name is: neither is known in another zone.
* The image is a family, not its newest member: Google refuses a request's id with another body.
* `NO_RESERVATION`: by default a machine would use up an open reservation that it fits.
* A spot machine is deleted when it is taken back. A stopped one keeps its disk, its price, and its name.
* No machine restarts by itself: its agent wouldn't. Machines with GPUs can't move to another host.
* No service account unless one is configured: a container can reach the metadata service, which gives its tokens away.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chalicelib.backends.gcp.places import RULE
from chalicelib.backends.gcp.reservations import GcpReservation
from chalicelib.backends.kit import docker_setup
from chalicelib.backends.kit.owners import all_tags, labels
from chalicelib.backends.kit.scripts import check_gateway, cloud_config, user_data
from chalicelib.backends.kit.zones import zone_token
from chalicelib.backends.spi import CreateRequest
from chalicelib.errors import Unfit

MOST_USER_DATA = 256 * 1024  # bytes
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
HYPERDISK = ("a4-", "a4x-", "a3-ultragpu-", "c4-", "c4a-", "c4d-", "g4-", "h3-", "m4-", "n4-")  # these take no other
POLICY_NEEDED = ("a4x-highgpu-4g",)
DISK, HYPER = "pd-balanced", "hyperdisk-balanced"


@dataclass(frozen=True)
class BootImage:
    family: str  # projects/…/global/images/family/…
    gib: int
    has_docker: bool = True


@dataclass(frozen=True)
class GcpPlace:
    """A zone to try a launch in."""

    zone: str
    subnet: str
    network_tags: tuple[str, ...]
    image: BootImage
    reservation: GcpReservation | None = None
    cards: tuple[tuple[str, str], ...] = ()  # subnetwork and kind of each further network card


@dataclass(frozen=True)
class GcpSettings:
    """The account's settings for launches."""

    project: str
    public_ips: bool = True
    service_account: str | None = None
    tags: Mapping[str, str] | None = None


def disk_type(type_name: str) -> str:
    return HYPER if type_name.startswith(HYPERDISK) else DISK


def request_id(token: str, zone: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, zone_token(token, zone)))


def launch(request: CreateRequest, place: GcpPlace, settings: GcpSettings) -> dict[str, Any]:
    """The body of `instances.insert`."""
    name, zone = request.offer.instance.name, f"zones/{place.zone}"
    check_gateway(request, public_ips=settings.public_ips)
    marks = labels(all_tags(request, settings.tags), RULE, "Google")
    items = {"user-data": _user_data(request, place.image), "block-project-ssh-keys": "TRUE"}
    body: dict[str, Any] = {
        "name": request.name,
        "machineType": f"{zone}/machineTypes/{name}",
        "labels": marks,
        "tags": {"items": list(place.network_tags)},
        "disks": [
            {
                "boot": True,
                "autoDelete": True,
                "initializeParams": {
                    "sourceImage": place.image.family,
                    "diskSizeGb": str(max(-(-request.disk_mib // 1024), place.image.gib)),
                    "diskType": f"{zone}/diskTypes/{disk_type(name)}",
                    "labels": marks,
                },
            },
            *_local_disks(zone, place.reservation),
        ],
        "networkInterfaces": _interfaces(place, public=settings.public_ips),
        "scheduling": _scheduling(request, place.reservation),
        "metadata": {"items": [{"key": key, "value": value} for key, value in items.items()]},
        "reservationAffinity": _reservation(request, place),
    }
    if accelerator := request.offer.backend_data.get("accelerator"):
        body["guestAccelerators"] = [
            {
                "acceleratorType": f"projects/{settings.project}/{zone}/acceleratorTypes/{accelerator}",
                "acceleratorCount": len(request.offer.instance.resources.gpus),
            }
        ]
    if policy := _policy(request, place.reservation):
        region = f"projects/{settings.project}/regions/{request.offer.region}"
        body["resourcePolicies"] = [f"{region}/resourcePolicies/{policy}"]
    if settings.service_account:
        body["serviceAccounts"] = [{"email": settings.service_account, "scopes": [SCOPE]}]
    return body


def _user_data(request: CreateRequest, image: BootImage) -> str:
    start = user_data(request, MOST_USER_DATA, "Google")
    if image.has_docker:
        return start
    parts = cloud_config(docker_setup.SCRIPT, docker_setup.PLACE), cloud_config(start)
    return "#cloud-config\n" + json.dumps({name: [*parts[0][name], *parts[1][name]] for name in parts[0]})


def _interfaces(place: GcpPlace, *, public: bool) -> list[dict[str, Any]]:
    address = [{"type": "ONE_TO_ONE_NAT", "name": "External NAT", "networkTier": "PREMIUM"}]
    first = {"subnetwork": place.subnet, "nicType": "GVNIC", **({"accessConfigs": address} if public else {})}
    return [first, *({"subnetwork": subnet, "nicType": kind} for subnet, kind in place.cards)]


def _local_disks(zone: str, reservation: GcpReservation | None) -> list[dict[str, Any]]:
    """Those of the reservation: a machine without them doesn't match it."""
    kind = {"initializeParams": {"diskType": f"{zone}/diskTypes/local-ssd"}}
    interfaces = reservation.ssds if reservation else ()
    return [{"type": "SCRATCH", "autoDelete": True, "interface": each, **kind} for each in interfaces]


def _policy(request: CreateRequest, reservation: GcpReservation | None) -> str:
    """The placement policy: the group's, unless the reservation has its own, or its capacity is dense already. Some
    types must have one in any case."""
    needs = request.offer.instance.name in POLICY_NEEDED
    if reservation is not None and (reservation.policy or (reservation.is_bound and not needs)):
        return reservation.policy
    if needs and request.placement_group is None:
        raise Unfit(
            f"{request.offer.instance.name} needs a placement policy, which neither its fleet nor its reservation has.",
            hint="Set `placement: cluster` in the fleet.",
        )
    return request.placement_group.id if request.placement_group else ""


def _scheduling(request: CreateRequest, reservation: GcpReservation | None) -> dict[str, Any]:
    has = request.offer.instance.resources
    if reservation is not None and reservation.is_bound:
        model = {"provisioningModel": "RESERVATION_BOUND", "instanceTerminationAction": "DELETE"}
        return {**model, "onHostMaintenance": "TERMINATE", "automaticRestart": False}
    if has.spot:
        model = {"provisioningModel": "SPOT", "instanceTerminationAction": "DELETE"}
        return {**model, "onHostMaintenance": "TERMINATE", "automaticRestart": False}
    stays = bool(has.gpus) or request.placement_group is not None
    maintained = "TERMINATE" if stays else "MIGRATE"
    return {"provisioningModel": "STANDARD", "onHostMaintenance": maintained, "automaticRestart": False}


def _reservation(request: CreateRequest, place: GcpPlace) -> dict[str, Any]:
    if place.reservation is None:
        return {"consumeReservationType": "NO_RESERVATION"}
    if request.offer.instance.resources.spot:
        raise Unfit(f"A spot machine can't be in the reservation {place.reservation.name}.")
    return {
        "consumeReservationType": "SPECIFIC_RESERVATION",
        "key": "compute.googleapis.com/reservation-name",
        "values": [place.reservation.target or place.reservation.name],
    }
