"""What Google does oddly, by its users' reports, and what the backend does about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chalicelib.backends.spi import CreateRequest, Machine
from chalicelib.domain.instances import TRYING, Handle
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.errors import (
    BackendError,
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
from tests.backends.conformance.requests import volume_request
from tests.backends.conformance.suite import end_all
from tests.backends.fakes.script import Answer, Cut, Fault
from tests.backends.gcp.conftest import Site
from tests.backends.gcp.instances import EXHAUSTED, exhausted, over_quota, stock
from tests.backends.gcp.operations import refusal

RULE = "projects/my-project/global/firewalls/dstack"


def bought(site: Site, request: CreateRequest) -> list[Handle]:
    return list(site.backend.create(request))


def vm(handles: list[Handle]) -> Handle:
    return next(each for each in handles if each.kind == "vm")


def fails_with(site: Site, *errors: dict[str, Any], status: int = 0, times: int = 1) -> None:
    """The next launches are accepted, and their operations fail so."""

    def lie(body: Any) -> Any:
        wrong = {"error": {"errors": list(errors)}, "status": "DONE", "endTime": body["insertTime"]}
        return {**body, **wrong, **({"httpErrorStatusCode": status} if status else {})}

    site.fake.script.faults.append(Fault("zoneOperations.wait", lie, times=times))


# --- there is no room -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["ZONE_RESOURCE_POOL_EXHAUSTED", EXHAUSTED])
def test_a_machine_that_was_accepted_and_vanishes_had_no_room(site: Site, code: str) -> None:
    """1, 2: it is seen stopping, or isn't there any more, and only its operation says why."""
    request = site.request()
    site.fake.short[request.offer.instance.name] = code
    made = bought(site, request)
    assert site.backend.describe(made).state == "pending"
    site.clock.passes(12)
    with pytest.raises((Gone, Transient)):
        site.backend.describe(made)
    site.clock.passes(10)
    with pytest.raises(Gone, match=code) as gone:
        site.backend.describe(made)
    assert gone.value.refused is InsufficientCapacity
    end_all(site.backend, site.clock.passes, made)


def test_a_zone_that_has_room_is_said(site: Site) -> None:
    """3: the operation's details name it."""
    fails_with(site, exhausted(EXHAUSTED, "us-central1-a", "n2-standard-2", "us-central1-f"), times=3)
    with pytest.raises(InsufficientCapacity, match="there is some in us-central1-f"):
        bought(site, site.request())


def test_503_of_an_operation_is_a_lack_of_room_and_of_a_call_an_unknown_outcome(site: Site) -> None:
    """4, 12."""
    request = site.request()
    fails_with(site, exhausted(EXHAUSTED, "us-central1-a", "n2-standard-2"), status=503)
    handles = bought(site, request)
    assert handles[0].kind == TRYING and vm(handles).data["zone"] == "us-central1-b"
    lost = site.request("lost")
    site.fake.script.faults.append(
        Fault("instances.insert", refusal(503, "backendError", "Internal error").answer, "after")
    )
    with pytest.raises(Transient):
        bought(site, lost)
    before = site.provider.existing()
    assert {each.id for each in bought(site, lost)} <= before, "the same request finds the machine"


def test_an_operation_that_is_done_and_has_errors_has_failed_without_a_status(site: Site) -> None:
    """Google's own library takes it for a success."""
    fails_with(site, {"code": "QUOTA_EXCEEDED", "message": "Quota 'CPUS' exceeded."})
    with pytest.raises(QuotaExceeded):
        bought(site, site.request())


def test_a_machine_that_is_taken_back_while_it_starts_had_no_room(site: Site) -> None:
    """7, and what an operation calls it instead."""
    for code, text in (
        ("INTERNAL_STOP", "Instance failed to start due to preemption."),
        ("UNSUPPORTED_OPERATION", "The operation is not supported."),
    ):
        fails_with(site, {"code": code, "message": text}, times=3)
        with pytest.raises(InsufficientCapacity):
            bought(site, site.request(code.lower(), spot=True))


def test_all_errors_of_an_operation_are_read(site: Site) -> None:
    """5: the first one is only what follows from the second."""
    first = {"code": "VM_MIN_COUNT_NOT_REACHED", "message": "Requested minimum count of 2 VMs could not be created."}
    fails_with(site, first, over_quota("SSD_TOTAL_GB", 500, "us-central1"))
    with pytest.raises(QuotaExceeded, match=r"SSD_TOTAL_GB.*500"):
        bought(site, site.request())


@pytest.mark.parametrize("metric", ["SSD_TOTAL_GB", "IN_USE_ADDRESSES", "INSTANCES"])
def test_a_quota_of_what_nobody_has_asked_for_is_named_with_its_limit(site: Site, metric: str) -> None:
    """6."""
    site.fake.script.limits[f"{metric} us-central1"] = 0
    with pytest.raises(QuotaExceeded, match=rf"{metric}.*Limit: 0\.0 in region us-central1"):
        bought(site, site.request())


