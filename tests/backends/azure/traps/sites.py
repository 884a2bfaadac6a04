"""Sizes, prices, networks, groups, volumes: what a machine is made of and where it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import SECOND
from chalicelib.errors import (
    AlreadyThere,
    Gone,
    InsufficientCapacity,
    InUse,
    MissingPermission,
    NotYet,
    Unfit,
)
from tests.backends.azure.account import GPU, SMALL, Account
from tests.backends.azure.fake.api import SUBSCRIPTION
from tests.backends.azure.fake.shop import SIZES
from tests.backends.azure.traps.common import failing
from tests.backends.conformance.requests import group_request_for, inside, request_for, volume_request
from tests.backends.fakes.script import Fault

# --- sizes and prices -------------------------------------------------------------------------------------------------


def sizes_that_the_subscription_cant_have_arent_offered(account: Account) -> None:
    """Whatever the first of the restrictions is about."""
    zone = {"type": "Zone", "values": ["1"], "restrictionInfo": {"zones": ["1"]}, "reasonCode": "QuotaId"}
    location = {"type": "Location", "values": ["westeurope"], "reasonCode": "NotAvailableForSubscription"}
    account.fake.restrictions = {
        (SMALL, "westeurope"): [zone],
        (GPU, "westeurope"): [zone, location],
        ("Standard_ND96isr_H100_v5", "westeurope"): [zone],
    }
    found = {each.instance.name: each for each in account.backend.offers() if each.region == "westeurope"}
    assert found[SMALL].availability_zones == ("westeurope-2", "westeurope-3")
    assert not {GPU, "Standard_ND96isr_H100_v5"} & found.keys()
    assert list(account.backend.create(request_for(found[SMALL])))


def only_whole_gpus_with_a_driver_are_offered(account: Account) -> None:
    found = {each.instance.name: each.instance.resources for each in account.backend.offers()}
    cards = {name: [(gpu.name, gpu.memory_mib // 1024) for gpu in has.gpus] for name, has in found.items() if has.gpus}
    assert cards == {
        GPU: [("T4", 16)],
        "Standard_NC24ads_A100_v4": [("A100", 80)],
        "Standard_NC80adis_H100_v5": [("H100NVL", 94)] * 2,
        "Standard_ND96isr_H100_v5": [("H100", 80)] * 8,
    }
    assert "Standard_D2ps_v5" not in found, "the image isn't for ARM"


def only_sizes_that_the_image_starts_on_are_offered(account: Account) -> None:
    arm = "Standard_D4s_v5"
    account.fake.sizes = {**SIZES, arm: replace(SIZES[SMALL], arm=True)}
    assert arm not in {each.instance.name for each in account.backend.offers()}


def offers_cost_what_linux_costs(account: Account) -> None:
    for offer in account.backend.offers():
        assert offer.price == pytest.approx(account.provider.price(offer), rel=1e-3)


def a_size_in_no_zone_is_created_in_none(account: Account) -> None:
    offer = account.offer("Standard_HB120rs_v3")
    assert offer.availability_zones is None
    (made,) = account.backend.create(request_for(offer))
    assert "zone" not in made.data and "zones" not in account.provider.machine([made]).facts["body"]


def a_price_that_isnt_known_is_no_price(account: Account) -> None:
    account.fake.no_prices = frozenset({SMALL})
    assert SMALL not in {each.instance.name for each in account.backend.offers()}


def prices_are_read_to_the_last_page(account: Account) -> None:
    usual = {each.key: each.price for each in account.backend.offers()}
    account.fake.script.page = 3
    account.clock.passes(25 * 3600)
    before = account.sent("RetailPrices_list")
    assert {each.key: each.price for each in account.backend.offers()} == usual
    assert account.sent("RetailPrices_list") > before + 10


def a_disk_is_billed_as_the_offer_says(account: Account) -> None:
    """Its steps are twice as large as the one before, and so are their prices."""
    offer = account.offer()
    assert offer.instance.resources.disk.size_mib == 128 * 1024
    assert offer.price_sized(256) - offer.price == pytest.approx((19.2 - 9.6) / 730, rel=1e-3)


# --- networks and groups ----------------------------------------------------------------------------------------------


def a_network_that_exists_is_never_written_again(account: Account) -> None:
    """Subnets that a request leaves out are deleted, or refused while they are in use."""
    account.running()
    account.clock.passes(3600)
    account.running("two")
    assert account.sent("VirtualNetworks_create_or_update") == 1
    assert account.sent("ResourceGroups_create_or_update") == 1


def what_a_machine_uses_cant_be_deleted(account: Account) -> None:
    """Nor left out of its network by a later request."""
    account.running()
    (network,), (closed,) = account.fake.books.existing("network"), account.fake.books.existing("security")
    path, body = network.facts["path"], network.facts["body"]
    emptied = {**body, "properties": {**body["properties"], "subnets": []}}
    for method, where, sent in (
        ("PUT", path, emptied),
        ("DELETE", path, None),
        ("DELETE", f"{path}/subnets/machines", None),
        ("DELETE", closed.facts["path"], None),
    ):
        with pytest.raises(InUse, match=r"InUse\w+CannotBeDeleted"):
            account.client.call(method, where, body=sent)
    assert account.made("two")


def a_script_that_azure_doesnt_take_is_refused(account: Account) -> None:
    with pytest.raises(Unfit, match="longer than the 65535 bytes that Azure takes"):
        list(account.backend.create(replace(account.request(), user_data="x" * 65_536)))
    assert account.left() == set()


def a_network_that_isnt_ready_is_waited_for(account: Account) -> None:
    account.fake.settling = 5 * SECOND
    with pytest.raises(NotYet, match="not in Succeeded state"):
        account.made()
    assert account.left() == set()
    account.clock.passes(5)
    assert account.made()


def a_network_that_is_gone_is_made_anew(account: Account) -> None:
    account.end(account.running())
    account.clock.passes(60)
    for kind in ("network", "security"):
        for each in list(account.fake.books.existing(kind)):
            each.goes(account.clock.now(), (0, None))
    with pytest.raises(Unfit, match="referenced was not found"):
        account.made("two")
    assert account.made("two")


def a_resource_group_that_goes_is_waited_for(account: Account) -> None:
    account.running()
    (group,) = account.fake.books.existing("group")
    group.goes(account.clock.now(), (0, "Deleting"))
    with pytest.raises(NotYet, match="deprovisioning"):
        account.made("two")


def no_resource_group_is_nothing_of_ours(account: Account) -> None:
    assert list(account.backend.list_owned()) == []


def tags_and_names_come_back_in_any_case(account: Account) -> None:
    handles = account.running()
    machine = account.provider.machine(handles)
    tags = machine.facts["body"]["tags"]
    machine.facts["body"] = {**machine.facts["body"], "tags": {key.upper(): value for key, value in tags.items()}}
    machine.facts["body"]["location"] = "West Europe"
    machine.facts["path"] = machine.facts["path"].replace("resourceGroups/dstack", "resourceGroups/DSTACK")
    assert [each.handle for each in account.backend.list_owned(region="westeurope")] == handles
    assert account.made() == handles


def machines_are_closed_to_the_world(account: Account) -> None:
    handles = account.running()
    assert account.provider.open_ports(handles) == set()


def the_boot_script_isnt_for_jobs(account: Account) -> None:
    """User data could be read by all that runs there."""
    has = account.provider.machine(account.made()).facts["body"]["properties"]
    assert "userData" not in has and has["osProfile"]["customData"]


def rights_that_lack_are_named(account: Account) -> None:
    given = ["*/read", "Microsoft.Compute/*", "Microsoft.Resources/subscriptions/resourceGroups/write"]
    account.fake.rights = ({"actions": given, "notActions": ["Microsoft.Compute/disks/delete"]},)
    with pytest.raises(MissingPermission) as denied:
        account.backend.check()
    assert "Microsoft.Compute/disks/delete" in str(denied.value)
    assert "Microsoft.Network/networkInterfaces/join/action" in str(denied.value)
    assert "virtualMachines/write" not in str(denied.value) and "/read" not in str(denied.value)


# --- clusters ---------------------------------------------------------------------------------------------------------


def machines_with_infiniband_are_in_an_availability_set(account: Account) -> None:
    """Between others it doesn't work. Zones and spot machines can't be there."""
    offer = account.offer("Standard_ND96isr_H100_v5")
    group = account.backend.create_group(group_request_for(offer))
    assert "/availabilitySets/" in group.id and "zone" not in group.data
    (made,) = account.backend.create(inside(request_for(offer), group))
    body = account.provider.machine([made]).facts["body"]
    assert body["properties"]["availabilitySet"] == {"id": group.id} and "zones" not in body
    spot = account.offer("Standard_ND96isr_H100_v5", spot=True)
    with pytest.raises(Unfit, match="no spot machines with InfiniBand"):
        account.backend.create_group(group_request_for(spot, "two"))
    with pytest.raises(Unfit, match="no spot machines with InfiniBand"):
        list(account.backend.create(inside(request_for(spot, "two"), group)))


def other_machines_are_close_together_in_one_zone(account: Account) -> None:
    offer = account.offer(SMALL, spot=True)
    group = account.backend.create_group(group_request_for(offer))
    assert "/proximityPlacementGroups/" in group.id and group.data["zone"] == "westeurope-1"
    (made,) = account.backend.create(inside(request_for(offer), group))
    body = account.provider.machine([made]).facts["body"]
    assert body["properties"]["proximityPlacementGroup"] == {"id": group.id} and body["zones"] == ["1"]


def a_group_is_made_where_there_is_room(account: Account) -> None:
    request = group_request_for(account.offer())
    refusal = failing("OverconstrainedAllocationRequest")
    account.fake.script.faults.append(Fault("ProximityPlacementGroups_create_or_update", refusal))
    assert account.backend.create_group(request).data["zone"] == "westeurope-2"
    assert account.backend.create_group(request).data["zone"] == "westeurope-2", "it is adopted"
    account.fake.script.faults.append(Fault("ProximityPlacementGroups_create_or_update", refusal, times=3))
    with pytest.raises(InsufficientCapacity, match="No zone has room for a group of Standard_D2s_v5"):
        account.backend.create_group(group_request_for(account.offer(), "two"))


def a_group_of_others_isnt_taken(account: Account) -> None:
    request = group_request_for(account.offer())
    group = account.backend.create_group(request)
    (made,) = account.fake.books.existing("proximity")
    made.facts["body"] = {**made.facts["body"], "tags": {"team": "web"}}
    with pytest.raises(AlreadyThere):
        account.backend.create_group(request)
    made.facts["path"] = f"{group.id.rpartition('/')[0]}/theirs"
    assert list(account.backend.list_owned_groups()) == []


def jobs_are_told_of_infiniband(account: Account) -> None:
    found = account.offer("Standard_ND96isr_H100_v5").terms.interconnect
    assert found is not None and found.name == "InfiniBand" and found.folders == ("/opt/microsoft",)
    assert found.env["NCCL_TOPO_FILE"] == "/opt/microsoft/ndv5-topo.xml" and found.env["NCCL_SOCKET_IFNAME"] == "eth0"
    assert account.offer("Standard_HB120rs_v3").terms.interconnect is not None
    assert account.offer().terms.interconnect is None


# --- volumes ----------------------------------------------------------------------------------------------------------


def volume(account: Account, name: str = "data") -> Handle:
    made = account.backend.create_volume(replace(volume_request("westeurope", name), size_gib=100))
    account.clock.passes(10)
    return made


def a_volume_outlives_its_machine(account: Account) -> None:
    made, handles = volume(account), account.running()
    account.backend.attach_volume(made, handles)
    account.end(handles)
    assert account.backend.describe_volume(made).state == "available"


def a_volume_is_found_by_its_place_on_the_machine(account: Account) -> None:
    first, second, handles = volume(account), volume(account, "more"), account.running()
    for each in (first, second):
        account.backend.attach_volume(each, handles)
    places = [account.backend.describe_volume(each).attached_to for each in (first, second)]
    links = [device.link for ((machine, device),) in places if machine == handles[0].id and device]
    assert links == ["azure/scsi1/lun0", "azure/scsi1/lun1"]


def a_cluster_with_infiniband_gets_no_volumes(account: Account) -> None:
    """Its machines are in no zone, and volumes are in one, except where there are none."""
    fast = account.offer("Standard_ND96isr_H100_v5").terms
    assert "no zone" in fast.no_volumes_in_clusters and not fast.no_volumes
    assert not account.offer().terms.no_volumes_in_clusters


def a_machine_has_room_for_so_many(account: Account) -> None:
    handles, many = account.running(), [volume(account, f"v{n}") for n in range(9)]
    for each in many[:8]:
        account.backend.attach_volume(each, handles)
        account.clock.passes(30)  # a machine takes four changes a minute
    with pytest.raises(Unfit, match="no room for another volume"):
        account.backend.attach_volume(many[8], handles)


def a_volume_costs_its_step(account: Account) -> None:
    """100 GB are billed as 128. No volume waits for its price."""
    assert account.backend.describe_volume(volume(account)).price == pytest.approx(19.71)
    account.clock.passes(25 * 3600)
    account.fake.prices_down = True
    assert account.backend.describe_volume(volume(account)).price is None


def volumes_arent_exported_and_arent_swept_with_machines(account: Account) -> None:
    made = volume(account)
    (disk,) = account.fake.books.existing("disk")
    assert disk.facts["body"]["properties"]["networkAccessPolicy"] == "DenyAll"
    account.sweep()
    assert account.backend.describe_volume(made).size_gib == 100
    assert [each.handle for each in account.backend.list_owned_volumes()] == [made]


def a_volume_that_is_named_like_a_machine_isnt_its_leftover(account: Account) -> None:
    handles, made = account.running(), volume(account)
    (disk,) = [each for each in account.fake.books.existing("disk") if each.facts["path"] == made.id]
    disk.facts["path"] = f"{made.id.rpartition('/')[0]}/{handles[0].id.rpartition('/')[2]}-data"
    account.end(handles)
    assert disk in account.fake.books.existing("disk")


def a_disk_that_exists_is_registered_by_its_address(account: Account) -> None:
    path = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/theirs/providers/Microsoft.Compute/disks/imagenet"
    account.fake.with_group("theirs")
    account.fake.with_disk(path, "westeurope", ["2"], 200, tags={"dstack-projects": "main research"})
    found = account.backend.register_volume(path, "westeurope", "westeurope-2")
    assert (found.zone, found.size_gib, found.offered_to) == ("westeurope-2", 200, ("main", "research"))
    handles = list(account.backend.create(replace(account.request(), zones=("westeurope-2",))))
    account.clock.passes(90)
    account.backend.attach_volume(found.handle, handles)
    assert account.backend.describe_volume(found.handle).attached_to[0][0] == handles[0].id
    with pytest.raises(Gone, match="it is in westeurope-2"):
        account.backend.register_volume(path, "eastus", "")


def a_region_without_zones_has_volumes_without(account: Account) -> None:
    made = account.backend.create_volume(volume_request("northcentralus"))
    assert made.data == {"region": "northcentralus"}
    with pytest.raises(Unfit, match="no region mars"):
        account.backend.create_volume(volume_request("mars", "other"))
