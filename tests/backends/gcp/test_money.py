"""What goes on costing money at Google, or is lost; and each line that prevents it: its mistake must be noticed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from chalicelib.backends.price_file import OfflinePrices
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import HOUR, MINUTE, SECOND
from chalicelib.domain.offers import Availability, Offer
from chalicelib.errors import Gone, InUse, QuotaExceeded, Transient, Unfit
from tests.backends.conformance.requests import group_request_for, inside, request_for, volume_request
from tests.backends.conformance.suite import end_all
from tests.backends.fakes.script import Cut, Fault
from tests.backends.gcp import shop, test_gpudirect, test_interfaces, test_traps
from tests.backends.gcp.conftest import Site
from tests.backends.mistakes import Mistake, made, mistakes

MISTAKES = mistakes("chalicelib.backends.gcp", Path(__file__).with_name("mistakes.toml"))


def ended(site: Site, handles: list[Handle]) -> None:
    end_all(site.backend, site.clock.passes, handles)


def swept(site: Site) -> None:
    """By what is listed alone, as if nobody knew any handle."""
    ended(site, [each.handle for each in site.backend.list_owned()])
    assert site.provider.existing() == set()


def test_a_machine_leaves_nothing(site: Site) -> None:
    made = list(site.backend.create(site.request()))
    site.clock.passes(60)
    ended(site, made)
    assert site.provider.existing() == set()
    body = site.fake.calls_of("instances.insert")[0].body
    assert [each["autoDelete"] for each in body["disks"]] == [True]


def test_a_machine_whose_answer_was_lost_is_swept(site: Site) -> None:
    site.fake.script.faults.append(Fault("instances.insert", Cut, "after"))
    with pytest.raises(Transient):
        list(site.backend.create(site.request()))
    site.clock.passes(60)
    swept(site)


def test_a_stopped_machine_is_swept(site: Site) -> None:
    made = list(site.backend.create(site.request()))
    site.clock.passes(60)
    site.fake.goes(site.provider.machine(made), (0, "TERMINATED"))
    swept(site)


def test_a_disk_that_was_left_is_swept(site: Site) -> None:
    made = list(site.backend.create(site.request()))
    site.clock.passes(60)
    number = site.provider.machine(made).number
    (disk,) = site.fake.books.existing("disk")
    disk.facts["on"][number] = ("READ_WRITE", False, "boot")
    assert {each.handle.kind for each in site.backend.list_owned()} == {"vm"}, "it goes with its machine"
    ended(site, made)
    assert {each.handle.kind for each in site.backend.list_owned()} == {"disk"}
    swept(site)


def test_a_repeated_request_buys_nothing(site: Site) -> None:
    for name, lag in (("shown", 0), ("hidden", 60)):
        site.fake.script.lag = lag * SECOND
        request = site.request(name)
        first = list(site.backend.create(request))
        assert list(site.backend.create(request)) == first
    assert len(list(site.fake.books.existing("vm"))) == 2


def test_the_machine_of_another_zone_is_found(site: Site) -> None:
    request = site.request()
    made = list(site.backend.create(replace(request, zones=("us-central1-c",))))
    assert list(site.backend.create(request)) == made and len(list(site.fake.books.existing("vm"))) == 1


def test_a_machine_that_isnt_shown_yet_isnt_gone(site: Site) -> None:
    site.fake.script.lag = 29 * SECOND
    made = list(site.backend.create(site.request()))
    for later in (0, 12, 10):  # its operation is listed, and it is done after 20 seconds
        site.clock.passes(later)
        for call in (lambda: site.backend.terminate(made[-1]), lambda: site.backend.describe(made)):
            with pytest.raises(Transient):
                call()
    site.clock.passes(30)
    swept(site)


def test_an_end_whose_answer_is_lost_is_no_end(site: Site) -> None:
    made = list(site.backend.create(site.request()))
    site.clock.passes(60)
    site.fake.script.faults.append(Fault("instances.delete", Cut))
    ended(site, made)
    assert site.provider.existing() == set()


def test_an_offer_costs_what_is_billed(site: Site) -> None:
    for offer in site.backend.offers():
        name, spot = offer.instance.name, offer.instance.resources.spot
        t4s = len(offer.instance.resources.gpus) if name.startswith("n1-") else 0
        assert offer.price == pytest.approx(shop.price(name, offer.region, spot=spot, t4s=t4s), rel=1e-4), offer.key
        larger = shop.price(name, offer.region, spot=spot, t4s=t4s, disk_gib=500)
        assert offer.price_sized(500) == pytest.approx(larger, rel=1e-4), offer.key
    private = site.new(site.configured(public_ips=False)).offers()
    cheaper = {each.key: each.price for each in private}
    dearer = [each.price - cheaper[each.key] for each in site.all if not each.instance.resources.spot]
    assert dearer == pytest.approx([0.005] * len(dearer), abs=1e-6)


def test_a_price_that_isnt_known_is_no_offer(site: Site) -> None:
    for sku in list(site.fake.books.existing("sku")):
        if "N2 Instance Ram" in sku.facts["body"]["description"]:
            sku.goes(site.clock.now(), (0, None))
    names = {each.instance.name for each in site.backend.offers()}
    assert "n2-standard-2" not in names and "e2-medium" in names


def test_prices_from_the_operators_file(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "prices.csv"
    file.write_text(
        "provider,instance_type,region,price,spot_price\n"
        "gcp,n2-standard-2,us-central1,0.5,\ngcp,pd-balanced,us-central1,0.073,\n"
    )
    site.refuses("services.skus.list", 403, "forbidden", "no", times=99)
    (offer,) = site.new(site.config, OfflinePrices(file)).offers()
    assert (offer.instance.name, offer.instance.resources.spot) == ("n2-standard-2", False)
    assert offer.price == pytest.approx(0.5 + 0.01 + 0.005) and "prices.csv" in offer.terms.prices


def test_quotas_mark_what_cant_be_launched(site: Site) -> None:
    def marked() -> set[str]:
        found = site.backend.offers()
        of = [each for each in found if each.region == "us-central1" and each.availability is Availability.no_quota]
        return {f"{each.instance.name}{'/spot' if each.instance.resources.spot else ''}" for each in of}

    assert marked() == {"a2-highgpu-1g"}, "its quota is 0, and that of spot machines isn't"
    site.fake.script.limits["N2_CPUS us-central1"] = 4
    site.clock.passes(700)  # what regions have is known for a while
    assert marked() == {"a2-highgpu-1g", "n2-standard-8", "n2-standard-8/spot"}
    with pytest.raises(QuotaExceeded, match="N2_CPUS"):
        list(site.backend.create(site.request(type="n2-standard-8")))


def test_what_is_paid_for_by_a_reservation_is_launched_into_it(site: Site) -> None:
    name = site.fake.reserve("us-central1-c", "a3-megagpu-8g", 1)
    (offer,) = [each for each in site.backend.offers() if each.reservation == name]
    assert offer.availability_zones == ("us-central1-c",)
    anywhere = ("us-central1-a", "us-central1-c")
    list(site.backend.create(replace(request_for(offer), reservation=name, zones=anywhere)))
    assert [each.path["zone"] for each in site.fake.calls_of("instances.insert")] == ["us-central1-c"]
    assert site.fake.in_use(name) == 1
    (full,) = [each for each in site.backend.offers() if each.reservation == name]
    assert full.availability is Availability.unknown


def test_a_dense_reservation_ends_with_its_machines(site: Site) -> None:
    ends = "2026-11-18T16:00:00Z"
    more = {"deploymentType": "DENSE", "deleteAtTime": ends, "resourcePolicies": {"p": "x/resourcePolicies/dense"}}
    name = site.fake.reserve("us-central1-c", "n2-standard-2", 1, **more)
    site.fake.books.add("policy", (0, "READY"), region="us-central1", name="dense", body={"name": "dense"})
    (offer,) = [each for each in site.backend.offers() if each.reservation == name]
    assert offer.terms.ends_at == 1_795_017_600 * SECOND
    request = replace(request_for(offer), reservation=name, placement_group=Handle(kind="group", id="own"))
    made = list(site.backend.create(request))
    body = site.provider.machine(made).facts["body"]
    assert body["scheduling"]["provisioningModel"] == "RESERVATION_BOUND"
    assert body["resourcePolicies"] == [f"projects/{site.config.project_id}/regions/us-central1/resourcePolicies/dense"]
    site.clock.passes(60)
    soon = {"resourceStatus": {"scheduling": {"terminationTimestamp": ends}}}
    site.provider.machine(made).facts["shown"] = soon
    assert not site.backend.describe(made).interrupted
    site.clock.at = 1_795_017_600 * SECOND - 300 * SECOND
    assert site.backend.describe(made).reclaim_at == 1_795_017_600 * SECOND
    with pytest.raises(Unfit, match=f"{name} ends"):
        list(site.backend.create(replace(request_for(offer, "two"), reservation=name)))


CALENDAR = {"begins": "2026-11-18T12:00:00Z", "ends": "2026-11-18T16:00:00Z", "reservationMode": "CALENDAR"}


def reserved(site: Site, name: str) -> list[Offer]:
    return [each for each in site.backend.offers() if each.reservation == name]


def test_a_future_reservation_is_known_before_it_begins_and_used_until_it_ends(site: Site) -> None:
    name = site.fake.reserve_ahead("us-central1-c", "n2-standard-2", **CALENDAR)
    (offer,) = reserved(site, name)
    assert offer.availability is Availability.not_available and offer.availability_zones == ("us-central1-c",)
    assert (offer.terms.starts_at, offer.terms.ends_at) == (1_795_003_200 * SECOND, 1_795_017_600 * SECOND)
    with pytest.raises(Unfit, match=rf"{name} can't be used: it begins at 2026-11-18 12:00 UTC"):
        list(site.backend.create(replace(request_for(offer), reservation=name)))
    made = site.fake.fulfil(name)
    (offer,) = reserved(site, name)
    assert offer.availability is Availability.available
    assert (offer.terms.starts_at, offer.terms.ends_at) == (None, 1_795_017_600 * SECOND)
    handles = list(site.backend.create(replace(request_for(offer), reservation=name)))
    body = site.provider.machine(handles).facts["body"]
    assert body["reservationAffinity"]["values"] == [made] and site.fake.in_use(made) == 1
    assert body["scheduling"]["provisioningModel"] == "RESERVATION_BOUND"
    assert [each.terms.ends_at for each in reserved(site, made)] == [offer.terms.ends_at], "by either name"
    site.clock.at = 1_795_017_600 * SECOND
    assert reserved(site, name) == []


def test_a_future_reservation_is_still_to_come_while_the_one_that_is_made_of_it_doesnt_show(site: Site) -> None:
    name = site.fake.reserve_ahead("us-central1-c", "n2-standard-2", status="FULFILLED", **CALENDAR)
    site.clock.at = 1_795_003_200 * SECOND + MINUTE
    (offer,) = reserved(site, name)
    assert offer.availability is Availability.not_available
    site.clock.at += HOUR
    assert reserved(site, name) == [], "it was deleted"


def test_a_future_reservation_that_never_comes_isnt_offered(site: Site) -> None:
    names = [
        site.fake.reserve_ahead("us-central1-c", "n2-standard-2", **CALENDAR, **more)
        for more in (
            {"status": "DECLINED"},
            {"status": "PENDING_APPROVAL"},
            {"specificReservationRequired": False},
        )
    ]
    assert not any(each.reservation for each in site.backend.offers())
    with pytest.raises(Unfit, match=f"{names[0]} can't be used: it isn't there"):
        list(site.backend.create(replace(site.request(), reservation=names[0])))


def test_a_future_reservation_of_the_usual_mode_lasts_as_its_reservation_does(site: Site) -> None:
    name = site.fake.reserve_ahead("us-central1-c", "n2-standard-2", **{**CALENDAR, "reservationMode": "DEFAULT"})
    site.fake.fulfil(name)
    (offer,) = reserved(site, name)
    body = site.provider.machine(list(site.backend.create(replace(request_for(offer), reservation=name)))).facts["body"]
    assert body["scheduling"]["provisioningModel"] == "STANDARD" and offer.terms.ends_at is None


def test_reservations_are_offered_to_who_may_not_read_future_ones(site: Site) -> None:
    name = site.fake.reserve("us-central1-c", "n2-standard-2", 1)
    text = "Required 'compute.futureReservations.list' permission for 'projects/p'"
    site.refuses("futureReservations.aggregatedList", 403, "forbidden", text)
    assert len(reserved(site, name)) == 1


# --- disks and groups -------------------------------------------------------------------------------------------------


def volume(site: Site) -> Handle:
    handle = site.backend.create_volume(volume_request("us-central1"))
    site.clock.passes(15)
    return handle


def test_a_volume_is_there_once_and_goes(site: Site) -> None:
    site.fake.script.lag = 9 * SECOND
    site.fake.script.faults.append(Fault("disks.insert", Cut, "after"))
    request = volume_request("us-central1")
    with pytest.raises(Transient):
        site.backend.create_volume(request)
    made = site.backend.create_volume(request)
    with pytest.raises(Transient):
        site.backend.describe_volume(made)
    site.clock.passes(15)
    assert site.backend.create_volume(request) == made
    assert [each.handle for each in site.backend.list_owned_volumes()] == [made]
    assert made not in [each.handle for each in site.backend.list_owned()]
    price = site.backend.describe_volume(made).price
    assert price == pytest.approx(0.1 * 10), "a month of the smallest"
    with pytest.raises(Gone):
        for _ in range(5):
            site.backend.delete_volume(made)
            site.clock.passes(5)
    assert not list(site.fake.books.existing("disk"))


def test_a_volume_isnt_deleted_with_its_machine(site: Site) -> None:
    handle = volume(site)
    request = replace(site.request(), zones=(handle.data["zone"],))
    machine = list(site.backend.create(request))
    site.clock.passes(60)
    site.backend.attach_volume(handle, machine)
    with pytest.raises(InUse):
        site.backend.delete_volume(handle)
    ended(site, machine)
    assert site.backend.describe_volume(handle).state == "available"


def test_a_label_offers_a_disk_to_projects(site: Site) -> None:
    labels = {"dstack-projects": "main", "dstack-projects-2": "research", "team": "web"}
    body = {"sizeGb": "50", "type": "zones/us-central1-b/diskTypes/pd-balanced", "labels": labels}
    site.fake.books.add("disk", (0, "READY"), zone="us-central1-b", name="imagenet", body=body, on={})
    found = site.backend.register_volume("imagenet", "us-central1", "")
    assert (found.offered_to, found.zone) == (("main", "research"), "us-central1-b")


def test_a_group_that_nobody_knows_is_listed_and_goes(site: Site) -> None:
    request = site.request()
    site.fake.script.faults.append(Fault("resourcePolicies.insert", Cut, "after"))
    with pytest.raises(Transient):
        site.backend.create_group(group_request_for(request.offer))
    (owned,) = site.backend.list_owned_groups()
    assert owned.handle.id == group_request_for(request.offer).name
    machine = list(site.backend.create(inside(request, owned.handle)))
    site.clock.passes(60)
    with pytest.raises(InUse):
        site.backend.delete_group(owned.handle)
    ended(site, machine)
    with pytest.raises(Gone):
        for _ in range(5):
            site.backend.delete_group(owned.handle)
            site.clock.passes(5)
    assert not list(site.fake.books.existing("policy"))


def test_e2_cant_be_grouped(site: Site) -> None:
    with pytest.raises(Unfit, match="e2-medium"):
        site.backend.create_group(group_request_for(site.offers("e2-medium")[0]))
    assert not site.fake.calls_of("resourcePolicies.insert")


# --- the mistakes -----------------------------------------------------------------------------------------------------


def test_there_are_mistakes_for_most_checks() -> None:
    assert len(MISTAKES) >= 40 and len({each.check for each in MISTAKES}) >= 20


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_the_mistake_is_noticed(mistake: Mistake) -> None:
    known = {**vars(test_gpudirect), **vars(test_interfaces), **vars(test_traps), **globals()}
    check = known[f"test_{mistake.check}"]
    with made(mistake) as module:
        site = Site(module("backend").GcpBackend, module("client").GcpClients)
        try:
            check(site)
        except (NameError, ImportError, SyntaxError):
            raise
        except (Exception, pytest.fail.Exception):
            return
    pytest.fail("nobody noticed")
