"""The request that launches a machine: what stands in it, and that the SDK's own model of the API takes it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from chalicelib.backends.aws.images import Image
from chalicelib.backends.aws.launch import LaunchPlace, LaunchSettings, Reservation, launch, needs_address
from chalicelib.backends.kit.zones import zone_token
from chalicelib.backends.spi import CreateRequest
from chalicelib.domain.instances import Handle
from chalicelib.domain.offers import Disk, Gpu, InstanceType, Offer, OfferTerms, Resources
from chalicelib.errors import Unfit
from tests.backends.conformance import request_for

PLACE = LaunchPlace("us-east-1a", "subnet-1", ("sg-1",), Image("ami-1", "/dev/xvda", 8))
SETTINGS = LaunchSettings(tags={"team": "ml"})
GROUP = Handle(kind="group", id="dstack-cluster", data={"region": "us-east-1"})


@cache
def model() -> Any:
    from botocore.session import Session

    return Session().get_service_model("ec2").operation_model("RunInstances").input_shape


def offer(name: str = "g5.xlarge", *, spot: bool = False, efa: tuple[int, ...] = (), disk: int = 102_400) -> Offer:
    gpu = Gpu(name="A10G", memory_mib=24_576, vendor="nvidia")
    has = Resources(cpus=4, memory_mib=16_384, gpus=(gpu,), spot=spot, disk=Disk(size_mib=disk))
    kind = InstanceType(name=name, resources=has)
    terms = OfferTerms.model_validate({"efa": efa})
    return Offer(backend="aws", instance=kind, region="us-east-1", price=1.0, terms=terms)


def params_for(
    request: CreateRequest, place: LaunchPlace = PLACE, settings: LaunchSettings = SETTINGS
) -> dict[str, Any]:
    """The launch, once the SDK's model of the API has accepted it."""
    from botocore.validate import ParamValidator

    params = launch(request, place, settings)
    report = ParamValidator().validate(params, model())
    assert not report.has_errors(), report.generate_report()
    return params


