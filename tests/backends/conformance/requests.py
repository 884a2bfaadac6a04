"""Requests as the engine makes them: owners, names and tags by the same codec."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from chalicelib.backends.spi import (
    Backend,
    Container,
    CreateRequest,
    GangMember,
    GatewayContainers,
    GroupRequest,
    VolumeRequest,
)
from chalicelib.domain import container_script
from chalicelib.domain.boot_script import user_data
from chalicelib.domain.ids import derive
from chalicelib.domain.instances import Handle
from chalicelib.domain.offers import Offer
from chalicelib.domain.owner import CALLED, OwnedKind, Owner

INSTALL, OTHER_INSTALL = derive("conformance", "install"), derive("elsewhere", "install")
PROJECT, FLEET = derive("conformance", "project"), derive("conformance", "fleet")
IMAGE = "registry.example.com/team/trainer:1"
BOOT_TOKEN = "5ec2e7" * 10  # which lets a machine join: never shown


def request_for(offer: Offer, name: str = "one", epoch: int = 0, install: str = INSTALL) -> CreateRequest:
    instance_id = derive(install, "instance", name)
    owner = Owner(OwnedKind.instance, install, PROJECT, instance_id, epoch)
    settings = "http://127.0.0.1:1", instance_id, BOOT_TOKEN, "0" * 64
    command, env = tuple(container_script.command()), container_script.settings(*settings, carriers={})
    return CreateRequest(
        token=derive(instance_id, "create", epoch),
        name=owner.name,
        tags=(*owner.tags, (CALLED, name)),
        offer=offer,
        instance_id=instance_id,
        user_data="" if offer.is_container else user_data(*settings),
        bundle=_scripts(settings, offer.bundle),
        container=Container(IMAGE, command, env) if offer.is_container else None,
        disk_mib=offer.instance.resources.disk.size_mib,
        zones=offer.availability_zones,
    )


def _scripts(settings: tuple[str, str, str, str], size: int) -> tuple[str, ...]:
    """Of the machines of a bundle, the first one's being that of the request."""
    server, first, token, program = settings
    more = [(derive(first, "bundle", at), f"{at:02x}{token[2:]}") for at in range(1, size)]
    each = [(first, token), *more] if more else []
    return tuple(user_data(server, instance_id, its_token, program) for instance_id, its_token in each)


def member_for(offer: Offer, gang: str, rank: int, nodes: int = 3) -> CreateRequest:
    """One of several containers that start together."""
    request = request_for(offer, f"{gang}-{rank}")
    assert request.container is not None
    member = GangMember(derive("conformance", "gang", gang), rank, nodes)
    return replace(request, container=replace(request.container, gang=member))


def unsold(offer: Offer, name: str) -> Offer:
    """Of a type that doesn't exist, or of a listing that doesn't, where that is what is bought."""
    terms = offer.terms.with_(listing=name) if offer.terms.listing else offer.terms
    return offer.with_(instance=offer.instance.with_(name=name), terms=terms)


def created(backend: Backend, request: CreateRequest) -> Iterator[Handle]:
    """As the engine creates it: a gateway's container by its own call."""
    if request.open_ports and request.container is not None and isinstance(backend, GatewayContainers):
        return backend.create_gateway(request)
    return backend.create(request)


def group_request_for(offer: Offer, name: str = "one") -> GroupRequest:
    group_id = derive("conformance", "placement-group", name)
    owner = Owner(OwnedKind.group, INSTALL, PROJECT, group_id, fleet_id=FLEET)
    return GroupRequest(
        token=derive(group_id, "create"),
        name=owner.name,
        tags=(*owner.tags, (CALLED, name)),
        offer=offer,
        zones=offer.availability_zones,
    )


def inside(request: CreateRequest, group: Handle) -> CreateRequest:
    """The same machine in this group, where that is."""
    zone = group.data.get("zone")
    return replace(request, placement_group=group, zones=(zone,) if zone else request.zones)


def volume_request(region: str, name: str = "data", epoch: int = 0) -> VolumeRequest:
    volume_id = derive("conformance", "volume", name)
    owner = Owner(OwnedKind.volume, INSTALL, PROJECT, volume_id, epoch)
    return VolumeRequest(
        token=derive(volume_id, "create", epoch),
        name=owner.name,
        tags=(*owner.tags, (CALLED, name)),
        region=region,
        zone="",
        size_gib=1,
    )
