"""A function in a VPC without a way out is refused before anything is deployed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chalicelib.errors import Refused
from infra import vpc
from tests.infra.account import Account
from tests.infra.test_resuming import Deployer

OUT = "0.0.0.0/0"
NAT = {"DestinationCidrBlock": OUT, "NatGatewayId": "nat-1", "State": "active"}
GATEWAY = {"DestinationCidrBlock": OUT, "GatewayId": "igw-1", "State": "active"}
GONE = {**NAT, "State": "blackhole"}


def endpoint(service: str, **more: Any) -> dict[str, Any]:
    usual = {"VpcEndpointType": "Interface", "PrivateDnsEnabled": True, "State": "available"}
    return {"ServiceName": f"com.amazonaws.here.{service}", **usual, **more}


def table(subnet: str) -> dict[str, Any]:
    return endpoint("dynamodb", VpcEndpointType="Gateway", RouteTableIds=[f"rtb-{subnet}"], PrivateDnsEnabled=False)


def check(account: Account, subnets: str, groups: str = "sg-1") -> None:
    vpc.check(account("ec2"), "here", {vpc.SUBNETS: subnets, vpc.GROUPS: groups})


def test_a_subnet_with_a_way_out_is_fine_and_so_is_no_vpc() -> None:
    check(Account(subnets={"a": NAT, "b": NAT}), "a,b")
    check(Account(), "", "")
    vpc.check(None, "here", {})


@pytest.mark.parametrize("route", [GATEWAY, GONE, {}], ids=["an internet gateway", "a NAT that is gone", "none"])
def test_a_subnet_without_one_is_refused_with_the_reason(route: dict[str, Any]) -> None:
    with pytest.raises(
        Refused, match=r"subnet b in vpc-1 .* has no public address.*dynamodb, lambda, ssm, states"
    ) as no:
        check(Account(subnets={"a": NAT, "b": route}), "a,b")
    assert vpc.SUBNETS in no.value.hint


def test_endpoints_are_a_way_to_aws_if_all_are_there() -> None:
    account = Account(subnets={"a": {}}, endpoints=[table("a"), *map(endpoint, ("lambda", "ssm", "states"))])
    check(account, "a")
    account.endpoints[1]["ServiceName"] = f"cn.{account.endpoints[1]['ServiceName']}"  # as some are called in China
    check(account, "a")
    account.endpoints[0] = table("other")
    with pytest.raises(Refused, match="endpoints for dynamodb"):
        check(account, "a")
    account.endpoints = [table("a"), *(endpoint(each, PrivateDnsEnabled=False) for each in ("lambda", "ssm", "states"))]
    with pytest.raises(Refused, match="endpoints for lambda, ssm, states"):
        check(account, "a")


@pytest.mark.parametrize(("subnets", "groups"), [("a", ""), ("", "sg-1")])
def test_one_of_the_two_parameters_alone_is_refused(subnets: str, groups: str) -> None:
    with pytest.raises(Refused, match="isn't"):
        check(Account(subnets={"a": NAT}), subnets, groups)


def test_nothing_is_deployed_then(tmp_path: Path) -> None:
    chosen = {vpc.SUBNETS: "a", vpc.GROUPS: "sg-1"}
    deployer = Deployer(Account(subnets={"a": GATEWAY}), tmp_path, set=chosen)
    with pytest.raises(Refused, match="can't call AWS"):
        deployer.run()
    assert deployer.account.stacks == deployer.account.objects == {}
    deployer.account.subnets["a"] = NAT
    deployer.run()
    deployer.set, deployer.account.subnets["a"] = {}, GONE
    with pytest.raises(Refused, match="can't call AWS"):
        deployer.run("2")
