"""Where machines are put: the VPC, its subnets by their way out, and the group that lets machines reach each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from chalicelib.backends.aws.backend import AwsBackend
from chalicelib.backends.aws.network import SHOWS, Networks
from chalicelib.errors import Gone, MissingPermission, Transient, Unfit
from tests.backends.aws.account import Account, Fault
from tests.backends.aws.provider import clients, config
from tests.backends.clock import Clock

HERE = "us-east-1"
INSTALL = "00000000-0000-4000-8000-000000000001"


class Vpc:
    """One of the account's own: an internet gateway, a NAT gateway, and what a test adds."""

    def __init__(self, ec2: Any, name: str = "research") -> None:
        self._ec2, self._subnets = ec2, 0
        self.id = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        ec2.create_tags(Resources=[self.id], Tags=[{"Key": "Name", "Value": name}])
        self.igw = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
        ec2.attach_internet_gateway(InternetGatewayId=self.igw, VpcId=self.id)
        inside = self.subnet("f")
        made = ec2.create_nat_gateway(SubnetId=inside, ConnectivityType="private")
        self.nat = made["NatGateway"]["NatGatewayId"]

    def subnet(self, zone: str, **target: str) -> str:
        """With a route table of its own if it has a way out; else the VPC's main one counts."""
        self._subnets += 1
        made = self._ec2.create_subnet(
            VpcId=self.id, CidrBlock=f"10.0.{self._subnets}.0/24", AvailabilityZone=f"{HERE}{zone}"
        )
        subnet = str(made["Subnet"]["SubnetId"])
        if target:
            table = self._ec2.create_route_table(VpcId=self.id)["RouteTable"]["RouteTableId"]
            self._ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", **target)
            self._ec2.associate_route_table(RouteTableId=table, SubnetId=subnet)
        return subnet

    def main_leads(self, **target: str) -> None:
        inside = [{"Name": "vpc-id", "Values": [self.id]}, {"Name": "association.main", "Values": ["true"]}]
        (table,) = self._ec2.describe_route_tables(Filters=inside)["RouteTables"]
        self._ec2.create_route(RouteTableId=table["RouteTableId"], DestinationCidrBlock="0.0.0.0/0", **target)


@pytest.fixture
def ec2(account: Account) -> Any:
    return account.session().client("ec2", region_name=HERE)


@pytest.fixture
def networks(account: Account, clock: Clock) -> Callable[..., Networks]:
    return lambda **given: Networks(clients(account), config(regions=[HERE], **given), clock.now)


def test_a_public_subnet_has_a_way_to_the_internet_gateway(ec2: Any, networks: Callable[..., Networks]) -> None:
    """By its own route table, or else by the main one; one in each zone."""
    vpc = Vpc(ec2)
    public, _ = vpc.subnet("a", GatewayId=vpc.igw), vpc.subnet("b", NatGatewayId=vpc.nat)
    assert networks(vpc_ids={HERE: vpc.id}).of(HERE).subnets == {f"{HERE}a": public}
    vpc.main_leads(GatewayId=vpc.igw)
    plain = vpc.subnet("c")
    found = networks(vpc_ids={HERE: vpc.id}).of(HERE).subnets
    assert found[f"{HERE}a"] == public and found[f"{HERE}c"] == plain and f"{HERE}b" not in found


def test_a_private_subnet_has_another_way_out(ec2: Any, networks: Callable[..., Networks]) -> None:
    vpc = Vpc(ec2)
    vpc.subnet("a", GatewayId=vpc.igw), vpc.subnet("c")
    private = vpc.subnet("b", NatGatewayId=vpc.nat)
    assert networks(vpc_ids={HERE: vpc.id}, public_ips=False).of(HERE).subnets == {f"{HERE}b": private}


def test_a_vpc_without_a_subnet_that_fits_says_what_it_lacks(ec2: Any, networks: Callable[..., Networks]) -> None:
    vpc = Vpc(ec2)
    for public, lacks in ((True, "no public subnet"), (False, "no private subnet")):
        with pytest.raises(Unfit, match=f"{vpc.id} in {HERE} has {lacks}"):
            networks(vpc_ids={HERE: vpc.id}, public_ips=public).of(HERE)


