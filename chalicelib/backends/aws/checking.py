"""Do the credentials work, may they do what is needed, and is each region fit? Everything wrong is said at once."""

from __future__ import annotations

from collections.abc import Mapping

from chalicelib.backends.aws.client import Clients
from chalicelib.backends.aws.config import AWSBackendConfig
from chalicelib.backends.aws.errors import code_of
from chalicelib.backends.aws.network import Networks
from chalicelib.backends.aws.permissions import Probe, probes
from chalicelib.backends.aws.places import everywhere, regions_of, tagged
from chalicelib.errors import BackendError, InvalidCredentials, MissingPermission, Unfit

ALLOWED = "DryRunOperation"  # AWS's answer to a rehearsal of what it would have done


def check(clients: Clients, config: AWSBackendConfig, networks: Networks) -> None:
    """Raises InvalidCredentials, MissingPermission with every action that is denied, or Unfit with every region that
    can't have machines."""
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
    tags = {**(config.tags or {}), "dstack-install": "check"}  # a policy may demand them of whatever is created
    wrong = [
        error
        for found in everywhere(regions, lambda region: _region(clients, networks, region, tags))
        for error in found
    ]
    if wrong:
        raise _together(wrong)


def _profile(clients: Clients, name: str, region: str) -> None:
    try:
        clients.call("iam", region, "get_instance_profile", InstanceProfileName=name)
    except Unfit as error:
        if code_of(error) != "NoSuchEntity":
            raise
        raise Unfit(
            f"The account has no instance profile {name}.",
            hint="Correct `iam_instance_profile`: a profile, not a role.",
        ) from error


def _region(clients: Clients, networks: Networks, region: str, tags: Mapping[str, str]) -> list[BackendError]:
    """What is wrong there. That AWS doesn't answer is no finding."""
    try:
        network = networks.of(region)
    except (MissingPermission, Unfit) as error:
        return [error]
    denied = (_denied(clients, region, probe, tags) for probe in probes(min(network.subnets), network.vpc))
    return [error for error in denied if error is not None]


def _denied(clients: Clients, region: str, probe: Probe, tags: Mapping[str, str]) -> MissingPermission | None:
    rehearsed = {"DryRun": True, "TagSpecifications": tagged([probe.creates], tags)} if probe.creates else {}
    try:
        clients.call("ec2", region, probe.operation, **probe.params, **rehearsed)
    except MissingPermission as error:
        return error
    except InvalidCredentials:
        raise
    except BackendError as error:
        if not probe.creates or not code_of(error):
            raise
        # It would have been done, or would have failed for another reason than who asks.
    return None


def _together(wrong: list[BackendError]) -> BackendError:
    denied = [error for error in wrong if isinstance(error, MissingPermission)]
    kind = MissingPermission if denied else Unfit
    return kind(" ".join(dict.fromkeys(str(error) for error in (denied or wrong))))
