"""What Cloud TPU does oddly, by its users' reports, and what would go on costing money; and each line of the backend
that prevents it: its mistake must be noticed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from chalicelib.backends.gcp.backend import GcpBackend
from chalicelib.backends.gcp.tpu_types import is_tpu
from chalicelib.backends.price_file import OfflinePrices
from chalicelib.domain.boot_script import read_user_data
from chalicelib.domain.bundles import WORKER
from chalicelib.domain.instances import TRYING, Handle
from chalicelib.domain.instants import SECOND
from chalicelib.errors import (
    AlreadyThere,
    BackendError,
    Gone,
    InsufficientCapacity,
    MissingPermission,
    NotYet,
    QuotaExceeded,
    Throttled,
    Transient,
    Unfit,
)
from tests.backends.conformance.requests import BOOT_TOKEN, group_request_for, request_for
from tests.backends.fakes.books import GONE
from tests.backends.fakes.script import Cut, Fault, Rate
from tests.backends.gcp.provider import config
from tests.backends.gcp.tpu import shop
from tests.backends.gcp.tpu.conftest import TpuSite, usual_offers
from tests.backends.gcp.tpu.fake import GIVEN_UP, NO_ROOM, error, of_quota, quota, refusal, stock
from tests.backends.gcp.tpu.provider import clients
from tests.backends.mistakes import Mistake, made, mistakes

MISTAKES = mistakes("chalicelib.backends.gcp", Path(__file__).with_name("mistakes.toml"))

SOLD = sum(name.partition("-")[0] in shop.BILLED for names in shop.ZONES.values() for name in names)


# --- what is sold -----------------------------------------------------------------------------------------------------


def test_slices_are_offered_at_the_price_of_a_host(site: TpuSite) -> None:
    offers = [each for each in site.backend.offers() if each.instance.name[:2] in ("v2", "v3", "v4", "v5", "v6", "tp")]
    names = {each.instance.name for each in offers}
    lite = {f"v5litepod-{chips}" for chips in (1, 4, 8, 16, 256)}
    assert names == {*lite, "v2-8", "v2-32", "v3-8", "v3-32", "v5p-8", "v5p-16", "v6e-1", "v6e-4", "v6e-8", "v6e-16"}
    assert len(offers) == 2 * SOLD - 2, "on demand and spot, but for the pods that have no price as spot"
    for each in offers:
        gpus, name, hosts = each.instance.resources.gpus, each.instance.name, each.bundle
        assert hosts == shop.hosts(name)
        assert len(gpus) * hosts == shop.chips(name) and {gpu.name for gpu in gpus} == {name}
        assert each.price == pytest.approx(
            shop.price(name, each.region, spot=each.instance.resources.spot), abs=1e-6
        ), name
        (zone,) = each.availability_zones or ()
        assert name in shop.ZONES[zone] and zone.startswith(f"{each.region}-")
        assert each.terms.no_volumes and not each.elastic


def test_the_hosts_of_a_slice_cost_what_it_costs_to_the_cent(site: TpuSite) -> None:
    """Google bills the slice."""
    for offer in site.backend.offers():
        if is_tpu(offer):
            spot, hosts = offer.instance.resources.spot, offer.bundle
            slice_hour = hosts * shop.price(offer.instance.name, offer.region, spot=spot)
            assert abs(offer.price * hosts - slice_hour) < 0.005, offer.instance.name


def test_a_name_that_no_slice_can_have_is_no_type(site: TpuSite) -> None:
    wrong = ("v5litepod-18", "v5litepod-12x", "v5litepod", "v5litepod-512", "v5p-1024", "v3-1024", "v4-16", "v9-16")
    for zone in shop.ZONES:
        site.fake.more[zone] = wrong
    assert not {each.instance.name for each in site.backend.offers()} & set(wrong)


def test_a_type_with_another_topology_than_its_name_says_isnt_offered(site: TpuSite) -> None:
    site.fake.topologies["v5litepod-16"] = "4x8"
    assert "v5litepod-16" not in {each.instance.name for each in site.backend.offers()}


def test_without_the_setting_nothing_of_it_is_called(site: TpuSite) -> None:
    backend = site.configured(tpu=False)
    assert not any(gpu.vendor == "google" for each in backend.offers() for gpu in each.instance.resources.gpus)
    list(backend.list_owned())
    assert site.fake.calls == []


def test_a_slice_without_a_price_isnt_offered_for_nothing(site: TpuSite, caplog: pytest.LogCaptureFixture) -> None:
    for sku in site.google.books.existing("sku"):
        if "V6e" in sku.facts["body"]["description"]:
            sku.goes(site.clock.at, (0, GONE))
    with caplog.at_level(logging.WARNING):
        offers = site.backend.offers()
    assert not [each for each in offers if each.instance.name.startswith("v6e")]
    assert "v6e-1 in europe-west4" in caplog.text


def test_prices_may_be_in_the_operators_file(site: TpuSite, tmp_path: Path) -> None:
    file = tmp_path / "prices.csv"
    file.write_text("provider,instance_type,region,price,spot_price\ngcp,v5litepod-4,us-central1,4.8,\n")
    refused = refusal("PERMISSION_DENIED", "no billing").answer
    site.google.script.faults.append(Fault("services.skus.list", refused, times=9))
    of_file = OfflinePrices(file)
    backend = GcpBackend(config(tpu=True), clients(site.google, site.fake), site.clock.now, prices=of_file)
    priced = [each for each in backend.offers() if each.instance.name.startswith("v")]
    assert {(each.instance.name, each.price) for each in priced} == {("v5litepod-4", 4.805)}
    assert len(priced) == 3 and not any(each.instance.resources.spot for each in priced)


def test_a_closed_zone_is_passed_over(site: TpuSite) -> None:
    site.backend.offers()
    assert "us-central1-f" in {call.path["location"] for call in site.fake.calls_of("acceleratorTypes.list")}
    made = site.running(site.request())
    assert [each.handle for each in site.backend.list_owned()] == made
    site.provider.fail("offers", "MissingPermission")
    with pytest.raises(MissingPermission):
        site.backend.offers()


# --- requests ---------------------------------------------------------------------------------------------------------


def test_a_request_is_as_google_wants_it(site: TpuSite) -> None:
    site.bought(site.request(spot=True))
    site.bought(site.request("two"))
    spot, other = (call.body for call in site.fake.calls_of("queuedResources.create"))
    assert "spot" in spot and "spot" not in other
    node = other["tpu"]["nodeSpec"][0]["node"]
    assert node["runtimeVersion"] == "v2-alpha-tpuv5-lite"
    assert node["networkConfig"]["enableExternalIps"] is True
    assert node["tags"] and node["metadata"]["startup-script"].startswith("#!/bin/sh")
    assert other["queueingPolicy"] == {"validUntilDuration": "300s"}, "it would wait for ever"


def test_a_hosts_account_can_do_no_more_than_write_logs(site: TpuSite) -> None:
    site.bought(site.request())
    list(site.configured(vm_service_account="job@example.com").create(site.request("two")))
    first, second = (
        call.body["tpu"]["nodeSpec"][0]["node"]["serviceAccount"]
        for call in site.fake.calls_of("queuedResources.create")
    )
    assert {scope.rpartition("/")[2] for scope in first["scope"]} == {"logging.write", "monitoring.write"}
    assert second["email"] == "job@example.com" and second["scope"][0].endswith("cloud-platform")


def test_a_host_without_a_public_address(site: TpuSite) -> None:
    backend = site.configured(public_ips=False)
    site.google.nats |= {"us-central1"}
    made = list(backend.create(site.request()))
    site.clock.passes(60)
    found = backend.describe(made)
    assert found.hostname == found.internal_ip
    with pytest.raises(Unfit, match="public_ips"):
        list(backend.create(replace(site.request("gate"), open_ports=(443,))))


def test_what_slices_dont_have_is_refused(site: TpuSite) -> None:
    request = site.request()
    for wrong, text in (
        (replace(request, reservation="mine"), "reservation"),
        (replace(request, disk_mib=200 * 1024), "100 GB"),
        (replace(request, zones=("europe-west4-a",)), "no zone"),
    ):
        with pytest.raises(Unfit, match=text):
            site.bought(wrong)
    with pytest.raises(Unfit, match="placement group"):
        site.backend.create_group(group_request_for(request.offer))
    assert site.fake.calls_of("queuedResources.create") == []


# --- no room ----------------------------------------------------------------------------------------------------------


def test_a_full_zone_is_no_throttling_and_the_next_is_tried(site: TpuSite) -> None:
    site.fake.script.limits[stock("us-central1-a", "v5litepod-4")] = 0
    trying, vm = site.bought(site.request(zones=2))
    assert (trying.kind, trying.id, vm.data["zone"]) == (TRYING, "us-central1-b", "us-central1-b")


def test_a_zone_that_lacks_the_type_or_is_closed_isnt_the_end(site: TpuSite) -> None:
    request = replace(site.request(), zones=("us-central1-f", "us-central1-b"))
    assert site.bought(request)[-1].data["zone"] == "us-central1-b"
    with pytest.raises(Unfit, match="us-central1-f"):
        site.bought(replace(site.request("two"), zones=("us-central1-f",)))


def test_a_quota_isnt_a_lack_of_capacity(site: TpuSite) -> None:
    site.fake.script.limits[quota("us-central1", "v5litepod-4", spot=False)] = 3
    with pytest.raises(QuotaExceeded, match=r"Quota 'TPUV5LITEPODs\S+' exhausted. Limit 3 in region us-central1"):
        site.bought(site.request(zones=2))
    assert len(site.fake.calls_of("queuedResources.create")) == 1, "it is of the region"


def test_a_quota_is_known_by_its_text_too(site: TpuSite) -> None:
    text, _ = of_quota(quota("us-central1", "v5litepod-4", spot=True), 0)
    wrong = refusal("RESOURCE_EXHAUSTED", text).answer
    site.fake.script.faults.append(Fault("queuedResources.create", wrong))
    with pytest.raises(QuotaExceeded):
        site.bought(site.request(spot=True))


def test_too_many_calls_are_waited_for(site: TpuSite) -> None:
    site.fake.script.rates["queuedResources.create"] = Rate(1, 60 * SECOND)
    site.bought(site.request())
    with pytest.raises(Throttled) as raised:
        site.bought(site.request("two"))
    assert 0 < raised.value.retry_after <= 61


@pytest.mark.parametrize(
    ("status", "details", "kind"),
    [
        ("RESOURCE_EXHAUSTED", False, InsufficientCapacity),
        ("RESOURCE_EXHAUSTED", True, QuotaExceeded),
        ("FAILED_PRECONDITION", False, InsufficientCapacity),
        ("INVALID_ARGUMENT", False, Unfit),
    ],
)
def test_a_request_that_fails_later_says_why(
    site: TpuSite, status: str, details: bool, kind: type[BackendError]
) -> None:
    """As a failed request, and as an operation after which nothing is there."""
    counter = quota("us-central1", "v5litepod-4", spot=False)
    wrong = error(status, *(of_quota(counter, 4) if details else (NO_ROOM.format("us-central1-a"),)))
    site.fake.short["v5litepod-4"] = wrong
    failed = site.running(site.request())
    site.fake.refuses["v5litepod-4"] = wrong
    refused = site.running(site.request("two"))
    for handles in (failed, refused):
        with pytest.raises(Gone) as raised:
            site.backend.describe(handles)
        assert raised.value.refused is kind and wrong["message"] in str(raised.value)
        site.ended(handles)
    assert site.provider.existing() == set()


def test_a_request_doesnt_wait_for_ever(site: TpuSite) -> None:
    site.fake.short["v5litepod-4"] = GIVEN_UP
    made = site.running(site.request())
    assert site.backend.describe(made).state == "pending"
    site.clock.passes(300)
    with pytest.raises(Gone, match="no room") as raised:
        site.backend.describe(made)
    assert raised.value.refused is InsufficientCapacity
    site.ended(made)
    assert site.provider.existing() == set()


# --- taken back, and gone ---------------------------------------------------------------------------------------------


def test_what_was_taken_back_counts_until_it_is_deleted(site: TpuSite) -> None:
    """Against the quota: so it is deleted, and by force."""
    site.fake.script.limits[quota("us-central1", "v5litepod-4", spot=True)] = 4
    made = site.running(site.request(spot=True))
    site.fake.preempted(site.provider.machine(made))
    assert site.backend.describe(made).interrupted
    site.clock.passes(120)
    with pytest.raises(Gone, match="taken it back"):
        site.backend.describe(made)
    assert [each.handle for each in site.backend.list_owned()] == made
    with pytest.raises(QuotaExceeded):
        site.bought(site.request("two", spot=True))
    site.ended(made)
    site.bought(site.request("two", spot=True))


def test_a_node_that_was_taken_back_while_its_request_is_active(site: TpuSite) -> None:
    made = site.running(site.request(spot=True))
    site.fake.node_of(site.provider.machine(made)).goes(site.clock.at, (0, "PREEMPTED"))
    found = site.backend.describe(made)
    assert found.interrupted and "takes it back" in found.message


@pytest.mark.parametrize("state", ["STOPPED", "TERMINATED", "HIDDEN", "UNKNOWN", "DELETING", GONE])
def test_a_node_in_another_state_is_lost(site: TpuSite, state: str | None) -> None:
    """And its request is deleted, which counts."""
    made = site.running(site.request())
    site.fake.node_of(site.provider.machine(made)).goes(site.clock.at, (0, state))
    with pytest.raises(Gone) as raised:
        site.backend.describe(made)
    assert raised.value.refused is None
    site.ended(made)
    assert site.provider.existing() == set()


def test_a_slice_that_somebody_suspended_isnt_taken_back(site: TpuSite) -> None:
    made = site.running(site.request(spot=True))
    machine = site.provider.machine(made)
    machine.facts["by"] = "USER"
    machine.goes(site.clock.at, (0, "SUSPENDING"))
    with pytest.raises(Gone, match="SUSPENDING"):
        site.backend.describe(made)


def test_what_is_being_deleted_still_shows_and_isnt_adopted(site: TpuSite) -> None:
    request = site.request()
    made = site.running(request)
    site.backend.terminate(made[0])
    with pytest.raises(Gone, match="DELETING"):
        site.backend.describe(made)
    with pytest.raises(NotYet):
        site.bought(request)
    site.backend.terminate(made[0])
    assert len(site.fake.calls_of("queuedResources.delete")) == 1, "it is asked for once"


def test_an_end_is_by_force(site: TpuSite) -> None:
    """Without it, Google deletes none that has a node."""
    made = site.running(site.request())
    site.backend.terminate(made[0])
    assert site.fake.calls_of("queuedResources.delete")[0].query["force"] is True
    site.ended(made)
    assert site.provider.existing() == set()


def test_one_that_is_just_being_created_is_deleted_later(site: TpuSite) -> None:
    made = site.bought(site.request())
    site.backend.terminate(made[0])
    assert site.provider.existing()
    site.ended(made)
    assert site.provider.existing() == set()


def test_a_node_that_outlives_its_request_is_swept(site: TpuSite) -> None:
    made = site.running(site.request())
    site.provider.machine(made).goes(site.clock.at, (0, GONE))
    assert [each.handle for each in site.backend.list_owned()] == made
    site.ended([each.handle for each in site.backend.list_owned()])
    assert site.provider.existing() == set()


def test_a_request_whose_answer_was_lost_is_swept(site: TpuSite) -> None:
    site.fake.script.faults.append(Fault("queuedResources.create", Cut, "after"))
    with pytest.raises(Transient):
        site.bought(site.request())
    site.clock.passes(60)
    site.ended([each.handle for each in site.backend.list_owned()])
    assert site.provider.existing() == set()


def test_a_repeated_request_buys_nothing(site: TpuSite) -> None:
    for name, lag in (("shown", 0), ("hidden", 60)):
        site.fake.script.lag = lag * SECOND
        request = site.request(name, zones=2)
        assert site.bought(request) == site.bought(request)
    assert len(list(site.fake.books.existing("vm"))) == 2


def test_one_in_another_zone_is_found(site: TpuSite) -> None:
    both = site.request(zones=2)
    later = site.bought(replace(both, zones=(both.zones or ())[1:]))
    assert site.bought(both) == later


def test_a_strangers_name_isnt_taken(site: TpuSite) -> None:
    request = site.request()
    site.bought(request)
    with pytest.raises(AlreadyThere):
        site.bought(replace(request, token="another"))


def test_what_google_doesnt_show_yet_isnt_gone(site: TpuSite) -> None:
    site.fake.script.lag = 8 * SECOND
    made = site.bought(site.request())
    with pytest.raises(Transient):
        site.backend.terminate(made[0])
    site.clock.passes(9)
    site.ended(made)
    assert site.provider.existing() == set()


def test_a_list_that_lacks_something_is_an_error(site: TpuSite) -> None:
    site.running(site.request())
    site.fake.unreachable = ["us-central1-a"]
    with pytest.raises(Transient, match="doesn't list everything"):
        list(site.backend.list_owned())


def test_several_are_described_by_two_lists(site: TpuSite) -> None:
    slices = [site.bought(site.request(f"n{number}")) for number in range(3)]
    site.clock.passes(60)
    site.fake.calls.clear()
    found = site.backend.describe_several([*slices, slices[0]])
    assert [each.state for each in found if not isinstance(each, BackendError)] == ["running"] * 4
    assert sorted(call.operation.name for call in site.fake.calls) == ["nodes.list", "queuedResources.list"]


def test_slices_and_machines_are_described_together(site: TpuSite) -> None:
    usual = next(each for each in site.backend.offers() if each.instance.name == "e2-medium")
    machine = list(site.backend.create(request_for(usual, "vm")))
    tpu = site.running(site.request())
    first, second = site.backend.describe_several([tpu, machine])
    assert not isinstance(first, BackendError) and not isinstance(second, BackendError)
    assert first.internal_ip != second.internal_ip
    assert {each.handle.id for each in site.backend.list_owned()} == {tpu[0].id, machine[0].id}
    site.ended([*tpu, *machine])
    assert site.provider.existing() == set() and not list(site.google.books.existing("vm"))


# --- slices of several hosts ------------------------------------------------------------------------------------------


def hosts_of(site: TpuSite, made: list[Handle], hosts: int = 4) -> list[list[Handle]]:
    return [[each.with_(data={**each.data, WORKER: str(at)}) for each in made] for at in range(hosts)]


def script_of(site: TpuSite) -> str:
    (call,) = site.fake.calls_of("queuedResources.create")
    return str(call.body["tpu"]["nodeSpec"][0]["node"]["metadata"]["startup-script"])


def test_several_hosts_are_one_request_whose_script_asks_for_the_hosts_number(site: TpuSite) -> None:
    request = site.request(type="v5litepod-16")
    site.bought(request)
    (call,) = site.fake.calls_of("queuedResources.create")
    assert len(call.body["tpu"]["nodeSpec"]) == 1
    script = script_of(site)
    assert "agent-worker-number" in script and script.count("exec python3 agent.pyz") == 1
    for at, of_host in enumerate(request.bundle):
        _, instance, token = read_user_data(of_host)
        assert f"{at}) DSTACK_INSTANCE={instance}; DSTACK_TOKEN={token} ;;\n" in script


def test_each_host_is_described_by_its_own_address(site: TpuSite) -> None:
    made = site.running(site.request(type="v5litepod-16"))
    site.fake.calls.clear()
    found = site.backend.describe_several(hosts_of(site, made))
    assert sorted(call.operation.name for call in site.fake.calls) == ["nodes.list", "queuedResources.list"]
    addresses = [(each.hostname, each.internal_ip) for each in found if not isinstance(each, BackendError)]
    assert len(set(addresses)) == 4 and [ip.split(".")[2] for _, ip in addresses] == ["0", "1", "2", "3"]
    alone = [site.backend.describe(each) for each in hosts_of(site, made)]
    assert list(found) == alone


def test_a_request_for_another_number_of_hosts_is_refused(site: TpuSite) -> None:
    request = site.request(type="v5litepod-16")
    for wrong in ((), request.bundle[:3], (*request.bundle, request.bundle[0])):
        with pytest.raises(Unfit, match="v5litepod-16 has 4 hosts"):
            site.bought(replace(request, bundle=wrong))
    with pytest.raises(Unfit, match="v5litepod-4 has 1 hosts"):
        site.bought(replace(site.request(), bundle=request.bundle))
    assert site.fake.calls_of("queuedResources.create") == []


def test_a_slice_with_another_number_of_hosts_is_given_up_by_all(site: TpuSite) -> None:
    """It would cost what it is, and its job would wait for hosts that never come."""
    for hosts in (2, 8):
        site.fake.hosts["v5litepod-16"] = hosts
        made = site.running(site.request(f"of-{hosts}", type="v5litepod-16"))
        for each in hosts_of(site, made):
            with pytest.raises(Gone, match=f"has {hosts} hosts, and 4 were expected") as raised:
                site.backend.describe(each)
            assert raised.value.refused is Unfit
        site.ended(made)
    assert site.provider.existing() == set()


def test_a_slice_that_is_taken_back_is_so_for_every_host(site: TpuSite) -> None:
    made = site.running(site.request(type="v5litepod-16", spot=True))
    site.fake.preempted(site.provider.machine(made))
    assert all(site.backend.describe(each).interrupted for each in hosts_of(site, made))
    site.clock.passes(120)
    for each in hosts_of(site, made):
        with pytest.raises(Gone, match="taken it back"):
            site.backend.describe(each)
    site.ended(made)
    assert site.provider.existing() == set()


def test_any_host_ends_the_whole_slice(site: TpuSite) -> None:
    made = site.running(site.request(type="v5litepod-16"))
    site.backend.terminate(hosts_of(site, made)[3][0])
    for each in hosts_of(site, made):
        with pytest.raises(Gone):
            site.backend.describe(each)
    site.ended(made)
    assert site.provider.existing() == set()


def test_all_chips_count_against_the_quota(site: TpuSite) -> None:
    site.fake.script.limits[quota("us-central1", "v5litepod-16", spot=False)] = 15
    with pytest.raises(QuotaExceeded):
        site.bought(site.request(type="v5litepod-16"))


def test_no_token_of_any_host_is_shown(site: TpuSite) -> None:
    request = site.request(type="v5litepod-16")
    wrong = refusal("INVALID_ARGUMENT", f"bad metadata: {request.bundle[3]}").answer
    site.fake.script.faults.append(Fault("queuedResources.create", wrong))
    with pytest.raises(Unfit) as raised:
        site.bought(request)
    assert read_user_data(request.bundle[3])[2] not in str(raised.value)


def test_a_slice_of_the_operators_file_is_shared_by_its_hosts(site: TpuSite, tmp_path: Path) -> None:
    file = tmp_path / "prices.csv"
    file.write_text("provider,instance_type,region,price,spot_price\ngcp,v5litepod-16,us-central1,19.2,\n")
    site.google.script.faults.append(Fault("services.skus.list", refusal("PERMISSION_DENIED", "no").answer, times=9))
    backend = GcpBackend(config(tpu=True), clients(site.google, site.fake), site.clock.now, prices=OfflinePrices(file))
    priced = {(each.instance.name, each.price) for each in backend.offers() if is_tpu(each)}
    assert priced == {("v5litepod-16", 4.805)}


# --- rights -----------------------------------------------------------------------------------------------------------


def test_lacking_rights_are_named(site: TpuSite) -> None:
    site.google.lacking = {"tpu.nodes.create"}
    with pytest.raises(MissingPermission, match=r"tpu\.nodes\.create"):
        site.backend.check()
    site.configured(tpu=False).check()


def test_a_refused_script_isnt_shown(site: TpuSite) -> None:
    script = site.request().user_data
    wrong = refusal("INVALID_ARGUMENT", f"bad metadata: {script}").answer
    site.fake.script.faults.append(Fault("queuedResources.create", wrong))
    with pytest.raises(Unfit) as raised:
        site.bought(site.request())
    assert BOOT_TOKEN not in str(raised.value)


def test_each_type_can_be_bought() -> None:
    one = {(each.instance.name, each.instance.resources.spot): each for each in usual_offers()}
    for offer in one.values():
        site = TpuSite()
        made = site.running(request_for(offer))
        assert site.backend.describe(made).state == "running"


# --- the mistakes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_the_mistake_is_noticed(mistake: Mistake) -> None:
    check: Callable[[TpuSite], None] = globals()[f"test_{mistake.check}"]
    usual_offers()
    with made(mistake) as module:
        try:
            check(TpuSite(module("backend").GcpBackend, module("client").GcpClients))
        except (NameError, ImportError, SyntaxError):
            raise
        except (Exception, pytest.fail.Exception):
            return
    pytest.fail("nobody noticed")
