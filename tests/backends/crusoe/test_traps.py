"""What Crusoe does to those who build on it: each row of its known traps, and what the backend does about it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from chalicelib.backends.crusoe.backend import CrusoeBackend
from chalicelib.backends.crusoe.client import signer
from chalicelib.backends.crusoe.config import CrusoeBackendConfig
from chalicelib.backends.crusoe.launch import AMD, PCIE, SXM
from chalicelib.backends.kit.rest import RestCall
from chalicelib.backends.kit.ssh_key import NOBODYS_KEY
from chalicelib.backends.price_file import OfflinePrices
from chalicelib.domain.instants import SECOND, from_iso
from chalicelib.domain.offers import Availability
from chalicelib.errors import (
    Gone,
    InsufficientCapacity,
    InUse,
    InvalidCredentials,
    MissingPermission,
    NotYet,
    QuotaExceeded,
    Throttled,
    Transient,
    Unfit,
)
from chalicelib.runtime.accounts import providers
from tests.backends.clock import Clock
from tests.backends.conformance.requests import group_request_for, inside, request_for, volume_request
from tests.backends.conformance.suite import end_all
from tests.backends.crusoe.fake import DISK_MONTH, KEY, PRICES, PROJECT, SECRET, Crusoe, capacity_of, fabric, quota
from tests.backends.crusoe.orders import (
    CPU,
    EAST,
    GIB,
    H100,
    ICELAND,
    L40S,
    MI300X,
    offered,
    running,
    vms,
    with_data_disk,
)
from tests.backends.crusoe.provider import CONFIG, STATUSES, client, prices
from tests.backends.fakes.script import Answer, Fault, Rate, misses, repeats
from tests.backends.fakes.transport import serving

# --- 1, 2, 13: what is sold, what is left, and what one may have ----------------------------------------------------


def test_what_is_in_stock_may_be_more_than_the_quota_allows(backend: CrusoeBackend, crusoe: Crusoe) -> None:
    crusoe.script.limits[quota(L40S)] = 0
    offer = offered(backend, L40S)
    assert offer.availability is Availability.no_quota
    with pytest.raises(QuotaExceeded, match=r"quota of l40s-48gb exceeded \(l40s-48gb: 0 of 0 are used\)"):
        list(backend.create(request_for(offer)))
    assert offered(backend, CPU).availability is Availability.available, "a quota of disks isn't one of machines"


def test_a_quota_whose_numbers_cant_be_read_is_still_a_quota(backend: CrusoeBackend, crusoe: Crusoe) -> None:
    offer = offered(backend, L40S)
    crusoe.script.limits[quota(L40S)] = 0
    crusoe.script.faults.append(Fault("listProjectQuotas", Answer(500, {"code": "x", "message": "x"})))
    with pytest.raises(QuotaExceeded, match=r"exceeded$"):
        list(backend.create(request_for(offer)))


def test_a_type_that_is_listed_in_stock_alone_is_no_offer(backend: CrusoeBackend, crusoe: Crusoe) -> None:
    crusoe.listed_types -= {H100}
    assert H100 not in {offer.instance.name for offer in backend.offers()}


def test_what_an_account_cant_have_is_shown_as_not_available(backend: CrusoeBackend, crusoe: Crusoe) -> None:
    crusoe.script.limits[capacity_of(EAST, MI300X)] = 0
    assert offered(backend, MI300X).availability is Availability.not_available
    assert offered(backend, MI300X, ICELAND).availability is Availability.available


def test_machines_for_arm_arent_offered(backend: CrusoeBackend) -> None:
    assert not [offer for offer in backend.offers() if offer.instance.name.startswith("gb200")]


# --- prices ----------------------------------------------------------------------------------------------------------


def test_a_type_without_a_price_isnt_offered_and_that_is_said(crusoe: Crusoe, clock: Clock, tmp_path: Path) -> None:
    backend = CrusoeBackend(CONFIG, client(crusoe, clock), clock.now, prices(tmp_path, **{CPU: 0.08}))
    offers = backend.offers()
    assert {offer.instance.name for offer in offers} == {CPU}
    (said,) = {offer.terms.prices for offer in offers}
    assert said.endswith(f", without a100-80gb.2x, {H100}, {L40S} and 1 more"), "GB200 wouldn't be offered anyway"
    assert not any(offer.elastic for offer in offers), "nor is what a data disk costs known"
    volume = backend.create_volume(volume_request(EAST))
    assert backend.describe_volume(volume).price is None


def test_without_any_price_that_is_an_error(crusoe: Crusoe, clock: Clock, tmp_path: Path) -> None:
    (tmp_path / "aws.csv").write_text("provider,instance_type,region,price,spot_price\naws,m7i.large,us-east-1,0.1,\n")
    for file in (None, OfflinePrices(tmp_path / "aws.csv")):
        backend = CrusoeBackend(CONFIG, client(crusoe, clock), clock.now, file)
        for call in (backend.offers, backend.check):
            with pytest.raises(Unfit, match=r"says no prices.*DSTACK_CATALOG_FILE.*DSTACK_CATALOG_URL"):
                call()


def test_prices_may_be_those_of_a_published_catalogue(tmp_path: Path) -> None:
    """As a control plane makes its backends."""
    place = tmp_path / "crusoe" / "1"
    place.mkdir(parents=True)
    (place.parent / "version").write_text("1")
    rows = f"{CPU},{EAST},0.08,False\n{CPU},{ICELAND},0.0,False\n{L40S},{EAST},1.0,False\n"
    with zipfile.ZipFile(place / "catalog.zip", "w") as zipped:
        zipped.writestr("crusoe.csv", f"instance_name,location,price,spot\n{rows}")
    fake = Crusoe(lambda: time.time_ns() // 1000)
    with serving(fake) as address:
        backend = providers(None, {"crusoe": address}, catalog_url=f"file://{tmp_path}").make(CONFIG)
        backend.check()
        found = {(each.instance.name, each.region): each for each in backend.offers()}
        backend.close()
    assert {key: each.price for key, each in found.items()} == {(CPU, EAST): 0.08, (L40S, EAST): 1.0}
    assert found[CPU, EAST].terms.prices.startswith(str(tmp_path))


def test_a_price_may_be_one_locations(crusoe: Crusoe, clock: Clock, tmp_path: Path) -> None:
    file = tmp_path / "prices.csv"
    rows = f"crusoe,{CPU},,0.08,\ncrusoe,{CPU},{ICELAND},0.07,\n"
    file.write_text(f"provider,instance_type,region,price,spot_price\n{rows}")
    backend = CrusoeBackend(CONFIG, client(crusoe, clock), clock.now, OfflinePrices(file))
    assert {(each.region, each.price) for each in backend.offers()} == {(EAST, 0.08), (ICELAND, 0.07)}
    assert backend.offers()[0].terms.prices.startswith("prices.csv, ")


def test_a_row_with_a_spot_price_alone_hides_no_other(crusoe: Crusoe, clock: Clock, tmp_path: Path) -> None:
    file = tmp_path / "prices.csv"
    rows = f"crusoe,{CPU},,0.08,\ncrusoe,{CPU},{ICELAND},,0.02\n"
    file.write_text(f"provider,instance_type,region,price,spot_price\n{rows}")
    backend = CrusoeBackend(CONFIG, client(crusoe, clock), clock.now, OfflinePrices(file))
    assert {(each.region, each.price) for each in backend.offers()} == {(EAST, 0.08), (ICELAND, 0.08)}


def test_a_volume_waits_for_no_price(backend: CrusoeBackend, crusoe: Crusoe, clock: Clock, tmp_path: Path) -> None:
    machine = running(backend, clock, request_for(offered(backend, CPU)))
    volume = backend.create_volume(volume_request(EAST))
    backend.attach_volume(volume, machine)
    clock.passes(10)
    assert backend.describe_volume(volume).price is not None
    with (tmp_path / "prices.csv").open("a") as file:
        file.write(f"crusoe,{CPU},,1O.0,\n")
    found = backend.describe_volume(volume)
    assert (found.state, found.price) == ("in_use", None)
    with pytest.raises(Unfit, match=r"price is '1O\.0'"):
        backend.offers()


def test_a_data_disk_is_a_part_of_the_price(backend: CrusoeBackend, crusoe: Crusoe, clock: Clock) -> None:
    plain, larger = offered(backend, CPU), offered(backend, CPU, elastic=True)
    assert plain.instance.resources.disk.size_mib == 128 * GIB and plain.price == PRICES[CPU]
    assert larger.key != plain.key
    sized = larger.sized(200)
    assert sized.price == pytest.approx(PRICES[CPU] + 200 * DISK_MONTH / 730, abs=1e-6)
    running(backend, clock, replace(request_for(sized), disk_mib=sized.instance.resources.disk.size_mib))
    assert crusoe.billed() == pytest.approx(sized.price, abs=1e-6)


def test_a_machine_with_disks_of_its_own_has_no_other(backend: CrusoeBackend, crusoe: Crusoe) -> None:
    offer = offered(backend, L40S)
    assert offer.instance.resources.disk.size_mib == round(960 * 1000**3 / 1024**2) and not offer.elastic
    list(backend.create(replace(request_for(offer), disk_mib=offer.instance.resources.disk.size_mib)))
    (vm,) = crusoe.books.existing("vm")
    assert "disks" not in vm.facts["request"]
    assert "/dev/nvme*n1" in vm.facts["request"]["startup_script"]


# --- 3, 5: InfiniBand ------------------------------------------------------------------------------------------------


def test_a_machine_with_infiniband_has_a_partition_that_ends_with_it(
    backend: CrusoeBackend, crusoe: Crusoe, clock: Clock
) -> None:
    made = running(backend, clock, request_for(offered(backend, H100)))
    assert [handle.kind for handle in made] == ["partition", "vm"]
    with pytest.raises(NotYet, match="in use"):
        backend.terminate(made[0])
    assert sorted(map(str, (each.handle for each in backend.list_owned(region=EAST)))) == sorted(map(str, made))
    assert list(backend.list_owned(region=ICELAND)) == []
    end_all(backend, clock.passes, made)
    assert not list(crusoe.books.existing("partition"))


def test_a_network_that_is_new_is_found_where_it_is(
    backend: CrusoeBackend, crusoe: Crusoe, clock: Clock, tmp_path: Path
) -> None:
    """However short ago the networks were listed."""
    made = list(backend.create(request_for(offered(backend, H100))))
    hidden = [Fault("listIBNetworks", lambda body: {"items": []})]
    crusoe.script.faults += hidden
    assert list(backend.list_owned(region=EAST)) and not hidden[0].times
    assert made[0] in [each.handle for each in backend.list_owned(region=EAST)]


def test_a_cluster_shares_a_partition(backend: CrusoeBackend, crusoe: Crusoe, clock: Clock) -> None:
    offer = offered(backend, H100)
    group = backend.create_group(group_request_for(offer))
    nodes = [running(backend, clock, inside(request_for(offer, name), group)) for name in ("a", "b")]
    assert [handle.kind for made in nodes for handle in made] == ["vm", "vm"]
    joined = {each.facts["request"]["host_channel_adapters"][0]["transport_partition_id"] for each in vms(crusoe)}
    assert joined == {group.id}
    with pytest.raises(InUse):
        backend.delete_group(group)
    end_all(backend, clock.passes, [*nodes[0], *nodes[1]])
    backend.delete_group(group)
    with pytest.raises(Gone):
        backend.delete_group(group)


def test_machines_without_infiniband_are_a_cluster_without_a_partition(
    backend: CrusoeBackend, crusoe: Crusoe, clock: Clock
) -> None:
    offer, fast = offered(backend, L40S), offered(backend, H100)
    assert fast.terms.interconnect is not None and offer.terms.interconnect is None
    assert "/etc/nccl.conf" in fast.terms.interconnect.folders
    group = backend.create_group(group_request_for(offer))
    assert [handle.kind for handle in running(backend, clock, inside(request_for(offer), group))] == ["vm"]
    joins = running(backend, clock, inside(request_for(fast, "fast"), group))
    assert [handle.kind for handle in joins] == ["partition", "vm"], "it has one of its own"
    assert list(backend.list_owned_groups()) == []
    with pytest.raises(Gone):
        backend.delete_group(group)


def test_the_network_may_be_full_although_there_are_machines(backend: CrusoeBackend, crusoe: Crusoe) -> None:
    offer = offered(backend, H100)
    crusoe.script.limits[fabric(EAST, H100)] = 0
    assert offer.availability is Availability.available
    with pytest.raises(InsufficientCapacity, match=f"No InfiniBand network in {EAST} has room for {H100}"):
        list(backend.create(request_for(offer)))
    with pytest.raises(InsufficientCapacity):
        backend.create_group(group_request_for(offer))
    assert not list(crusoe.books.existing())


def test_the_network_that_fills_up_later_is_a_lack_of_capacity(
    backend: CrusoeBackend, crusoe: Crusoe, clock: Clock
) -> None:
    making = backend.create(request_for(offered(backend, H100)))
    made = [next(making)]
    crusoe.script.limits[fabric(EAST, H100)] = 0
    made += making
    clock.passes(30)
    with pytest.raises(Gone) as gone:
        backend.describe(made)
    assert gone.value.refused is InsufficientCapacity
    end_all(backend, clock.passes, made)
    assert not list(crusoe.books.existing("partition"))


# --- 4, 7, 8: what is left when a machine isn't ---------------------------------------------------------------------


def test_a_stockout_after_the_data_disk_leaves_none(backend: CrusoeBackend, crusoe: Crusoe, clock: Clock) -> None:
    request = with_data_disk(backend)
    crusoe.script.limits[capacity_of(EAST, CPU)] = 0
    made = list(backend.create(request))
    assert [handle.kind for handle in made] == ["disk", "vm"]
    clock.passes(30)
    with pytest.raises(Gone, match=f"Crusoe has no {CPU} left in {EAST}") as gone:
        backend.describe(made)
    assert gone.value.refused is InsufficientCapacity
    assert crusoe.billed() > 0, "the disk outlives the machine"
    end_all(backend, clock.passes, made)
    assert crusoe.billed() == 0


def test_a_data_disk_ends_after_its_machine(backend: CrusoeBackend, crusoe: Crusoe, clock: Clock) -> None:
    made = running(backend, clock, with_data_disk(backend))
    disk, vm = made
    with pytest.raises(NotYet, match="still attached"):
        backend.terminate(disk)
    backend.terminate(vm)
    backend.terminate(vm)  # a second deletion would be refused
    clock.passes(30)
    assert crusoe.billed() > 0
    end_all(backend, clock.passes, made)
    assert crusoe.billed() == 0


def test_a_disk_that_is_still_being_detached_is_busy(backend: CrusoeBackend, crusoe: Crusoe, clock: Clock) -> None:
    machine = running(backend, clock, request_for(offered(backend, CPU)))
    volume = backend.create_volume(volume_request(EAST))
    backend.attach_volume(volume, machine)
    with pytest.raises(InUse, match="busy"):  # nothing shows it yet
        backend.delete_volume(volume)
    clock.passes(10)
    backend.detach_volume(volume, machine)
    with pytest.raises(InUse, match="attached"):
        backend.delete_volume(volume)
    clock.passes(10)
    backend.delete_volume(volume)


def test_a_data_disk_is_made_before_its_machine(backend: CrusoeBackend, crusoe: Crusoe, clock: Clock) -> None:
    crusoe.making = 15 * SECOND
    request = with_data_disk(backend)
    making = backend.create(request)
    disk = next(making)
    with pytest.raises(NotYet, match="still making"):
        next(making)
    assert not list(crusoe.books.existing("vm"))
    clock.passes(15)
    made = list(backend.create(request))
    assert made[0] == disk and [handle.kind for handle in made] == ["disk", "vm"]
    (vm,) = vms(crusoe)
    serial = f"S{next(each.number for each in crusoe.books.existing('disk') if each.id == disk.id):08}"
    assert f"disk=/dev/disk/by-id/virtio-{serial}\n" in vm.facts["request"]["startup_script"]


def test_a_disk_that_cant_be_made_says_why(backend: CrusoeBackend, crusoe: Crusoe, clock: Clock) -> None:
    crusoe.making, crusoe.failing = 5 * SECOND, "storage quota exceeded"
    volume = backend.create_volume(volume_request(EAST))
    clock.passes(15)
    with pytest.raises(Gone, match="storage quota exceeded") as gone:
        backend.describe_volume(volume)
    assert gone.value.refused is QuotaExceeded


def test_a_volume_that_is_being_made_says_so(backend: CrusoeBackend, crusoe: Crusoe, clock: Clock) -> None:
    crusoe.making = 30 * SECOND
    machine = running(backend, clock, request_for(offered(backend, CPU)))
    volume = backend.create_volume(volume_request(EAST))
    assert backend.describe_volume(volume).state == "creating"
    with pytest.raises(NotYet):
        backend.attach_volume(volume, machine)
    clock.passes(30)
    assert backend.describe_volume(volume).state == "available"
    backend.attach_volume(volume, machine)


# --- 6: what is allowed now ------------------------------------------------------------------------------------------


def test_a_running_machine_is_deleted_and_gets_a_volume_without_being_stopped(
    backend: CrusoeBackend, crusoe: Crusoe, clock: Clock
) -> None:
    machine = running(backend, clock, request_for(offered(backend, CPU)))
    volume = backend.create_volume(volume_request(EAST))
    backend.attach_volume(volume, machine)
    clock.passes(10)
    [(_, device)] = backend.describe_volume(volume).attached_to
    assert device is not None and device.by_id.startswith("virtio-S")
    backend.terminate(machine[0])
    clock.passes(30)
    with pytest.raises(Gone):
        backend.terminate(machine[0])


def test_a_machine_that_starts_or_is_elsewhere_gets_no_volume(backend: CrusoeBackend, clock: Clock) -> None:
    volume = backend.create_volume(volume_request(EAST))
    starts = list(backend.create(request_for(offered(backend, CPU))))
    with pytest.raises(NotYet, match="still starting"):
        backend.attach_volume(volume, starts)
    elsewhere = running(backend, clock, request_for(offered(backend, CPU, ICELAND), "two"))
    with pytest.raises(Unfit, match=f"is in {EAST}, and .* is in {ICELAND}"):
        backend.attach_volume(volume, elsewhere)


def test_a_disk_is_offered_by_its_name(backend: CrusoeBackend, crusoe: Crusoe) -> None:
    for name, projects in (("data-dstack-projects--main--other", ("main", "other")), ("data", ())):
        disk = crusoe.new_disk(name, EAST, "2TiB")
        found = backend.register_volume(disk.id, EAST, "")
        assert (found.offered_to, found.size_gib) == (projects, 2048)
    shared = crusoe.new_disk("shared", EAST, "1TiB", kind="shared-volume")
    with pytest.raises(Unfit, match="type shared-volume"):
        backend.register_volume(shared.id, EAST, "")


# --- 9: what nobody may know -----------------------------------------------------------------------------------------


def test_an_operation_that_is_forgotten_says_nothing(backend: CrusoeBackend, crusoe: Crusoe, clock: Clock) -> None:
    made = running(backend, clock, request_for(offered(backend, CPU)))
    vms(crusoe)[0].goes(clock.now(), (0, None))
    clock.passes(40 * 24 * 3600)
    with pytest.raises(Gone, match="has no machine") as gone:
        backend.describe(made)
    assert gone.value.refused is None


def test_a_lack_of_permission_isnt_taken_for_an_end(backend: CrusoeBackend, crusoe: Crusoe, clock: Clock) -> None:
    """Both are a 403."""
    made = running(backend, clock, request_for(offered(backend, CPU)))
    volume = backend.create_volume(volume_request(EAST))
    group = backend.create_group(group_request_for(offered(backend, H100)))
    forbidden = Answer(STATUSES["MissingPermission"], {"code": "forbidden", "message": "no"})
    crusoe.script.faults += [Fault(name, forbidden) for name in ("getInstance", "getDisk", "getIBPartition")]
    with pytest.raises(MissingPermission):
        backend.terminate(made[0])
    with pytest.raises(MissingPermission):
        backend.describe_volume(volume)
    with pytest.raises(MissingPermission):
        backend.delete_group(group)


def test_the_check_names_each_permission_that_lacks(backend: CrusoeBackend, crusoe: Crusoe) -> None:
    forbidden = Answer(STATUSES["MissingPermission"], {"code": "forbidden", "message": "no"})
    crusoe.script.faults += [Fault(name, forbidden) for name in ("listProjectQuotas", "listDisks", "listIBNetworks")]
    with pytest.raises(MissingPermission) as denied:
        backend.check()
    for place in (f"{PROJECT}/quotas", "/storage/disks", "/networking/ib-networks", f"Is {PROJECT} the project"):
        assert place in str(denied.value)


# --- 10: signatures --------------------------------------------------------------------------------------------------


def test_the_signature_is_the_one_that_crusoe_computes() -> None:
    at = from_iso("2026-01-02T03:04:05Z")
    path = "/v1/projects/00000000-0000-0000-0000-000000000001/compute/vms/instances"
    call = RestCall("GET", "https://api.example.com", path, (("limit", "20"), ("names", "gpu-a")))
    headers = signer("key", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8", lambda: at)(call)
    assert headers == {
        "X-Crusoe-Timestamp": "2026-01-02T03:04:05Z",
        "Authorization": "Bearer 1.0:key:XbtCGnlK2oRLx8MWDbzKITSzInIVjYlun0P3VNtUdUc",
    }


def test_what_is_quoted_is_signed_as_it_is_meant() -> None:
    """The path without quotes, the query as in a form."""
    at, key = "2026-01-02T03:04:05Z", bytes(range(32))
    call = RestCall("GET", "https://api.example.com", "/v1/a%20b", (("names", "a b&c"),))
    signed = f"/v1/a b\nnames=a+b%26c\nGET\n{at}\n".encode()
    proof = base64.urlsafe_b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode().rstrip("=")
    assert signer("key", SECRET, lambda: from_iso(at))(call)["Authorization"].endswith(f":{proof}")


def test_a_clock_that_is_wrong_is_a_login_that_is_refused(crusoe: Crusoe, tmp_path: Path) -> None:
    late = Clock(crusoe.now() - 3600 * SECOND)
    backend = CrusoeBackend(CONFIG, client(crusoe, late), late.now, prices(tmp_path))
    with pytest.raises(InvalidCredentials, match="a clock that is wrong looks the same"):
        backend.check()


def test_a_key_that_is_none_is_refused_in_words(crusoe: Crusoe, clock: Clock, tmp_path: Path) -> None:
    creds = {"type": "access_key", "access_key": KEY, "secret_key": "a"}
    config = CrusoeBackendConfig.model_validate({"type": "crusoe", "project_id": "p", "creds": creds})
    backend = CrusoeBackend(config, None, clock.now, prices(tmp_path))
    with pytest.raises(InvalidCredentials, match="it is base64 text"):
        backend.check()


def test_a_location_that_isnt_one_is_named(crusoe: Crusoe, clock: Clock, tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"regions": [EAST, "mars1-a"]})
    backend = CrusoeBackend(config, client(crusoe, clock), clock.now, prices(tmp_path))
    with pytest.raises(Unfit, match=rf"no location mars1-a\. `regions` can have {ICELAND}, {EAST}"):
        backend.check()
    assert {offer.region for offer in backend.offers()} == {EAST}


# --- lists and states ------------------------------------------------------------------------------------------------


def test_one_list_describes_all(backend: CrusoeBackend, crusoe: Crusoe, clock: Clock) -> None:
    made = [running(backend, clock, request_for(offered(backend, CPU), f"n{n}")) for n in range(3)]
    before = len(crusoe.calls)
    assert [each.state for each in backend.describe_several(made)] == ["running"] * 3  # type: ignore[union-attr]
    assert len(crusoe.calls) - before == 1


def test_a_list_that_lacks_a_machine_is_no_proof(backend: CrusoeBackend, crusoe: Crusoe, clock: Clock) -> None:
    made = running(backend, clock, request_for(offered(backend, CPU)))
    crusoe.script.faults += [Fault("listInstances", misses("items")), Fault("listInstances", repeats("items"))]
    assert [backend.describe(made).state for _ in range(2)] == ["running", "running"]


@pytest.mark.parametrize("status", [404, 410])
def test_a_list_that_isnt_there_is_no_proof(backend: CrusoeBackend, crusoe: Crusoe, clock: Clock, status: int) -> None:
    """As behind a proxy that is set up wrong."""
    made = running(backend, clock, with_data_disk(backend))
    volume = backend.create_volume(volume_request(EAST))
    nothing = Answer(status, {"code": "not_found", "message": "no route"})
    for name in ("listInstances", "listDisks", "listIBPartitions"):
        crusoe.script.faults.append(Fault(name, nothing))
        with pytest.raises(Transient):
            list(backend.list_owned())
    crusoe.script.faults.append(Fault("listInstances", nothing, times=2))
    with pytest.raises(Transient):
        backend.describe_several([made])
    with pytest.raises(Transient):
        backend.describe(made)
    crusoe.script.faults += [Fault(name, nothing) for name in ("getInstance", "getDisk")]
    with pytest.raises(Transient):
        backend.terminate(made[1])
    with pytest.raises(Transient):
        backend.describe_volume(volume)
    assert backend.describe(made).state == "running"


@pytest.mark.parametrize("state", ["STATE_STOPPED", "STATE_SHUTOFF", "stopped"])
def test_a_machine_that_was_stopped_is_gone_and_removed(
    backend: CrusoeBackend, crusoe: Crusoe, clock: Clock, state: str
) -> None:
    """Its disks are billed on."""
    made = running(backend, clock, with_data_disk(backend))
    vms(crusoe)[0].goes(clock.now(), (0, state))
    with pytest.raises(Gone, match="somebody has stopped it, or Crusoe has") as gone:
        backend.describe(made)
    assert gone.value.refused is None
    end_all(backend, clock.passes, made)
    assert crusoe.billed() == 0


def test_a_machine_that_breaks_as_it_starts_says_why(backend: CrusoeBackend, crusoe: Crusoe, clock: Clock) -> None:
    crusoe.broken.add(CPU)
    made = list(backend.create(request_for(offered(backend, CPU))))
    clock.passes(60)
    with pytest.raises(Gone, match="the host failed"):
        backend.describe(made)
    end_all(backend, clock.passes, made)
    assert not list(crusoe.books.existing("vm"))


@pytest.mark.parametrize(("state", "said"), [("STATE_CRASHED", "broken"), ("power-suspended", "broken")])
def test_a_machine_that_breaks_later_is_gone(
    backend: CrusoeBackend, crusoe: Crusoe, clock: Clock, state: str, said: str
) -> None:
    made = running(backend, clock, request_for(offered(backend, CPU)))
    vms(crusoe)[0].goes(clock.now(), (0, state))
    with pytest.raises(Gone, match=said):
        backend.describe(made)


def test_a_state_that_nobody_knows_is_on_its_way(backend: CrusoeBackend, crusoe: Crusoe, clock: Clock) -> None:
    made = running(backend, clock, request_for(offered(backend, CPU)))
    vms(crusoe)[0].goes(clock.now(), (0, "STATE_MIGRATING"))
    assert backend.describe(made).state == "pending"


def test_who_calls_too_fast_is_told_when_to_come_back(backend: CrusoeBackend, crusoe: Crusoe, clock: Clock) -> None:
    crusoe.script.rates["listInstances"] = Rate(1, 20 * SECOND)
    list(backend.list_owned())
    with pytest.raises(Throttled) as found:
        list(backend.list_owned())
    assert 1 <= found.value.retry_after <= 21


def test_the_account_has_a_bucket_of_its_own(crusoe: Crusoe, clock: Clock, tmp_path: Path) -> None:
    backend = CrusoeBackend(CONFIG, client(crusoe, clock, burst=12), clock.now, prices(tmp_path))
    with pytest.raises(Throttled):
        for _ in range(20):
            list(backend.list_owned())
    assert len(crusoe.calls) <= 12


# --- what a machine is created with ----------------------------------------------------------------------------------


def test_images_follow_the_cards(backend: CrusoeBackend, crusoe: Crusoe) -> None:
    images = {CPU: PCIE, L40S: PCIE, H100: SXM, MI300X: AMD}
    for name, image in images.items():
        list(backend.create(request_for(offered(backend, name), name)))
        body = vms(crusoe)[-1].facts["request"]
        assert (body["image"], body["install_crusoe_watch_agent"]) == (image, False)
        assert body["ssh_public_key"] == NOBODYS_KEY