@pytest.mark.parametrize("metric", ["CPUS_ALL_REGIONS", "GPUS_ALL_REGIONS"])
def test_a_quota_of_all_regions_marks_offers(site: Site, metric: str) -> None:
    """6: in a new project it is 0."""
    site.fake.script.limits[metric] = 0
    marked = {
        each.availability.value for each in site.backend.offers() if each.instance.resources.gpus or "CPUS" in metric
    }
    assert marked == {"no_quota"}
    with pytest.raises(QuotaExceeded, match=f"{metric}.*globally"):
        bought(site, site.request(name="g", type="g2-standard-4"))


def test_a_type_that_a_zone_lacks_is_looked_for_in_the_next(site: Site) -> None:
    """16: "not found" instead of a lack of room."""
    request = site.request(type="a3-megagpu-8g", spot=True)
    request = replace(request, zones=("us-central1-b", "us-central1-c"))
    assert vm(bought(site, request)).data["zone"] == "us-central1-c"
    t4 = site.request("t4", type="n1-standard-4", cards=1)
    t4 = replace(t4, zones=("us-central1-c", "us-central1-b"))
    assert vm(bought(site, t4)).data["zone"] == "us-central1-b"


def test_where_no_zone_has_the_type_it_doesnt_fit(site: Site) -> None:
    request = replace(site.request(type="a3-megagpu-8g", spot=True), zones=("us-central1-b",))
    with pytest.raises(Unfit, match="does not exist in zone"):
        bought(site, request)


# --- what is there ----------------------------------------------------------------------------------------------------


def test_a_rule_that_somebody_else_has_just_made_is_ours(site: Site) -> None:
    """8: two purchases at once."""
    request = replace(site.request(), open_ports=(80, 443))
    bought(site, request)
    site.refuses("firewalls.get", 404, "notFound", f"The resource '{RULE}' was not found", times=9)
    other = site.new(site.config)
    assert list(other.create(replace(site.request("two"), open_ports=(80, 443))))
    assert site.provider.open_ports(bought(site, request)) == {80, 443}


def test_a_disk_that_has_the_name_already_is_no_machine(site: Site) -> None:
    """10: the boot disk takes the machine's name."""
    request = site.request()
    body = {"sizeGb": "10", "type": "zones/us-central1-a/diskTypes/pd-balanced"}
    site.fake.books.add("disk", (0, "READY"), zone="us-central1-a", name=request.name, body=body, on={})
    with pytest.raises(BackendError, match="already exists"):
        bought(site, request)


def test_a_stopped_machine_is_gone_to_us_and_is_removed(site: Site) -> None:
    """22: it keeps disk and name, and costs money."""
    made = bought(site, site.request())
    site.clock.passes(60)
    site.fake.goes(site.provider.machine(made), (0, "TERMINATED"))
    with pytest.raises(Gone, match="TERMINATED"):
        site.backend.describe(made)
    assert [each.handle for each in site.backend.list_owned()] == [vm(made)]
    end_all(site.backend, site.clock.passes, made)
    assert site.provider.existing() == set()


def test_a_list_without_a_zone_is_no_list(site: Site) -> None:
    """21: what isn't in it would be taken for gone."""
    bought(site, site.request())
    site.fake.unreachable.add("us-central1-a")
    with pytest.raises(Transient, match="us-central1-a"):
        list(site.backend.list_owned())
    with pytest.raises(Transient, match="us-central1-a"):
        site.backend.offers()
    assert list(site.backend.list_owned(region="europe-west4")) == [], "of another region it is"


def test_a_protected_machine_says_so(site: Site) -> None:
    made = bought(site, site.request())
    site.provider.machine(made).facts["body"]["deletionProtection"] = True
    with pytest.raises(MissingPermission, match="protected against deletion"):
        site.backend.terminate(vm(made))


def test_the_policy_of_a_burst_is_the_next_minute(site: Site) -> None:
    """23: the limit is of a minute of the clock, and the answer's status is 403. Where the machine is isn't lost."""
    request = site.request()
    site.fake.script.faults.append(
        Fault("zoneOperations.wait", refusal(403, "rateLimitExceeded", "Read requests").answer)
    )
    made = bought(site, request)
    assert vm(made)
    for answer in (
        refusal(403, "rateLimitExceeded", "Quota exceeded for quota group 'ReadGroup'").answer,
        Answer(429, {"error": {"code": 429, "message": "Quota exceeded", "status": "RESOURCE_EXHAUSTED"}}),
    ):
        site.fake.script.faults.append(Fault("instances.get", answer))
        with pytest.raises(Throttled) as throttled:
            site.backend.describe(made)
        assert 0 < throttled.value.retry_after <= 61
    left = MINUTE - site.clock.now() % MINUTE
    site.refuses("instances.get", 403, "rateLimitExceeded", "x")
    with pytest.raises(Throttled) as throttled:
        site.backend.describe(made)
    assert throttled.value.retry_after * SECOND >= left