def test_a_machine_is_launched_safely() -> None:
    params = params_for(request_for(offer()))
    assert params["MetadataOptions"] == {
        "HttpTokens": "required",
        "HttpEndpoint": "enabled",
        "HttpPutResponseHopLimit": 1,
    }
    assert params["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert params["CapacityReservationSpecification"] == {"CapacityReservationPreference": "none"}
    assert (params["MinCount"], params["MaxCount"]) == (1, 1)
    assert "SubnetId" not in params and "SecurityGroupIds" not in params  # not beside network interfaces


def test_a_repeated_launch_asks_for_the_same() -> None:
    request = request_for(offer())
    assert params_for(request) == params_for(replace(request))


def test_each_zone_has_its_token() -> None:
    tokens = {zone_token(token, zone) for token in ("one", "two") for zone in ("us-east-1a", "us-east-1b")}
    assert len(tokens) == 4
    assert all(len(token) <= 64 and token.isascii() for token in tokens)
    assert params_for(request_for(offer()))["ClientToken"] == zone_token(request_for(offer()).token, "us-east-1a")


def test_the_boot_script_is_sent_as_it_is() -> None:
    request = request_for(offer())
    assert params_for(request)["UserData"] == request.user_data


def test_a_boot_script_that_is_too_long_is_refused() -> None:
    longest = replace(request_for(offer()), user_data="#" * 16_384)
    assert params_for(longest)["UserData"]
    with pytest.raises(Unfit, match="16384 bytes"):
        params_for(replace(longest, user_data=longest.user_data + "#"))


@pytest.mark.parametrize(("mib", "image", "gib"), [(102_400, 8, 100), (102_401, 8, 101), (1_024, 35, 35)])
def test_the_root_disk_has_the_images_name_and_at_least_its_size(mib: int, image: int, gib: int) -> None:
    place = replace(PLACE, image=replace(PLACE.image, root_gib=image))
    [disk] = params_for(request_for(offer(disk=mib)), place)["BlockDeviceMappings"]
    assert disk["DeviceName"] == "/dev/xvda"
    assert disk["Ebs"] == {"VolumeSize": gib, "VolumeType": "gp3", "DeleteOnTermination": True}


def test_everything_that_a_launch_makes_has_the_owners_tags() -> None:
    request = request_for(offer(spot=True))
    specs = params_for(request)["TagSpecifications"]
    assert [spec["ResourceType"] for spec in specs] == [
        "instance",
        "volume",
        "network-interface",
        "spot-instances-request",
    ]
    for spec in specs:
        tags = {tag["Key"]: tag["Value"] for tag in spec["Tags"]}
        assert tags == {**dict(request.tags), "team": "ml", "Name": request.name, "dstack-token": request.token}


def test_the_accounts_tags_never_replace_the_owners() -> None:
    settings = LaunchSettings(tags={"dstack-install": "another"})
    request = request_for(offer())
    for spec in params_for(request, settings=settings)["TagSpecifications"]:
        tags = {tag["Key"]: tag["Value"] for tag in spec["Tags"]}
        assert tags["dstack-install"] == dict(request.tags)["dstack-install"] != "another"


def test_a_name_is_the_users_to_give() -> None:
    request = replace(request_for(offer()), tags=(*request_for(offer()).tags, ("Name", "theirs")))
    for spec in params_for(request, settings=LaunchSettings(tags={"Name": "the account's"}))["TagSpecifications"]:
        assert {"Key": "Name", "Value": "theirs"} in spec["Tags"]


def test_a_spot_machine_ends_when_it_is_reclaimed() -> None:
    market = params_for(request_for(offer(spot=True)))["InstanceMarketOptions"]
    assert market == {
        "MarketType": "spot",
        "SpotOptions": {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"},
    }


@pytest.mark.parametrize("public", [True, False])
def test_a_single_interface_says_whether_it_has_a_public_address(public: bool) -> None:
    [nic] = params_for(request_for(offer()), settings=LaunchSettings(public_ips=public))["NetworkInterfaces"]
    assert nic == {
        "DeviceIndex": 0,
        "NetworkCardIndex": 0,
        "SubnetId": "subnet-1",
        "Groups": ["sg-1"],
        "DeleteOnTermination": True,
        "AssociatePublicIpAddress": public,
    }


def test_the_machines_role_is_the_accounts() -> None:
    assert "IamInstanceProfile" not in params_for(request_for(offer()))
    params = params_for(request_for(offer()), settings=LaunchSettings(instance_profile="jobs"))
    assert params["IamInstanceProfile"] == {"Name": "jobs"}


# --- clusters ------------------------------------------------------------------------------------------------------


def cards(*efa: int) -> list[tuple[int, int, str]]:
    request = replace(request_for(offer("p5.48xlarge", efa=efa)), placement_group=GROUP)
    params = params_for(request)
    assert params["Placement"] == {"GroupName": "dstack-cluster"}
    return [
        (nic["NetworkCardIndex"], nic["DeviceIndex"], nic.get("InterfaceType", "interface"))
        for nic in params["NetworkInterfaces"]
    ]


def test_one_efa_carries_everything() -> None:
    assert cards(0) == [(0, 0, "efa")]


def test_all_cards_get_their_efa() -> None:
    assert cards(0, 1, 2, 3) == [
        (0, 0, "interface"),
        (0, 1, "efa-only"),
        (1, 0, "efa-only"),
        (2, 0, "efa-only"),
        (3, 0, "efa-only"),
    ]


def test_a_first_card_without_an_efa_carries_the_traffic() -> None:
    assert cards(1, 2) == [(0, 0, "interface"), (1, 0, "efa-only"), (2, 0, "efa-only")]


def test_a_type_without_an_efa_has_one_interface_in_a_cluster_too() -> None:
    assert cards() == [(0, 0, "interface")]


def test_a_machine_by_itself_needs_no_efa() -> None:
    request = request_for(offer("p5.48xlarge", efa=(0, 1)))
    assert len(params_for(request)["NetworkInterfaces"]) == 1
    assert not needs_address(request, public_ips=True)


def test_only_a_machine_with_several_interfaces_needs_an_address_of_its_own() -> None:
    several = replace(request_for(offer(efa=(0, 1))), placement_group=GROUP)
    one = replace(request_for(offer(efa=(0,))), placement_group=GROUP)
    assert needs_address(several, public_ips=True)
    assert not needs_address(several, public_ips=False)
    assert not needs_address(one, public_ips=True)
    assert all("AssociatePublicIpAddress" not in nic for nic in params_for(several)["NetworkInterfaces"])


# --- reservations --------------------------------------------------------------------------------------------------


def test_a_reservation_is_named() -> None:
    place = replace(PLACE, reservation=Reservation("cr-1", "us-east-1a", block=False, tenancy="dedicated"))
    params = params_for(replace(request_for(offer()), placement_group=GROUP), place)
    assert params["CapacityReservationSpecification"] == {
        "CapacityReservationTarget": {"CapacityReservationId": "cr-1"}
    }
    assert "InstanceMarketOptions" not in params
    assert params["Placement"] == {"GroupName": "dstack-cluster", "Tenancy": "dedicated"}


def test_a_spot_machine_isnt_launched_beside_its_reservation() -> None:
    place = replace(PLACE, reservation=Reservation("cr-1", "us-east-1a", block=False))
    with pytest.raises(Unfit, match="cr-1"):
        launch(request_for(offer(spot=True)), place, SETTINGS)


def test_a_reservation_in_a_placement_group_is_used_in_that_group() -> None:
    place = replace(PLACE, reservation=Reservation("cr-1", "us-east-1a", block=False, group="theirs"))
    for request in (request_for(offer()), replace(request_for(offer()), placement_group=GROUP)):
        assert params_for(request, place)["Placement"] == {"GroupName": "theirs"}


def test_a_capacity_block_is_a_market_and_has_its_own_placement() -> None:
    place = replace(PLACE, reservation=Reservation("cr-1", "us-east-1a", block=True))
    params = params_for(replace(request_for(offer()), placement_group=GROUP), place)
    assert params["InstanceMarketOptions"] == {"MarketType": "capacity-block"}
    assert "Placement" not in params
