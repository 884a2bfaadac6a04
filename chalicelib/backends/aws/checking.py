"""Checks that the credentials work, that they have every needed permission, and that each region can be used. All
problems are reported at once.

Calls that would change something are made as a dry run. A launch's dry run has the same image, subnet, role and tags as
a real one, and is made on demand and spot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chalicelib.backends.aws.client import Clients
from chalicelib.backends.aws.config import AWSBackendConfig
from chalicelib.backends.aws.images import AwsImages
from chalicelib.backends.aws.launch import LaunchPlace, LaunchSettings, launch
from chalicelib.backends.aws.machines import ALIVE
from chalicelib.backends.aws.network import Network, Networks
from chalicelib.backends.aws.permissions import CHANGES, OWNED, OwnedListing, PermissionProbe, probes
from chalicelib.backends.aws.places import filters, regions_of, tagged
from chalicelib.backends.aws.prices import HOME
from chalicelib.backends.kit.regions import everywhere
from chalicelib.backends.spi import CreateRequest
from chalicelib.domain.offers import Gpu, InstanceType, Offer, Resources
from chalicelib.errors import BackendError, InvalidCredentials, MissingPermission, Unfit

ALLOWED = "DryRunOperation"  # AWS's answer to a rehearsal of what it would have done


@dataclass(frozen=True)
class _CheckContext:
    """One check and its calls."""

    clients: Clients
    config: AWSBackendConfig
    networks: Networks
    images: AwsImages
    tags: Mapping[str, str]  # a policy may demand them of whatever is created


def check(
    clients: Clients, config: AWSBackendConfig, networks: Networks, images: AwsImages, *, price_file: bool = False
) -> None:
    """Raises InvalidCredentials, MissingPermission with every denied action, or Unfit with every region that can't have
    machines. With a `price_file`, the account needn't be allowed to read prices."""
    regions = regions_of(config)
    clients.call("sts", regions[0], "get_caller_identity")
    enabled = clients.call("ec2", regions[0], "describe_regions")["Regions"]
    missing = sorted(set(regions) - {each["RegionName"] for each in enabled})
    if missing:
        raise Unfit(
            f"The account has no region {', '.join(missing)}.",
            hint="Enable it in the account's settings, or take it out of `regions`.",
        )
    if config.iam_instance_profile:
        _profile(clients, config.iam_instance_profile, regions[0])
    networks.forget()
    images.forget()
    context = _CheckContext(clients, config, networks, images, {**(config.tags or {}), "dstack-install": "check"})
    wrong = [] if price_file else _unpriced(clients, regions[0])
    wrong += [error for found in everywhere(regions, lambda region: _region(context, region)) for error in found]
    if wrong:
        raise _together(wrong)


def _profile(clients: Clients, name: str, region: str) -> None:
    try:
        clients.call("iam", region, "get_instance_profile", InstanceProfileName=name)
    except Unfit as error:
        if error.provider_code != "NoSuchEntity":
            raise
        raise Unfit(
            f"The account has no instance profile {name}.",
            hint="Correct `iam_instance_profile`: a profile, not a role.",
        ) from error


def _unpriced(clients: Clients, region: str) -> list[BackendError]:
    wrong: list[BackendError] = []
    for service, where, operation, params in (
        ("pricing", HOME, "get_products", {"ServiceCode": "AmazonEC2", "MaxResults": 1}),
        ("ec2", region, "describe_spot_price_history", {"MaxResults": 5}),
    ):
        try:
            clients.call(service, where, operation, **params)
        except MissingPermission as error:
            wrong.append(error)
    return wrong


def _region(context: _CheckContext, region: str) -> list[BackendError]:
    """The region's problems. If AWS doesn't respond, that isn't one."""
    try:
        network = context.networks.of(region)
    except (MissingPermission, Unfit) as error:
        return [error]
    denied = [_denied(context, region, probe) for probe in probes(min(network.subnets), network.vpc)]
    denied += _unchanged(context, region)
    try:
        denied += [_rehearsed(context, region, "run_instances", each) for each in _launches(context, region, network)]
    except (MissingPermission, Unfit) as error:
        denied.append(error)
    return [error for error in denied if error is not None]


