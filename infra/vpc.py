"""What a deployment in a VPC needs: a route to AWS from the subnets of the function that logs in to hosts.

A function in a VPC has no public address, whatever its subnet assigns to machines, so it can't use an internet gateway.
Without a route it would hang at its start while it calls Parameter Store, and every added host would wait in vain. So
this is refused before anything is deployed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from chalicelib.backends.aws.network import is_private, table_of
from chalicelib.errors import Invalid, Refused
from infra.account import explained

SUBNETS, GROUPS = "BastionSubnets", "BastionSecurityGroups"
CALLED = ("dynamodb", "lambda", "ssm", "states")  # the services that the function calls


def endpoints(parameters: Mapping[str, str]) -> tuple[str, ...]:
    """The VPC endpoints through which alone the API is reached."""
    found = tuple(each.strip() for each in parameters.get("ApiEndpoints", "").split(",") if each.strip())
    if wrong := [each for each in found if not re.fullmatch(r"vpce-[0-9a-f]+", each)]:
        raise Invalid(
            f"ApiEndpoints has {wrong[0]!r}, which is no id of a VPC endpoint.",
            hint="Name endpoints for execute-api, as in --set ApiEndpoints=vpce-0123456789abcdef0.",
        )
    return found


def check(ec2: Any, region: str, parameters: Mapping[str, str]) -> None:
    """Raises Refused for subnets from which the function can't call AWS."""
    subnets, groups = parameters.get(SUBNETS, ""), parameters.get(GROUPS, "")
    if bool(subnets) != bool(groups):
        given, missing = (SUBNETS, GROUPS) if subnets else (GROUPS, SUBNETS)
        raise Refused(f"{given} is set and {missing} isn't.", hint="Lambda needs both for a function in a VPC.")
    if not subnets:
        return
    with explained("look for a way out of the subnets of the function that logs in"):
        found = ec2.describe_subnets(SubnetIds=subnets.split(","))["Subnets"]
        for vpc in sorted({each["VpcId"] for each in found}):
            _check(ec2, region, vpc, [each["SubnetId"] for each in found if each["VpcId"] == vpc])


def _check(ec2: Any, region: str, vpc: str, subnets: Sequence[str]) -> None:
    inside = [{"Name": "vpc-id", "Values": [vpc]}]
    tables = ec2.describe_route_tables(Filters=inside)["RouteTables"]
    closed = [each for each in subnets if not is_private(table_of(each, tables))]
    if not closed:
        return
    endpoints = ec2.describe_vpc_endpoints(Filters=inside)["VpcEndpoints"]
    for subnet in closed:
        table = table_of(subnet, tables).get("RouteTableId", "")
        if lacking := [each for each in CALLED if not _has(endpoints, f"com.amazonaws.{region}.{each}", table)]:
            raise Refused(
                f"From the subnet {subnet} in {vpc} the function that logs in to hosts can't call AWS: a function in a "
                "VPC has no public address, and the subnet has no route for 0.0.0.0/0 through a NAT gateway, a transit "
                f"gateway or a peering, nor endpoints for {', '.join(lacking)}.",
                hint=f"Name private subnets with such a route in {SUBNETS}, or make the endpoints. "
                f"--set {SUBNETS}= --set {GROUPS}= takes the function out of the VPC.",
            )


def _has(endpoints: Sequence[Mapping[str, Any]], service: str, table: str) -> bool:
    """Does the VPC have an endpoint for this service that a subnet with this route table uses?"""
    named = (each for each in endpoints if each["ServiceName"].removeprefix("cn.") == service)  # as some are in China
    there = (each for each in named if each["State"].lower() == "available")
    return any(
        table in each.get("RouteTableIds", ())
        if each["VpcEndpointType"] == "Gateway"
        else each.get("PrivateDnsEnabled", False)
        for each in there
    )
