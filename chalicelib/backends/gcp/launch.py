"""The request that launches a machine. It is a pure function, so a repeated launch has the same request to the byte.

Its id is for this launch *and zone*, as the machine's name is: neither is known in another zone.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import Any

from chalicelib.backends.gcp.config import GCPBackendConfig
from chalicelib.backends.gcp.places import RULE
from chalicelib.backends.gcp.reservations import GcpReservation
from chalicelib.backends.kit import docker_setup
from chalicelib.backends.kit.bodies import filled
from chalicelib.backends.kit.owners import all_tags, labels
from chalicelib.backends.kit.scripts import check_gateway, cloud_config, user_data
from chalicelib.backends.kit.tables import table
from chalicelib.backends.kit.zones import zone_token
from chalicelib.backends.spi import CreateRequest
from chalicelib.errors import Unfit

_BODIES = table("gcp/launch.toml")
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


def disk_type(type_name: str) -> str:
    return HYPER if type_name.startswith(HYPERDISK) else DISK


def request_id(token: str, zone: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, zone_token(token, zone)))


def launch(request: CreateRequest, place: GcpPlace, config: GCPBackendConfig) -> dict[str, Any]:
    """The body of `instances.insert`."""
    check_gateway(request, public_ips=config.public_ips)
    accelerator, has = request.offer.backend_data.get("accelerator"), request.offer.instance.resources
    values = {
        "name": request.name,
        "project": config.project_id,
        "region": request.offer.region,
        "zone": place.zone,
        "type": request.offer.instance.name,
        "labels": labels(all_tags(request, config.tags), RULE, "Google"),
        "network tags": list(place.network_tags),
        "interfaces": _interfaces(place, public=config.public_ips),
        "image": place.image.family,
        "gib": str(max(-(-request.disk_mib // 1024), place.image.gib)),
        "disk type": disk_type(request.offer.instance.name),
        "accelerator": accelerator,
        "cards": len(has.gpus) if accelerator else None,
        "policy": _policy(request, place.reservation) or None,
        "account": config.vm_service_account or None,
        "scope": SCOPE if config.vm_service_account else None,
        "user data": _user_data(request, place.image),
        "scheduling": _scheduling(request, place.reservation),
        "affinity": _affinity(request, place.reservation),
    }
    ssds = place.reservation.ssds if place.reservation else ()
    disks = [_BODIES["boot"], *({**_BODIES["local"], "interface": each} for each in ssds)]
    body: dict[str, Any] = filled(_BODIES["machine"], {**values, "disks": filled(disks, values)})
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


def _scheduling(request: CreateRequest, reservation: GcpReservation | None) -> Any:
    has, kinds = request.offer.instance.resources, _BODIES["scheduling"]
    if reservation is not None and reservation.is_bound:
        return kinds["bound"]
    if has.spot:
        return kinds["spot"]
    stays = bool(has.gpus) or request.placement_group is not None  # machines with GPUs can't move to another host
    return filled(kinds["usual"], {"maintained": "TERMINATE" if stays else "MIGRATE"})


def _affinity(request: CreateRequest, reservation: GcpReservation | None) -> Any:
    if reservation is None:
        return _BODIES["affinity"]["none"]
    if request.offer.instance.resources.spot:
        raise Unfit(f"A spot machine can't be in the reservation {reservation.name}.")
    return filled(_BODIES["affinity"]["named"], {"reservation": reservation.target or reservation.name})
