"""What AWS refuses of a RunInstances request, which moto accepts.

The types' limits are AWS's own, from the data in moto.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from moto.ec2.models.instance_types import INSTANCE_TYPES

from tests.backends.aws.account import check_tags, tags_of
from tests.backends.aws.wire import Params, Refusal, raw_user_data

LARGEST_USER_DATA = 16 * 1024
TAGGABLE = {"instance", "volume", "network-interface", "spot-instances-request"}


@cache
def of_type(name: str) -> dict[str, Any]:
    found = INSTANCE_TYPES.get(name)
    if found is None:
        raise Refusal("InvalidInstanceType", f"Invalid value '{name}' for InstanceType.")
    return dict(found)


def vcpus(name: str) -> int:
    return int(of_type(name)["VCpuInfo"]["DefaultVCpus"])


def market(params: Params) -> str:
    return str(params.get("InstanceMarketOptions", {}).get("MarketType") or "on-demand")


def check_launch(params: Params) -> None:
    of_type(params["InstanceType"])
    token = params.get("ClientToken", "")
    if len(token) > 64 or not token.isascii():
        raise Refusal("InvalidParameterValue", "Client token exceeds 64 ASCII characters")
    if len(raw_user_data(params)) > LARGEST_USER_DATA:
        raise Refusal("InvalidParameterValue", "User data is limited to 16384 bytes")
    for each in params.get("TagSpecifications", ()):
        if each["ResourceType"] not in TAGGABLE or (
            each["ResourceType"] == "spot-instances-request" and market(params) != "spot"
        ):
            what = each["ResourceType"]
            raise Refusal(
                "InvalidParameterValue", f"'{what}' is not a valid taggable resource type for this operation."
            )
        check_tags(tags_of(params, each["ResourceType"]))
    hops = params.get("MetadataOptions", {}).get("HttpPutResponseHopLimit", 1)
    if not 1 <= hops <= 64:
        raise Refusal("InvalidParameterValue", "The hop limit must be between 1 and 64")
    nics = params.get("NetworkInterfaces", [])
    if nics and (params.get("SubnetId") or params.get("SecurityGroupIds")):
        raise Refusal(
            "InvalidParameterCombination",
            "Network interfaces and an instance-level subnet ID may not be specified on the same request",
        )
    if nics:
        _check_nics(nics, of_type(params["InstanceType"])["NetworkInfo"])


def _check_nics(nics: list[Params], limits: dict[str, Any]) -> None:
    places = [(nic.get("NetworkCardIndex", 0), nic.get("DeviceIndex")) for nic in nics]
    if len(set(places)) < len(places):
        raise Refusal("InvalidParameterValue", "Each network interface requires a unique device index.")
    first = next((nic for nic, place in zip(nics, places, strict=True) if place == (0, 0)), None)
    if first is None or first.get("InterfaceType") == "efa-only":
        raise Refusal("InvalidParameterCombination", "The primary network interface can't be missing or EFA-only")
    if len(nics) > 1 and any(nic.get("AssociatePublicIpAddress") for nic in nics):
        raise Refusal(
            "InvalidParameterCombination",
            "The associatePublicIPAddress parameter cannot be specified when launching with multiple interfaces.",
        )
    cards = {card["NetworkCardIndex"]: card for card in limits["NetworkCards"]}
    for card, device in places:
        if card not in cards:
            raise Refusal("InvalidParameterValue", f"The network card index {card} is not valid for this instance type")
        if device >= cards[card]["MaximumNetworkInterfaces"]:
            raise Refusal("AttachmentLimitExceeded", f"Interface count exceeds the limit of network card {card}")
    efas = [nic for nic in nics if nic.get("InterfaceType") in ("efa", "efa-only")]
    if efas and not limits.get("EfaSupported"):
        raise Refusal("UnsupportedOperation", "EFA interfaces are not supported on this instance type")
    if len(efas) > limits.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0):
        raise Refusal("AttachmentLimitExceeded", "The number of EFA interfaces exceeds the limit of the instance type")
    if len({nic.get("NetworkCardIndex", 0) for nic in efas}) < len(efas):
        raise Refusal("AttachmentLimitExceeded", "A network card supports only one EFA interface")
