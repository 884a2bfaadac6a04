"""The AWS for tests lies as AWS does, and refuses what AWS refuses. Each case is a row of what moto gets wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ParamValidationError

from chalicelib.domain.instants import MINUTE
from tests.backends.aws.account import Account, Fault, Script
from tests.backends.aws.instances import NOTICE
from tests.backends.clock import Clock

IMAGE = "ami-0d1a000000000001"


@pytest.fixture
def account(clock: Clock) -> Iterator[Account]:
    account = Account(clock.now, Script(lag=0))
    yield account
    account.close()


@pytest.fixture
def ec2(account: Account) -> Any:
    return account.session().client("ec2", config=Config(retries={"total_max_attempts": 1}))


@pytest.fixture
def subnets(ec2: Any) -> list[str]:
    found = ec2.describe_subnets()["Subnets"]
    return [each["SubnetId"] for each in sorted(found, key=lambda each: str(each["AvailabilityZone"]))]


@pytest.fixture
def launch(ec2: Any, subnets: list[str]) -> Callable[..., Any]:
    def launch(**params: Any) -> Any:
        given = {"ImageId": IMAGE, "InstanceType": "g4dn.xlarge", "MinCount": 1, "MaxCount": 1, "SubnetId": subnets[0]}
        if "NetworkInterfaces" in params:
            del given["SubnetId"]
        return ec2.run_instances(**{**given, **params})["Instances"]

    return launch


def refused(code: str) -> Any:
    return pytest.raises(ClientError, match=rf"\({code}\)")


def nic(subnet: str, card: int = 0, device: int = 0, kind: str = "interface", **other: Any) -> dict[str, Any]:
    return {"SubnetId": subnet, "NetworkCardIndex": card, "DeviceIndex": device, "InterfaceType": kind, **other}


# --- tokens -----------------------------------------------------------------------------------------------------------


def test_a_token_finds_its_instance_in_its_zone_alone(
    launch: Callable[..., Any], ec2: Any, subnets: list[str], clock: Clock
) -> None:
    (first,) = launch(ClientToken="t")
    assert launch(ClientToken="t")[0]["InstanceId"] == first["InstanceId"]
    assert launch(ClientToken="t", SubnetId=subnets[1])[0]["InstanceId"] != first["InstanceId"]
    with refused("IdempotentParameterMismatch"):
        launch(ClientToken="t", UserData="newer")
    ec2.terminate_instances(InstanceIds=[first["InstanceId"]])
    clock.at += MINUTE
    with refused("IdempotentInstanceTerminated"):
        launch(ClientToken="t")
    found = ec2.describe_instances(Filters=[{"Name": "client-token", "Values": ["t"]}])["Reservations"]
    assert sum(len(each["Instances"]) for each in found) == 2


def test_a_volumes_token_is_taken_once(ec2: Any) -> None:
    params = {"AvailabilityZone": "us-east-1a", "Size": 10, "ClientToken": "t"}
    assert ec2.create_volume(**params)["VolumeId"] == ec2.create_volume(**params)["VolumeId"]
    with refused("IdempotentParameterMismatch"):
        ec2.create_volume(**{**params, "Size": 11})


# --- time -------------------------------------------------------------------------------------------------------------


def state_of(ec2: Any, instance: str) -> str:
    found = ec2.describe_instances(InstanceIds=[instance])["Reservations"]
    return str(found[0]["Instances"][0]["State"]["Name"])


def test_states_take_their_time(launch: Callable[..., Any], ec2: Any, clock: Clock, account: Account) -> None:
    (made,) = launch()
    name = made["InstanceId"]
    assert state_of(ec2, name) == "pending"
    clock.at += account.script.boot
    assert state_of(ec2, name) == "running"
    ec2.terminate_instances(InstanceIds=[name])
    assert state_of(ec2, name) == "shutting-down"
    clock.at += account.script.end
    assert state_of(ec2, name) == "terminated"
    ec2.terminate_instances(InstanceIds=[name])
    clock.at += account.script.listed_for
    with refused("InvalidInstanceID.NotFound"):
        state_of(ec2, name)


def test_what_is_new_isnt_shown(launch: Callable[..., Any], ec2: Any, clock: Clock, account: Account) -> None:
    account.script.lag = MINUTE
    (made,) = launch()
    assert ec2.describe_instances()["Reservations"] == []
    for call in (ec2.describe_instances, ec2.terminate_instances):
        with refused("InvalidInstanceID.NotFound"):
            call(InstanceIds=[made["InstanceId"]])
    clock.at += MINUTE
    assert state_of(ec2, made["InstanceId"]) == "running"


def test_capacity_may_be_missed_late(launch: Callable[..., Any], ec2: Any, clock: Clock, account: Account) -> None:
    account.script.late = {"us-east-1a"}
    (made,) = launch()
    clock.at += account.script.boot
    (found,) = ec2.describe_instances()["Reservations"][0]["Instances"]
    assert (found["State"]["Name"], found["InstanceId"]) == ("terminated", made["InstanceId"])
    assert found["StateReason"]["Code"] == "Server.InsufficientInstanceCapacity"


# --- capacity, quotas, faults -----------------------------------------------------------------------------------------


def test_stockouts_are_of_a_zone(launch: Callable[..., Any], account: Account, subnets: list[str]) -> None:
    account.script.capacity["us-east-1a/g4dn.xlarge"] = 1
    assert len(launch(MaxCount=3)) == 1
    with refused("InsufficientInstanceCapacity"):
        launch()
    launch(SubnetId=subnets[1])
    account.script.not_offered.add("us-east-1c/g4dn.xlarge")
    with refused("Unsupported"):
        launch(SubnetId=subnets[2])


def test_quotas_count_vcpus_by_family_and_market(launch: Callable[..., Any], account: Account) -> None:
    account.script.quotas = {"L-DB2E81BA": 4, "L-3819A6DF": 0}
    launch()
    with refused("VcpuLimitExceeded"):
        launch(InstanceType="g5.xlarge")
    with refused("MaxSpotInstanceCountExceeded"):
        launch(InstanceMarketOptions={"MarketType": "spot"})
    launch(InstanceType="m5.large")
    quotas = account.session().client("service-quotas")
    assert quotas.get_service_quota(ServiceCode="ec2", QuotaCode="L-DB2E81BA")["Quota"]["Value"] == 4


def test_faults_come_before_and_after(launch: Callable[..., Any], ec2: Any, account: Account) -> None:
    account.script.faults += [
        Fault("RunInstances", "RequestLimitExceeded", status=503),
        Fault("RunInstances", "InternalError", "after", status=500, zone="us-east-1a"),
    ]
    with refused("RequestLimitExceeded"):
        launch()
    assert ec2.describe_instances()["Reservations"] == []
    with refused("InternalError"):
        launch()
    assert len(ec2.describe_instances()["Reservations"]) == 1
    launch()


def test_the_sdk_repeats_what_isnt_forbidden_to_it(account: Account, subnets: list[str]) -> None:
    """So a stockout costs three calls, unless the client is told otherwise."""
    account.script.capacity["us-east-1a/g4dn.xlarge"] = 0
    account.script.faults.append(Fault("RunInstances", "InternalError", times=2, status=500))
    eager = account.session().client("ec2", config=Config(retries={"total_max_attempts": 2}))
    with pytest.raises(ClientError):
        eager.run_instances(
            ImageId=IMAGE, InstanceType="g4dn.xlarge", MinCount=1, MaxCount=1, SubnetId=subnets[0], ClientToken="t"
        )
    assert len(account.params_of("RunInstances")) == 2


def test_listings_come_in_pages(launch: Callable[..., Any], ec2: Any, account: Account) -> None:
    made = {launch()[0]["InstanceId"] for _ in range(5)}
    account.script.page = 2
    pages = list(ec2.get_paginator("describe_instances").paginate(MaxResults=1000))
    assert [len(each["Reservations"]) for each in pages] == [2, 2, 1]
    assert {body["InstanceId"] for each in pages for r in each["Reservations"] for body in r["Instances"]} == made
    with refused("InvalidParameterCombination"):
        ec2.describe_instances(InstanceIds=sorted(made), MaxResults=5)


def test_strangers_are_refused(account: Account) -> None:
    stranger = boto3.Session(aws_access_key_id="AKIANOBODY", aws_secret_access_key="x", region_name="us-east-1")
    stranger.events.register("before-send", lambda request, **_: account.send(request))
    with refused("AuthFailure"):
        stranger.client("ec2").describe_regions()


# --- requests ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"InstanceType": "g4dn.huge"}, "InvalidInstanceType"),
        ({"ImageId": "ami-0000000000000000f"}, "InvalidAMIID.NotFound"),
        ({"SubnetId": "subnet-0f"}, "InvalidSubnetID.NotFound"),
        ({"ClientToken": "x" * 65}, "InvalidParameterValue"),
        ({"UserData": "x" * (16 * 1024 + 1)}, "InvalidParameterValue"),
        ({"MetadataOptions": {"HttpPutResponseHopLimit": 65}}, "InvalidParameterValue"),
        ({"IamInstanceProfile": {"Name": "nobody"}}, "NoSuchEntity"),
        ({"Placement": {"GroupName": "nowhere"}}, "InvalidPlacementGroup.Unknown"),
        ({"TagSpecifications": [{"ResourceType": "volume", "Tags": [{"Key": "aws:x"}]}]}, "InvalidParameterValue"),
        ({"TagSpecifications": [{"ResourceType": "elastic-ip", "Tags": []}]}, "InvalidParameterValue"),
        ({"TagSpecifications": [{"ResourceType": "spot-instances-request", "Tags": []}]}, "InvalidParameterValue"),
        ({"InstanceMarketOptions": {"MarketType": "capacity-block"}}, "MissingParameter"),
        ({"DryRun": True}, "DryRunOperation"),
    ],
    ids=str,
)
def test_wrong_requests_are_refused(launch: Callable[..., Any], params: dict[str, Any], code: str) -> None:
    with refused(code):
        launch(**params)


def test_what_isnt_in_the_model_isnt_sent(launch: Callable[..., Any]) -> None:
    with pytest.raises(ParamValidationError):
        launch(Colour="blue")


def many(subnet: str, kinds: list[tuple[int, int, str]], **first: Any) -> dict[str, Any]:
    nics = [nic(subnet, *place) for place in kinds]
    return {"InstanceType": "p4d.24xlarge", "NetworkInterfaces": [nics[0] | first, *nics[1:]]}


P4D = [(0, 0, "interface"), (0, 1, "efa-only"), (1, 0, "efa-only"), (2, 0, "efa-only"), (3, 0, "efa-only")]


def test_all_cards_of_a_type_take_an_efa(launch: Callable[..., Any], subnets: list[str]) -> None:
    (made,) = launch(**many(subnets[0], P4D))
    shown = [
        (each["Attachment"]["NetworkCardIndex"], each["Attachment"]["DeviceIndex"], each["InterfaceType"])
        for each in made["NetworkInterfaces"]
    ]
    assert shown == P4D and "PublicIpAddress" not in made


@pytest.mark.parametrize(
    ("kinds", "first", "code"),
    [
        (P4D, {"AssociatePublicIpAddress": True}, "InvalidParameterCombination"),
        ([(0, 0, "interface"), (0, 0, "efa-only")], {}, "InvalidParameterValue"),
        ([(0, 0, "efa-only")], {}, "InvalidParameterCombination"),
        ([(0, 1, "efa")], {}, "InvalidParameterCombination"),
        ([*P4D, (4, 0, "efa-only")], {}, "InvalidParameterValue"),
        ([*P4D, (1, 1, "efa-only")], {}, "AttachmentLimitExceeded"),
    ],
    ids=["public address", "same device", "no address", "no primary", "no such card", "too many"],
)
def test_wrong_interfaces_are_refused(
    launch: Callable[..., Any], subnets: list[str], kinds: list[tuple[int, int, str]], first: dict[str, Any], code: str
) -> None:
    with refused(code):
        launch(**many(subnets[0], kinds, **first))


def test_only_some_types_have_efa(launch: Callable[..., Any], ec2: Any, subnets: list[str]) -> None:
    with refused("UnsupportedOperation"):
        launch(NetworkInterfaces=[nic(subnets[0], kind="efa")])
    with refused("InvalidParameterCombination"):
        ec2.run_instances(
            ImageId=IMAGE,
            InstanceType="g4dn.8xlarge",
            MinCount=1,
            MaxCount=1,
            SubnetId=subnets[0],
            NetworkInterfaces=[nic(subnets[0])],
        )


# --- spot, groups, reservations ---------------------------------------------------------------------------------------


def test_spot_instances_have_a_request_and_a_notice(
    launch: Callable[..., Any], ec2: Any, clock: Clock, account: Account
) -> None:
    (made,) = launch(InstanceMarketOptions={"MarketType": "spot"})
    clock.at += MINUTE

    def status() -> str:
        (request,) = ec2.describe_spot_instance_requests(SpotInstanceRequestIds=[made["SpotInstanceRequestId"]])[
            "SpotInstanceRequests"
        ]
        return str(request["Status"]["Code"])

    assert status() == "fulfilled"
    account.machines.interrupt(made["InstanceId"])
    assert (status(), state_of(ec2, made["InstanceId"])) == ("marked-for-termination", "running")
    clock.at += NOTICE
    assert state_of(ec2, made["InstanceId"]) == "shutting-down"
    clock.at += MINUTE
    assert (status(), state_of(ec2, made["InstanceId"])) == ("instance-terminated-no-capacity", "terminated")


def test_groups_have_one_name_one_zone_and_end_empty(
    launch: Callable[..., Any], ec2: Any, clock: Clock, subnets: list[str]
) -> None:
    ec2.create_placement_group(GroupName="g", Strategy="cluster")
    with refused("InvalidPlacementGroup.Duplicate"):
        ec2.create_placement_group(GroupName="g", Strategy="cluster")
    (made,) = launch(Placement={"GroupName": "g"})
    with refused("InsufficientInstanceCapacity"):
        launch(Placement={"GroupName": "g"}, SubnetId=subnets[1])
    with refused("InvalidPlacementGroup.InUse"):
        ec2.delete_placement_group(GroupName="g")
    ec2.terminate_instances(InstanceIds=[made["InstanceId"]])
    clock.at += MINUTE
    ec2.delete_placement_group(GroupName="g")
    with refused("InvalidPlacementGroup.Unknown"):
        ec2.delete_placement_group(GroupName="g")


def test_reservations_take_what_they_are_for(launch: Callable[..., Any], account: Account, ec2: Any) -> None:
    def into(reservation: str, **params: Any) -> Any:
        target = {"CapacityReservationTarget": {"CapacityReservationId": reservation}}
        return launch(CapacityReservationSpecification=target, **params)

    plain = account.places.reserve("us-east-1", "us-east-1a", "g4dn.xlarge")
    block = account.places.reserve("us-east-1", "us-east-1a", "g4dn.xlarge", ReservationType="capacity-block")
    into(plain)
    with refused("ReservationCapacityExceeded"):
        into(plain)
    with refused("InvalidParameterValue"):
        into(block)
    into(block, InstanceMarketOptions={"MarketType": "capacity-block"})
    with refused("InvalidCapacityReservationId.NotFound"):
        ec2.describe_capacity_reservations(CapacityReservationIds=["cr-0"])
    found = ec2.describe_capacity_reservations(CapacityReservationIds=[plain])["CapacityReservations"]
    assert [each["AvailableInstanceCount"] for each in found] == [0]


# --- addresses, interfaces, groups of rules ---------------------------------------------------------------------------


def test_addresses_are_few_and_bound_until_unbound(
    launch: Callable[..., Any], ec2: Any, clock: Clock, account: Account, subnets: list[str]
) -> None:
    account.script.addresses = 1
    (made,) = launch(**many(subnets[0], P4D))
    first = made["NetworkInterfaces"][0]["NetworkInterfaceId"]
    address = ec2.allocate_address(Domain="vpc")["AllocationId"]
    with refused("AddressLimitExceeded"):
        ec2.allocate_address(Domain="vpc")
    with refused("IncorrectInstanceState"):
        ec2.associate_address(AllocationId=address, NetworkInterfaceId=first)
    clock.at += MINUTE
    with refused("InvalidInstanceID"):
        ec2.associate_address(AllocationId=address, InstanceId=made["InstanceId"])
    bound = ec2.associate_address(AllocationId=address, NetworkInterfaceId=first)["AssociationId"]
    with refused("InvalidIPAddress.InUse"):
        ec2.release_address(AllocationId=address)
    ec2.disassociate_address(AssociationId=bound)
    ec2.release_address(AllocationId=address)
    with refused("InvalidAllocationID.NotFound"):
        ec2.release_address(AllocationId=address)


def test_what_ends_leaves_what_wasnt_to_go_with_it(
    launch: Callable[..., Any], ec2: Any, clock: Clock, subnets: list[str]
) -> None:
    (made,) = launch(**many(subnets[0], P4D[:2], DeleteOnTermination=False))
    clock.at += MINUTE
    ec2.terminate_instances(InstanceIds=[made["InstanceId"]])
    clock.at += MINUTE
    left = ec2.describe_network_interfaces(Filters=[{"Name": "status", "Values": ["available"]}])["NetworkInterfaces"]
    assert [each["NetworkInterfaceId"] for each in left] == [
        each["NetworkInterfaceId"] for each in made["NetworkInterfaces"]
    ]
    assert ec2.describe_volumes()["Volumes"] == []


def test_a_security_group_in_use_stays(launch: Callable[..., Any], ec2: Any, clock: Clock, subnets: list[str]) -> None:
    vpc = ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
    group = ec2.create_security_group(GroupName="g", Description="g", VpcId=vpc)["GroupId"]
    (made,) = launch(NetworkInterfaces=[nic(subnets[0], Groups=[group])])
    with refused("DependencyViolation"):
        ec2.delete_security_group(GroupId=group)
    ec2.terminate_instances(InstanceIds=[made["InstanceId"]])
    clock.at += MINUTE
    ec2.delete_security_group(GroupId=group)


# --- volumes ----------------------------------------------------------------------------------------------------------


def test_volumes_are_attached_in_their_zone_once_and_after_a_while(
    launch: Callable[..., Any], ec2: Any, clock: Clock, subnets: list[str]
) -> None:
    here, there = launch()[0]["InstanceId"], launch(SubnetId=subnets[1])[0]["InstanceId"]
    volume = ec2.create_volume(AvailabilityZone="us-east-1a", Size=10)["VolumeId"]

    def attach(instance: str, device: str = "/dev/sdf") -> None:
        ec2.attach_volume(VolumeId=volume, InstanceId=instance, Device=device)

    with refused("IncorrectState"):
        attach(here)  # which is pending
    clock.at += MINUTE
    with refused("InvalidVolume.ZoneMismatch"):
        attach(there)
    with refused("InvalidParameterValue"):
        attach(here, "/dev/sda1")
    attach(here)
    for again in (here, launch()[0]["InstanceId"]):
        clock.at += MINUTE
        with refused("VolumeInUse"):
            attach(again, "/dev/sdg")
    with refused("VolumeInUse"):
        ec2.delete_volume(VolumeId=volume)
    ec2.detach_volume(VolumeId=volume)
    assert ec2.describe_volumes(VolumeIds=[volume])["Volumes"][0]["Attachments"][0]["State"] == "detaching"
    clock.at += MINUTE
    with refused("IncorrectState"):
        ec2.detach_volume(VolumeId=volume)
    ec2.delete_volume(VolumeId=volume)
    with refused("InvalidVolume.NotFound"):
        ec2.describe_volumes(VolumeIds=[volume])


# --- what it costs ----------------------------------------------------------------------------------------------------


def test_prices_have_a_trap_among_them(account: Account, ec2: Any) -> None:
    pricing = account.session().client("pricing", region_name="us-east-1")
    wanted = {"instanceType": "p5.48xlarge", "regionCode": "eu-west-1"}
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()]
    rows = pricing.get_products(ServiceCode="AmazonEC2", Filters=filters)["PriceList"]
    assert len(rows) == 2 and "Capacity Block" in rows[1]
    found = ec2.describe_spot_price_history(InstanceTypes=["p5.48xlarge"], ProductDescriptions=["Linux/UNIX"])
    prices = {each["AvailabilityZone"]: float(each["SpotPrice"]) for each in found["SpotPriceHistory"]}
    assert len(prices) == len(set(prices.values())) == 6


def test_images_are_found_by_parameter_and_by_owner(account: Account, ec2: Any) -> None:
    name = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
    found = account.session().client("ssm").get_parameter(Name=name)["Parameter"]["Value"]
    assert ec2.describe_images(ImageIds=[found])["Images"][0]["OwnerId"] == "898082745236"
    named = ec2.describe_images(Owners=["210987654321"], Filters=[{"Name": "name", "Values": ["our-image-*"]}])
    assert len(named["Images"]) == 2