def test_a_vpc_is_chosen_by_its_id_then_its_name_then_the_default_one(
    ec2: Any, networks: Callable[..., Networks]
) -> None:
    named, other = Vpc(ec2), Vpc(ec2, "other")
    for each in (named, other):
        each.subnet("a", GatewayId=each.igw)
    assert networks(vpc_name="research").of(HERE).vpc == named.id
    assert networks(vpc_name="research", vpc_ids={HERE: other.id}).of(HERE).vpc == other.id
    assert networks(vpc_name="research", vpc_ids={"eu-west-1": other.id}).of(HERE).vpc == named.id
    assert networks().of(HERE).vpc not in (named.id, other.id)
    with pytest.raises(Unfit, match=f"No VPC is set for {HERE}"):
        networks(default_vpcs=False, vpc_ids={"eu-west-1": other.id}).of(HERE)
    with pytest.raises(Unfit, match="doesn't have a VPC named nobody's"):
        networks(vpc_name="nobody's").of(HERE)
    Vpc(ec2)
    with pytest.raises(Unfit, match="several VPCs named research"):
        networks(vpc_name="research").of(HERE)


# --- the security group -----------------------------------------------------------------------------------------------


def test_members_reach_each_other_both_ways_and_nobody_reaches_them(
    ec2: Any, networks: Callable[..., Networks]
) -> None:
    name = networks().group(HERE, INSTALL, {"team": "ml"})
    assert networks().group(HERE, INSTALL, {"team": "ml"}) == name, "and the second finds it"
    (group,) = ec2.describe_security_groups(GroupIds=[name])["SecurityGroups"]
    assert {"Key": "team", "Value": "ml"} in group["Tags"]
    itself = [{"GroupId": name}]
    (inbound,) = group["IpPermissions"]
    assert inbound["IpProtocol"] == "-1" and inbound["IpRanges"] == []
    assert [{"GroupId": pair["GroupId"]} for pair in inbound["UserIdGroupPairs"]] == itself
    outbound = [rule["UserIdGroupPairs"] for rule in group["IpPermissionsEgress"]]
    assert itself in [[{"GroupId": pair["GroupId"]} for pair in pairs] for pairs in outbound]


def test_of_two_that_make_the_group_at_once_both_use_it(account: Account, networks: Callable[..., Networks]) -> None:
    account.script.faults.append(Fault("CreateSecurityGroup", "InvalidGroup.Duplicate", "after"))
    account.script.faults.append(Fault("AuthorizeSecurityGroupIngress", "InvalidPermission.Duplicate"))
    assert networks().group(HERE, INSTALL, {}).startswith("sg-")
    assert len(account.params_of("AuthorizeSecurityGroupEgress")) == 1


def test_a_group_that_another_is_making_is_looked_for_later(
    account: Account, networks: Callable[..., Networks]
) -> None:
    account.script.faults.append(Fault("CreateSecurityGroup", "InvalidGroup.Duplicate"))
    with pytest.raises(Transient, match="is being created"):
        networks().group(HERE, INSTALL, {})


@pytest.mark.parametrize("code", ["InvalidGroup.NotFound", "UnauthorizedOperation"])
def test_a_group_that_was_just_made_may_not_be_known_yet_with_its_tags(
    account: Account, clock: Clock, networks: Callable[..., Networks], code: str
) -> None:
    """The first launch in a region is repeated then. Later it means what it says."""
    created = networks()
    account.script.faults.append(Fault("AuthorizeSecurityGroupIngress", code, times=3))
    for _ in range(2):
        with pytest.raises(Transient, match="everywhere yet"):
            created.group(HERE, INSTALL, {})
    clock.at += SHOWS
    with pytest.raises((MissingPermission, Gone), match=code):
        created.group(HERE, INSTALL, {})
    assert created.group(HERE, INSTALL, {}).startswith("sg-")


# --- what a check says ------------------------------------------------------------------------------------------------


def backend(account: Account, clock: Clock, **given: Any) -> AwsBackend:
    return AwsBackend(config(**given), clients(account), clock.now)


def test_a_region_that_the_account_hasnt_enabled_is_told(account: Account, clock: Clock) -> None:
    with pytest.raises(Unfit, match="The account has no region mars-north-1"):
        backend(account, clock, regions=[HERE, "mars-north-1"]).check()


def test_an_instance_profile_that_isnt_there_is_told(account: Account, clock: Clock) -> None:
    checked = backend(account, clock, regions=[HERE], iam_instance_profile="training")
    with pytest.raises(Unfit, match="no instance profile training") as raised:
        checked.check()
    assert "not a role" in raised.value.hint
    account.session().client("iam", region_name=HERE).create_instance_profile(InstanceProfileName="training")
    checked.check()


def test_a_rehearsal_is_no_finding_unless_it_is_about_who_asks(account: Account, clock: Clock) -> None:
    """One without an answer is none either, and the check is to be repeated."""
    account.script.faults.append(Fault("RunInstances", "InsufficientInstanceCapacity", status=500, times=2))
    backend(account, clock, regions=[HERE]).check()
    account.script.faults.append(Fault("DescribeVolumes", "InternalError", status=500))
    with pytest.raises(Transient):
        backend(account, clock, regions=[HERE]).check()
