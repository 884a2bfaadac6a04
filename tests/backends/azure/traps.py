"""What Azure's users have met, each with a check of what the backend makes of it.

Every check is played on the backend as it is (`test_traps.py`), and on one that has the mistake which walks into it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.domain.offers import Availability
from chalicelib.errors import (
    AlreadyThere,
    Gone,
    InsufficientCapacity,
    MissingPermission,
    NotYet,
    QuotaExceeded,
    Throttled,
    Transient,
    Unfit,
)
from tests.backends.azure.account import GPU, SMALL, Account
from tests.backends.azure.fake.shop import SIZES, over, quota, stock
from tests.backends.conformance.requests import group_request_for, inside, request_for
from tests.backends.conformance.suite import is_gone
from tests.backends.fakes.script import Answer, Cut, Fault

PARTS = frozenset({"nic", "address", "disk"})
Check = Callable[[Account], None]


def failing(code: str, message: str = "so the test wants it", status: int = 409, **headers: str) -> Answer:
    return Answer(status, {"error": {"code": code, "message": message}}, headers)


# --- what a machine leaves behind -------------------------------------------------------------------------------------


def nothing_of_a_machine_stays(account: Account) -> None:
    """By default its card, address and disk would."""
    account.end(account.running())
    account.clock.passes(60)
    assert not [each for each in account.fake.books.existing() if each.kind in ("vm", *PARTS)]


def an_offer_costs_what_is_billed(account: Account) -> None:
    for spot in (False, True):
        offer = account.offer(spot=spot).sized(256)
        handles = list(account.backend.create(request_for(offer)))
        assert account.fake.billed() == pytest.approx(offer.price, rel=1e-3)
        account.end(handles)
        assert account.fake.billed() == 0.0


def nothing_of_a_machine_stays_at_once(account: Account) -> None:
    """Each part goes with it, and not because somebody looks for it later."""
    handles = account.running()
    account.backend.terminate(handles[0])
    account.clock.passes(60)
    assert account.left() == set()


def a_spot_machine_that_is_taken_back_leaves_nothing(account: Account) -> None:
    handles = account.running(spot=True)
    account.fake.evict(account.provider.machine(handles))
    account.clock.passes(60)
    assert account.left() == set()
    text, refused = account.refusal(handles)
    assert refused is InsufficientCapacity and "takes spot machines back" in text


def the_parts_of_a_failed_machine_end_with_it(account: Account) -> None:
    account.fake.why_not, account.fake.survives = "AllocationFailed", PARTS
    handles = account.made()
    account.refusal(handles)
    account.end(handles)
    assert account.left() == set()


def what_no_list_shows_yet_isnt_forgotten(account: Account) -> None:
    account.fake.why_not, account.fake.survives = "AllocationFailed", PARTS
    account.fake.fails_after, account.fake.end = 1 * SECOND, 2 * SECOND
    account.fake.script.lag = 55 * SECOND
    handles = account.made()
    for _ in range(40):
        account.clock.passes(5)
        if is_gone(account.backend, handles[0]):
            assert account.left() == set()
            return
    pytest.fail("it never ended")


def a_card_that_is_reserved_is_waited_for(account: Account) -> None:
    account.fake.survives, account.fake.reserved = PARTS, 3 * MINUTE
    account.end(account.running())
    assert account.left() == set()


def leftovers_are_swept(account: Account) -> None:
    """Though nobody knows the machine any more."""
    account.fake.survives = PARTS
    account.fake.lose(account.provider.machine(account.running()))
    assert len(account.left()) == 2, "the address is the card's"
    account.sweep()
    assert account.left() == set()


def leftovers_that_bear_tags_alone_are_swept(account: Account) -> None:
    """Azure might give them any names."""
    account.fake.survives = PARTS - {"disk"}
    account.fake.lose(account.provider.machine(account.running()))
    (card,), (address,) = account.fake.books.existing("nic"), account.fake.books.existing("address")
    card.facts["path"] = card.facts["path"].replace(card.facts["path"].rpartition("/")[2], "nic-0a1b2c3d")
    address.facts["path"] = address.facts["path"].replace(address.facts["path"].rpartition("/")[2], "ip-0a1b2c3d")
    card.facts["address"], address.facts["card"] = address.facts["path"], card.facts["path"]
    account.sweep()
    assert account.left() == set()


def a_lost_creation_is_swept(account: Account) -> None:
    account.fake.script.faults.append(Fault("VirtualMachines_create_or_update", Cut, "after"))
    with pytest.raises(Transient):
        account.made()
    assert account.left()
    account.sweep()
    assert account.left() == set()


def a_machine_that_somebody_stopped_is_no_machine(account: Account) -> None:
    """It is billed all the same, and ended."""
    handles = account.running()
    account.provider.machine(handles).facts["power"] = "stopped"
    text, refused = account.refusal(handles)
    assert "somebody has stopped it" in text and refused is None
    account.end(handles)
    assert account.left() == set()


def a_spot_machine_that_is_deallocated_was_taken_back(account: Account) -> None:
    handles = account.running(spot=True)
    account.provider.machine(handles).facts["power"] = "deallocated"
    text, refused = account.refusal(handles)
    assert "Azure has taken it back" in text and refused is InsufficientCapacity
    account.end(handles)
    assert account.left() == set()


def a_machine_that_is_stuck_isnt_gone(account: Account) -> None:
    handles = account.running()
    account.fake.stuck = True
    for _ in range(30):
        account.clock.passes(10)
        assert not is_gone(account.backend, handles[0])
    assert account.sent("VirtualMachines_delete") == 1, "a machine takes four writes a minute"


def a_lost_end_is_asked_for_again(account: Account) -> None:
    handles = account.running()
    account.fake.script.faults.append(Fault("VirtualMachines_delete", Cut))
    account.end(handles)
    assert account.left() == set()


def a_machine_with_volumes_isnt_cut_off(account: Account) -> None:
    """What it has written would be lost."""
    handles, forced = account.running(), account.running("two")
    machine = account.provider.machine(handles)
    account.fake.with_disk("/x/disks/data", "westeurope", ["1"], 8, machine=machine.facts["path"], lun=0, tags={})
    for each in (handles, forced):
        account.backend.terminate(each[0])
    asked = [call.query.get("forceDeletion") for call in account.fake.calls_of("VirtualMachines_delete")]
    assert asked == [None, True]


def only_its_own_leftovers_are_ended(account: Account) -> None:
    account.fake.survives = PARTS
    theirs = account.running("two")
    account.end(account.running())
    assert account.left() == {theirs[0].id}
    assert account.backend.describe(theirs).state == "running"


# --- capacity ---------------------------------------------------------------------------------------------------------


def room_that_is_lacking_at_once_is_looked_for_in_other_zones(account: Account) -> None:
    for number in "12":
        account.fake.script.limits[stock("westeurope", number, SMALL, spot=True)] = 0
    (trying, other, made) = account.made(spot=True)
    assert (trying.data["zone"], other.data["zone"], made.data["zone"]) == (
        "westeurope-2",
        "westeurope-3",
        "westeurope-3",
    )


def a_zone_without_room_is_tried_last_for_a_while(account: Account) -> None:
    account.fake.script.limits[stock("westeurope", "1", SMALL)] = 0
    first = account.made()
    assert first[0].data["zone"] == "westeurope-1"
    assert account.refusal(first)[1] is InsufficientCapacity
    assert account.made("two")[0].data["zone"] == "westeurope-2"
    account.clock.passes(16 * 60)
    assert account.made("three")[0].data["zone"] == "westeurope-1"


def each_late_refusal_is_what_it_would_have_been_at_once(account: Account) -> None:
    late = {
        "AllocationFailed": InsufficientCapacity,
        "ZonalAllocationFailed": InsufficientCapacity,
        "OverconstrainedAllocationRequest": InsufficientCapacity,
        "OverconstrainedZonalAllocationRequest": InsufficientCapacity,
        "SkuNotAvailable": InsufficientCapacity,
        "ImageNotFound": Unfit,
        "OSProvisioningTimedOut": None,
    }
    for name, kind in late.items():
        account.fake.why_not = name
        text, refused = account.refusal(account.made(name))
        assert refused is kind and name in text and SMALL in text


def a_spot_machine_that_vanishes_had_no_room(account: Account) -> None:
    account.fake.vanishing, account.fake.why_not = True, "AllocationFailed"
    handles = account.made(spot=True)
    _, refused = account.refusal(handles)
    assert refused is InsufficientCapacity
    account.end(handles)
    assert account.left() == set()


def a_machine_that_isnt_found_at_first_isnt_gone(account: Account) -> None:
    account.fake.script.lag = 40 * SECOND
    handles = account.made()
    for _ in range(3):
        account.clock.passes(10)
        with pytest.raises(Transient, match="doesn't show"):
            account.backend.describe(handles)
    account.clock.passes(30)
    assert account.backend.describe(handles).state == "running"


def a_lost_answer_makes_no_second_machine(account: Account) -> None:
    account.fake.script.lag = 40 * SECOND
    account.fake.script.faults.append(Fault("VirtualMachines_create_or_update", Cut, "after"))
    with pytest.raises(Transient):
        account.made()
    assert {each.id for each in account.made()} == account.left()


def a_failed_machine_isnt_tried_again_under_its_name(account: Account) -> None:
    """A repeated creation without a condition would."""
    account.fake.why_not = "AllocationFailed"
    handles = account.made()
    account.clock.passes(60)
    assert account.made() == handles
    machine = account.provider.machine(handles)
    assert machine.state(account.clock.now()) == "Failed"
    for call in account.fake.calls_of("VirtualMachines_create_or_update"):
        assert call.headers["if-none-match"] == "*"


def a_name_that_another_request_has_is_refused(account: Account) -> None:
    account.made()
    with pytest.raises(Exception, match="another machine"):
        list(account.backend.create(replace(account.request(), token="another")))


# --- quotas -----------------------------------------------------------------------------------------------------------


def a_quota_is_refused_with_its_numbers(account: Account) -> None:
    family = {"standardDSv5Family": (SMALL, False), "cores": (SMALL, False), "lowPriorityCores": (SMALL, True)}
    for name, (size, spot) in family.items():
        counter = quota("westeurope", name)
        account.fake.script.limits[counter] = account.fake.books.used(counter) + 1
        with pytest.raises(QuotaExceeded, match=r"quota of .* is \d+; \d+ are in use, and this takes 2 more"):
            account.made(f"over {name}", size, spot=spot)
        del account.fake.script.limits[counter]
    assert account.left() == set()


def a_quota_that_no_machine_fits_into_is_told_in_plans(account: Account) -> None:
    account.fake.script.limits[quota("westeurope", "Standard NCASv3_T4 Family")] = 3
    account.fake.script.limits[quota("eastus", "lowPriorityCores")] = 1
    found = {(e.region, e.instance.name, e.instance.resources.spot): e for e in account.backend.offers()}
    assert found["westeurope", GPU, False].availability is Availability.no_quota
    assert found["westeurope", GPU, True].availability is Availability.unknown, (
        "spot machines have a quota of their own"
    )
    assert found["westeurope", SMALL, False].availability is Availability.unknown
    assert found["eastus", SMALL, True].availability is Availability.no_quota


def a_quota_limits_clusters(account: Account) -> None:
    account.fake.script.limits[quota("westeurope", "standardDSv5Family")] = 20
    limit = account.offer().terms.cluster
    assert limit is not None and limit.most == 10 and "standardDSv5Family" in limit.why


def quotas_that_cant_be_read_are_unknown(account: Account) -> None:
    account.fake.script.faults.append(Fault("Usage_list", failing("AuthorizationFailed", status=403), times=9))
    assert {each.availability for each in account.backend.offers()} == {Availability.unknown}


def an_error_within_others_is_read(account: Account) -> None:
    quota = {"code": "QuotaExceeded", "message": over("standardDSv5Family", "westeurope", 100, 56, 64)}
    scarce = {"code": "AllocationFailed", "message": "no room"}
    middle = {"code": "ResourceOperationFailure", "message": "failed", "details": [quota]}
    for code, details, kind in (
        ("InvalidTemplateDeployment", quota, QuotaExceeded),
        ("DeploymentFailed", middle, QuotaExceeded),
        ("Conflict", scarce, InsufficientCapacity),
    ):
        body = {"error": {"code": code, "message": "see details", "details": [details]}}
        fault = Fault("VirtualMachines_create_or_update", Answer(409, body), times=3)
        account.fake.script.faults = [fault]
        with pytest.raises(kind) as raised:
            account.made(code)
        if kind is QuotaExceeded:
            assert "of standardDSv5Family Cores is 100; 56 are in use, and this takes 64 more" in str(raised.value)


# --- limits -----------------------------------------------------------------------------------------------------------


def two_kinds_of_too_many_requests_are_told_apart(account: Account) -> None:
    retry = {"retry-after": "17"}
    for code, kind in (("TooManyRequests", Throttled), ("RetryableErrorDueToAnotherOperation", Transient)):
        answer = Answer(429, {"error": {"code": code, "message": "later"}}, retry)
        account.fake.script.faults.append(Fault("VirtualMachines_create_or_update", answer))
        with pytest.raises(kind) as raised:
            account.made(code)
        if isinstance(raised.value, Throttled):
            assert raised.value.retry_after == 17
            account.clock.passes(17)
    assert account.made("after both")


def nothing_is_repeated_behind_the_engine(account: Account) -> None:
    request = account.request()
    for code, status in (("TooManyRequests", 429), ("ServerTimeout", 503)):
        before = account.sent("VirtualMachines_create_or_update")
        fault = Fault("VirtualMachines_create_or_update", failing(code, status=status, **{"retry-after": "1"}))
        account.fake.script.faults.append(fault)
        with pytest.raises((Throttled, Transient)):
            list(account.backend.create(request))
        assert account.sent("VirtualMachines_create_or_update") == before + 1
        account.clock.passes(2)


def many_machines_are_described_by_three_lists(account: Account) -> None:
    made = [account.made(f"n{n}") for n in range(8)]
    account.clock.passes(90)
    before = len(account.fake.calls)
    found = account.backend.describe_several(made)
    assert found == [account.backend.describe(each) for each in made]
    assert len(account.fake.calls) - before == 3 + 3 * len(made)


def a_list_that_lacks_some_is_made_good(account: Account) -> None:
    made = [account.running("old"), account.made("new")]
    account.clock.passes(50)
    for each in account.fake.books.existing():
        if each.kind in ("vm", "nic", "address") and each.born > account.clock.now() - 60 * SECOND:
            each.visible = account.clock.now() + (60 * SECOND if each.kind != "vm" else 0)
    assert [each.state for each in account.backend.describe_several(made)] == ["running"] * 2  # type: ignore[union-attr]


def machines_that_fail_are_described_among_others(account: Account) -> None:
    good = account.made("good")
    account.fake.why_not = "AllocationFailed"
    bad = account.made("bad")
    account.clock.passes(90)
    running, gone = account.backend.describe_several([good, bad])
    assert running == account.backend.describe(good)
    assert isinstance(gone, Gone) and gone.refused is InsufficientCapacity


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
    reader = {"actions": ["*/read", "Microsoft.Compute/*"], "notActions": ["Microsoft.Compute/disks/delete"]}
    account.fake.rights = (reader,)
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


CHECKS: Sequence[Check] = [
    each
    for name, each in list(globals().items())
    if callable(each)
    and getattr(each, "__module__", "") == __name__
    and name not in ("failing", "group_request_for", "inside")
]