def _denied(context: _CheckContext, region: str, probe: PermissionProbe) -> BackendError | None:
    if probe.creates:
        tags = tagged([probe.creates], context.tags)
        return _rehearsed(context, region, probe.operation, {**probe.params, "TagSpecifications": tags})
    try:
        context.clients.call("ec2", region, probe.operation, **probe.params)
    except MissingPermission as error:
        return error
    return None


def _rehearsed(context: _CheckContext, region: str, operation: str, params: Mapping[str, Any]) -> BackendError | None:
    try:
        context.clients.call("ec2", region, operation, **params, DryRun=True)
    except MissingPermission as error:
        return error
    except InvalidCredentials:
        raise
    except BackendError as error:
        if not error.provider_code:
            raise
        # It would have been done, or would have failed for another reason than who asks.
    return None


def _unchanged(context: _CheckContext, region: str) -> list[BackendError | None]:
    """What may not be done to what there is."""
    ids: dict[str, str] = {}
    for each in OWNED:
        ids |= _first_of_ours(context, region, each)
    return [
        _rehearsed(context, region, change.operation, change.params(*(ids[name] for name in change.ids)))
        for change in CHANGES
        if ids.keys() >= {*change.ids}
    ]


def _first_of_ours(context: _CheckContext, region: str, listing: OwnedListing) -> dict[str, str]:
    """An id of something that is ours, by its field."""
    owned = filters(tag_key="dstack-install")
    if listing.key == "Reservations":
        owned += filters(instance_state_name=ALIVE)
    try:
        listed = context.clients.call("ec2", region, listing.operation, Filters=owned)[listing.key]
    except MissingPermission:
        return {}  # which is found without this
    bodies = [body for each in listed for body in each.get("Instances", [each])]
    return {name: str(body[name]) for body in reversed(bodies) for name in listing.ids if body.get(name)}


def _launches(context: _CheckContext, region: str, network: Network) -> list[dict[str, Any]]:
    """The requests for a machine in the first zone. Unless a group was given, any of the VPC stands in for ours, which
    isn't made yet."""
    groups = context.clients.call("ec2", region, "describe_security_groups", Filters=filters(vpc_id=network.vpc))
    group = network.group or next((each["GroupId"] for each in groups["SecurityGroups"]), "sg-00000000000000000")
    zone, config = min(network.subnets), context.config
    settings = LaunchSettings(config.public_ips, config.iam_instance_profile, context.tags)
    only_gpus = config.os_images is not None and config.os_images.cpu is None
    name, gpus = (
        ("g4dn.xlarge", (Gpu(name="T4", memory_mib=16_384, vendor="nvidia"),)) if only_gpus else ("t3.micro", ())
    )
    found = []
    for spot in (False, True):
        has = Resources(cpus=2, memory_mib=1024, gpus=gpus, spot=spot, cpu_arch="x86")
        kind = InstanceType(name=name, resources=has)
        offer = Offer(backend="aws", instance=kind, region=region, price=0.0)
        place = LaunchPlace(zone, network.subnets[zone], (group,), context.images.of(offer))
        request = CreateRequest("check", "dstack-check", tuple(context.tags.items()), offer, "", "", has.disk.size_mib)
        parameters = launch(request, place, settings)
        found.append({name: value for name, value in parameters.items() if name != "ClientToken"})
    return found


def _together(wrong: list[BackendError]) -> BackendError:
    denied = [error for error in wrong if isinstance(error, MissingPermission)]
    kind = MissingPermission if denied else Unfit
    return kind(" ".join(dict.fromkeys(str(error) for error in (denied or wrong))))