def test_a_cut_connection_is_an_unknown_outcome(site: Site) -> None:
    request = site.request()
    site.fake.script.faults.append(Fault("instances.insert", Cut, "after"))
    with pytest.raises(Transient, match="has no answer"):
        bought(site, request)
    assert {each.id for each in bought(site, request)} == site.provider.existing()


# --- what is taken back -----------------------------------------------------------------------------------------------


def test_a_spot_machine_is_deleted_when_it_is_taken_back(site: Site) -> None:
    made = bought(site, site.request(spot=True))
    site.clock.passes(60)
    site.fake.preempted(site.provider.machine(made))
    found = site.backend.describe(made)
    assert (found.state, found.interrupted, found.message) == ("running", True, "Google takes it back")
    site.clock.passes(31)
    with pytest.raises(Gone, match="Google has taken it back") as gone:
        site.backend.describe(made)
    assert gone.value.refused is InsufficientCapacity and site.provider.existing() == set()


def test_a_host_that_is_to_be_maintained_ends_its_machine(site: Site) -> None:
    """Of machines with GPUs, which can't move; known long ahead."""
    made = bought(site, site.request(type="g2-standard-4"))
    site.clock.passes(60)
    at = "2026-11-18T17:00:00.000-08:00"
    site.provider.machine(made).facts["shown"] = {"resourceStatus": {"upcomingMaintenance": {"windowStartTime": at}}}
    assert not site.backend.describe(made).interrupted
    site.clock.at = 1_795_050_000 * SECOND - 30 * MINUTE
    found = site.backend.describe(made)
    assert (found.interrupted, found.reclaim_at) == (True, 1_795_050_000 * SECOND)


# --- what is sent -----------------------------------------------------------------------------------------------------


def test_spot_is_asked_for_as_google_wants_it(site: Site) -> None:
    made = bought(site, site.request(spot=True))
    assert site.provider.machine(made).facts["body"]["scheduling"] == {
        "provisioningModel": "SPOT",
        "instanceTerminationAction": "DELETE",
        "onHostMaintenance": "TERMINATE",
        "automaticRestart": False,
    }


def test_open_reservations_arent_used_up(site: Site) -> None:
    body = site.provider.machine(bought(site, site.request())).facts["body"]
    assert body["reservationAffinity"] == {"consumeReservationType": "NO_RESERVATION"}


@pytest.mark.parametrize(("key", "value"), [("A B", "x"), ("team", "Research"), ("1st", "x"), ("team", "x" * 64)])
def test_a_tag_that_is_no_label_is_refused_before_it_is_sent(site: Site, key: str, value: str) -> None:
    """Google's library sends it."""
    request = site.request()
    with pytest.raises(Unfit, match=f"`{key}`"):
        bought(site, replace(request, tags=(*request.tags, (key, value))))
    assert not site.fake.calls_of("instances.insert")


def test_region_and_zone_of_ai_zones(site: Site) -> None:
    """Their names have one part more."""
    from chalicelib.backends.gcp.places import region_of

    assert [region_of(zone) for zone in ("us-central1-a", "us-central1-ai1a")] == ["us-central1"] * 2


def test_names_of_rules_fit_however_the_vpc_is_called(site: Site) -> None:
    name = "v" * 63
    site.fake.networks[name] = {"us-central1"}
    backend = site.new(site.configured(vpc_name=name))
    made = list(backend.create(replace(site.request(), open_ports=(80, 443))))
    assert site.provider.open_ports(made) == {80, 443}


def test_in_anothers_vpc_no_rule_is_made(site: Site) -> None:
    config = site.configured(vpc_project_id="network-host", public_ips=False)
    backend = site.new(config)
    backend.check()
    made = list(backend.create(site.request()))
    body = site.provider.machine(made).facts["body"]
    assert body["networkInterfaces"][0]["subnetwork"].startswith("projects/network-host/regions/us-central1/")
    assert "accessConfigs" not in body["networkInterfaces"][0] and body["tags"]["items"]
    assert not site.fake.calls_of("firewalls.insert") and not site.fake.calls_of("routers.list")
    site.clock.passes(60)
    found = backend.describe(made)
    assert isinstance(found, Machine) and found.hostname == found.internal_ip


# --- credentials and check --------------------------------------------------------------------------------------------


