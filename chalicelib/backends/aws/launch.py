"""The request that launches a machine. It is a pure function, so a repeated launch has the same request to the byte.

These parts are there for a reason:

* The token is for this launch *and zone*: AWS treats the same token in another zone as another launch.
* `CapacityReservationPreference: none`: by default a machine would use up an open reservation that it fits.
* A machine that shuts itself down is terminated, not kept as a disk that costs money.
* IMDSv2 with one hop: a container on a bridge reaches neither the machine's role nor its user data.
* Tags are on everything that the launch makes, the disk and the network cards too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chalicelib.backends.aws.images import Image
from chalicelib.backends.aws.places import tagged
from chalicelib.backends.kit.owners import all_tags
from chalicelib.backends.kit.scripts import check_gateway, user_data
from chalicelib.backends.kit.zones import zone_token
from chalicelib.backends.spi import CreateRequest
from chalicelib.errors import Unfit

MOST_USER_DATA = 16 * 1024  # bytes
_OURS = ("instance", "volume", "network-interface")


@dataclass(frozen=True)
class Reservation:
    """A capacity reservation or block that machines are launched into."""

    id: str
    zone: str
    block: bool
    tenancy: str = "default"
    group: str = ""  # the placement group that it is in, if it is in one


@dataclass(frozen=True)
class LaunchPlace:
    """A zone to try a launch in, with its subnet, image and groups."""

    zone: str
    subnet: str
    groups: tuple[str, ...]  # security groups
    image: Image
    reservation: Reservation | None = None


@dataclass(frozen=True)
class LaunchSettings:
    """The account's settings for launches."""

    public_ips: bool = True
    instance_profile: str | None = None
    tags: Mapping[str, str] | None = None


def owner_tags(request: CreateRequest, settings: LaunchSettings) -> dict[str, str]:
    return {"Name": request.name, **all_tags(request, settings.tags)}


def launch(request: CreateRequest, place: LaunchPlace, settings: LaunchSettings) -> dict[str, Any]:
    """The parameters of RunInstances."""
    script = user_data(request, MOST_USER_DATA, "AWS")
    spot = request.offer.instance.resources.spot
    check_gateway(request, public_ips=settings.public_ips)
    if spot and place.reservation is not None:
        raise Unfit(f"A spot machine can't be in the capacity reservation {place.reservation.id}.")
    parameters: dict[str, Any] = {
        "ImageId": place.image.id,
        "InstanceType": request.offer.instance.name,
        "MinCount": 1,
        "MaxCount": 1,
        "ClientToken": zone_token(request.token, place.zone),
        "UserData": script,
        "BlockDeviceMappings": [_root(place.image, request.disk_mib)],
        "NetworkInterfaces": interfaces(request, place, public_ips=settings.public_ips),
        "MetadataOptions": {"HttpTokens": "required", "HttpEndpoint": "enabled", "HttpPutResponseHopLimit": 1},
        "InstanceInitiatedShutdownBehavior": "terminate",
        "TagSpecifications": tagged(
            [*_OURS, *(["spot-instances-request"] if spot else [])], owner_tags(request, settings)
        ),
        **_market(spot, place.reservation),
    }
    placement = _placement(request, place.reservation)
    if placement:
        parameters["Placement"] = placement
    if settings.instance_profile:
        parameters["IamInstanceProfile"] = {"Name": settings.instance_profile}
    return parameters


def _root(image: Image, disk_mib: int) -> dict[str, Any]:
    return {
        "DeviceName": image.root_device,
        "Ebs": {
            "VolumeSize": max(-(-disk_mib // 1024), image.root_gib),
            "VolumeType": "gp3",
            "DeleteOnTermination": True,
        },
    }


def _market(spot: bool, reservation: Reservation | None) -> dict[str, Any]:
    if reservation is None:
        holding: dict[str, Any] = {"CapacityReservationSpecification": {"CapacityReservationPreference": "none"}}
    else:
        target = {"CapacityReservationTarget": {"CapacityReservationId": reservation.id}}
        holding = {"CapacityReservationSpecification": target}
    if reservation is not None and reservation.block:
        return {**holding, "InstanceMarketOptions": {"MarketType": "capacity-block"}}
    if spot:
        options = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
        return {"InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": options}}
    return holding


def _placement(request: CreateRequest, reservation: Reservation | None) -> dict[str, str]:
    placement: dict[str, str] = {}
    if request.placement_group is not None and not (reservation and reservation.block):  # a block has its own placement
        placement["GroupName"] = request.placement_group.id
    if reservation is not None and reservation.group:  # its capacity is for that group alone
        placement["GroupName"] = reservation.group
    if reservation is not None and reservation.tenancy != "default":
        placement["Tenancy"] = reservation.tenancy
    return placement


# --- network cards -------------------------------------------------------------------------------------------------


def efa_cards(request: CreateRequest) -> tuple[int, ...]:
    """The network cards with an EFA, for a machine that joins a cluster. A machine by itself has none."""
    if request.placement_group is None:
        return ()
    found: Sequence[int] = request.offer.backend_data.get("efa") or ()
    return tuple(sorted(int(card) for card in found))


def needs_address(request: CreateRequest, *, public_ips: bool) -> bool:
    """Does it need an elastic address?"""
    return public_ips and without_address(efa_cards(request))


def without_address(efa: Sequence[int]) -> bool:
    """AWS doesn't assign a public address to a machine with several network cards."""
    return len(_cards(efa)) > 1


def interfaces(request: CreateRequest, place: LaunchPlace, *, public_ips: bool) -> list[dict[str, Any]]:
    cards = _cards(efa_cards(request))
    listed = []
    for card, device, kind in cards:
        each: dict[str, Any] = {
            "DeviceIndex": device,
            "NetworkCardIndex": card,
            "SubnetId": place.subnet,
            "Groups": list(place.groups),
            "DeleteOnTermination": True,
        }
        if kind != "interface":
            each["InterfaceType"] = kind
        if len(cards) == 1:
            each["AssociatePublicIpAddress"] = public_ips
        listed.append(each)
    return listed


def _cards(efa: Sequence[int]) -> list[tuple[int, int, str]]:
    """Network card, device index and kind of each interface. With one EFA a single interface is both; with several,
    the first carries the traffic, and each EFA is one that has no address."""
    if tuple(efa) == (0,):
        return [(0, 0, "efa")]
    first = [(0, 0, "interface")]
    return first + [(card, 1 if card == 0 else 0, "efa-only") for card in efa]
