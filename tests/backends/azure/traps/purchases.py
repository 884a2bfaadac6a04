"""Capacity, quotas, limits: what stands between a request and its machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chalicelib.domain.instants import SECOND
from chalicelib.domain.offers import Availability
from chalicelib.errors import (
    Gone,
    InsufficientCapacity,
    QuotaExceeded,
    Throttled,
    Transient,
    Unfit,
)
from tests.backends.azure.account import GPU, SMALL, Account
from tests.backends.azure.fake.shop import over, quota, stock
from tests.backends.azure.traps.common import failing
from tests.backends.conformance.requests import volume_request
from tests.backends.fakes.script import Answer, Cut, Fault

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


def a_machine_whose_time_isnt_told_isnt_gone(account: Account) -> None:
    account.fake.script.lag, account.fake.untimed = 40 * SECOND, True
    handles = account.made()
    account.clock.passes(10)
    for call in (lambda: account.backend.describe(handles), lambda: account.backend.terminate(handles[0])):
        with pytest.raises(Transient, match="doesn't show"):
            call()


def nothing_is_bought_late_in_a_step(account: Account) -> None:
    """Its answer would come when it counts as lost for good. What was prepared meanwhile is there the next time."""
    request, account.takes = account.request(), 8.0
    with pytest.raises(Transient, match="Azure answers slowly: what comes before the purchase took"):
        list(account.backend.create(request))
    assert account.sent("VirtualMachines_create_or_update") == 0
    for _ in range(3):
        try:
            assert list(account.backend.create(request))
            return
        except Transient:
            continue
    pytest.fail("it is never bought")


def no_volume_is_bought_late_in_a_step(account: Account) -> None:
    account.takes = 15.0
    with pytest.raises(Transient, match="Azure answers slowly"):
        account.backend.create_volume(volume_request("westeurope"))
    assert account.sent("Disks_create_or_update") == 0
    account.takes = 8.0
    assert account.backend.create_volume(volume_request("westeurope"))


def each_zone_has_a_step_of_its_own(account: Account) -> None:
    account.made("first")
    for number in "12":
        account.fake.script.limits[stock("westeurope", number, SMALL, spot=True)] = 0
    request, account.takes = account.request(spot=True), 16.0
    assert list(account.backend.create(request))[-1].data["zone"] == "westeurope-3"


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