def test_401_is_wrong_credentials(site: Site) -> None:
    site.fake.script.faults.append(
        Fault("projects.get", refusal(401, "authError", "Invalid Credentials").answer, times=5)
    )
    with pytest.raises(InvalidCredentials):
        site.backend.check()


def test_check_names_each_missing_permission(site: Site) -> None:
    site.fake.lacking |= {"compute.instances.create", "compute.firewalls.create"}
    with pytest.raises(MissingPermission, match=r"compute\.firewalls\.create, compute\.instances\.create"):
        site.backend.check()


def test_check_knows_project_regions_subnets_and_nat(site: Site) -> None:
    def checked(**other: Any) -> None:
        site.new(site.configured(**other)).check()

    with pytest.raises(Unfit, match="no project elsewhere"):
        site.new(site.configured(project_id="elsewhere")).check()
    with pytest.raises(Unfit, match="no region moon-1"):
        checked(regions=["moon-1"])
    site.fake.networks["training"] = {"us-central1"}
    with pytest.raises(Unfit, match="no subnetwork that machines can use in europe-west4"):
        checked(regions=["europe-west4", "us-central1"])
    with pytest.raises(Unfit, match="no subnetwork other in us-central1"):
        checked(regions=["us-central1"], subnetworks={"us-central1": "other"})
    checked()
    with pytest.raises(Unfit, match="no way out"):
        checked(public_ips=False)
    checked(public_ips=False, nat_check=False)
    site.fake.nats.add("us-central1")
    checked(public_ips=False)


def test_a_resource_in_use_is_in_use(site: Site) -> None:
    """9: and an error's text decides where its code doesn't."""
    made = vm(bought(site, site.request()))
    with pytest.raises(InUse):
        site.backend.terminate(made.with_(kind="disk"))


def test_offers_of_types_that_the_image_cant_drive_arent_made(site: Site) -> None:
    names = {each.instance.name for each in site.backend.offers()}
    assert "c4a-standard-4" not in names, "of another architecture"
    assert "a4-highgpu-8g" not in names, "it needs networks of its own"


def test_what_is_sold_as_spot_alone_isnt_offered_otherwise(site: Site) -> None:
    """18."""
    sold = [each for each in site.backend.offers() if each.instance.name == "a3-highgpu-1g"]
    assert {each.instance.resources.spot for each in sold} == {True}


def test_n1_has_as_many_t4s_as_its_cpus_allow_where_there_are_some(site: Site) -> None:
    """17, 16."""
    of: dict[str, set[int]] = {}
    for offer in (each for each in site.backend.offers() if each.instance.name.startswith("n1-")):
        of.setdefault(offer.instance.name, set()).add(len(offer.instance.resources.gpus))
        assert set(offer.availability_zones or ()) <= {"us-central1-a", "us-central1-b", "europe-west4-b"}
    assert of == {"n1-standard-4": {1, 2, 4}, "n1-standard-32": {2, 4}}
    made = bought(site, site.request(type="n1-standard-32", cards=4))
    (card,) = site.provider.machine(made).facts["body"]["guestAccelerators"]
    assert (card["acceleratorType"].rpartition("/")[2], card["acceleratorCount"]) == ("nvidia-tesla-t4", 4)


def test_a_rule_of_the_organisation_doesnt_fit(site: Site) -> None:
    """412, as of a label that somebody else has changed; and nobody uses anything."""
    text = "Constraint constraints/compute.vmExternalIpAccess violated for project my-project."
    site.refuses("instances.insert", 412, "conditionNotMet", text)
    with pytest.raises(Unfit, match="vmExternalIpAccess"):
        bought(site, site.request())


def test_a_disk_that_is_being_created_isnt_attached_yet(site: Site) -> None:
    """11."""
    made = bought(site, replace(site.request(), zones=("us-central1-a",)))
    site.clock.passes(60)
    disk = site.backend.create_volume(volume_request("us-central1"))
    with pytest.raises(NotYet):
        site.backend.attach_volume(disk, made)
    site.clock.passes(10)
    site.backend.attach_volume(disk, made)
    assert site.backend.describe_volume(disk).attached_to


def test_a_spot_machine_that_vanishes_while_it_starts_had_no_room(site: Site) -> None:
    request = site.request(spot=True)
    site.fake.short[request.offer.instance.name] = "UNSUPPORTED_OPERATION"
    made = bought(site, request)
    site.clock.passes(30)
    with pytest.raises(Gone) as gone:
        site.backend.describe(made)
    assert gone.value.refused is InsufficientCapacity


def test_stock_is_of_a_zone(site: Site) -> None:
    request = site.request()
    site.fake.script.limits[stock("us-central1-a", "n2-standard-2")] = 0
    assert vm(bought(site, request)).data["zone"] == "us-central1-b"
