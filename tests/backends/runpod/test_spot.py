"""Spot pods: what is bid, how they are rented, and how Runpod takes them back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from chalicelib.backends.runpod.backend import RunpodBackend
from chalicelib.backends.runpod.errors import TABLE, graphql_failure
from chalicelib.backends.spi import ContainerMount, CreateRequest, IncompleteOffers, RegistryLogin
from chalicelib.domain.instances import Handle
from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.domain.offers import Offer
from chalicelib.domain.specs.resources import ResourcesSpec
from chalicelib.errors import (
    BackendError,
    ContainerFailed,
    Gone,
    InsufficientCapacity,
    MissingPermission,
    NotYet,
    QuotaExceeded,
    Transient,
    Unfit,
)
from tests.backends.clock import Clock
from tests.backends.conformance.requests import request_for, volume_request
from tests.backends.fakes.script import Answer, Cut, Fault
from tests.backends.runpod.fake import CREDIT, H100, Runpod, stock
from tests.backends.runpod.provider import CONFIG, NO_IMAGE, client


def offers(backend: RunpodBackend, spot: bool | None = True, gpu: str = "H100:2", **more: Any) -> Sequence[Offer]:
    resources = ResourcesSpec.model_validate({"gpu": gpu})
    return backend.offers_for(OfferRequest(resources=resources, spot=spot, **more))


@pytest.fixture
def wanted(backend: RunpodBackend) -> CreateRequest:
    return request_for(next(each for each in offers(backend) if each.region == "US-KS-2"))


def stopped(fake: Runpod, clock: Clock, change: str) -> None:
    (pod,) = fake.books.existing("vm")
    pod.goes(clock.now(), (0, "EXITED"))
    pod.facts["change"] = change


# --- what is offered --------------------------------------------------------------------------------------------------


def test_the_lowest_bid_of_each_data_center_is_offered(backend: RunpodBackend, fake: Runpod) -> None:
    fake.bids[H100, "EU-SE-1"] = 0.9
    fake.script.limits[stock(H100, "CA-MTL-3")] = 1
    found = {each.region: each for each in offers(backend)}
    assert {region: each.price for region, each in found.items()} == {"EU-SE-1": 1.8, "US-KS-2": 2.69}
    one = found["EU-SE-1"]
    assert one.backend_data == {"bid": 0.9} and one.instance.resources.spot and "/spot/" in one.key
    assert (one.instance.resources.cpus, one.instance.resources.memory_mib) == (40, 250 * 1024)
    both = offers(backend, None)
    assert [each for each in both if each.instance.resources.spot] == list(found.values())
    assert {each.region for each in both if not each.instance.resources.spot} == {"EU-SE-1", "US-KS-2"}
    assert not any(each.instance.resources.spot for each in offers(backend, False))
    assert not fake.calls_of("listCpuTypes"), "CPU pods are no spot pods"
    assert not offers(backend, gpu="H100:2", max_price=1.7) and len(offers(backend, max_price=1.9)) == 1


def test_only_the_places_that_are_wanted_are_asked_for_and_once(backend: RunpodBackend, fake: Runpod) -> None:
    for _ in range(2):
        assert {each.region for each in offers(backend, regions=("us-ks-2",))} == {"US-KS-2"}
    prices, _sizes = (call.query for call in fake.calls_of("gpuTypes"))
    assert prices == {"count": 2, "secure": True, "place0": "US-KS-2"}
    assert len(fake.calls_of("listGpuTypes")) == 1


def test_whatever_the_older_api_says_pods_on_demand_are_offered(backend: RunpodBackend, fake: Runpod) -> None:
    fake.graphql = False
    assert not isinstance(offers(backend, False), IncompleteOffers)
    found = offers(backend, None)
    assert len(found) == 3 and isinstance(found, IncompleteOffers)
    assert found.missing.startswith("no spot pods: ") and "retired" in found.missing
    with pytest.raises(BackendError, match="retired"):
        offers(backend)


def test_the_community_cloud_has_bids_of_its_own(fake: Runpod, clock: Clock) -> None:
    config = CONFIG.with_(community_cloud=True, regions=("COMMUNITY",))
    backend = RunpodBackend(config, client(fake, clock), clock.now)
    (one,) = offers(backend)
    assert (one.region, one.price, one.terms.grants) == ("COMMUNITY", 1.99, ())
    list(backend.create(request_for(one)))
    (call,) = fake.calls_of("podRentInterruptable")
    assert call.body["cloudType"] == "COMMUNITY" and "dataCenterId" not in call.body


@pytest.mark.parametrize("status", [401, 403])
def test_a_key_without_the_older_api_is_refused_when_it_is_checked(
    backend: RunpodBackend, fake: Runpod, status: int
) -> None:
    fake.script.faults.append(Fault("myself", Answer(status, {"title": "", "detail": "no access"})))
    with pytest.raises(MissingPermission, match="GraphQL API") as refused:
        backend.check()
    assert "GraphQL" in refused.value.hint
    fake.graphql = False
    backend.check()


# --- how it is rented -------------------------------------------------------------------------------------------------


def test_it_is_rented_for_its_bid_with_what_its_job_has_and_with_no_disk_that_outlives_it(
    backend: RunpodBackend, fake: Runpod, wanted: CreateRequest, clock: Clock
) -> None:
    volume = backend.create_volume(volume_request("US-KS-2"))
    assert wanted.container is not None
    login = RegistryLogin("team", "pa55-of-the-registry")
    container = replace(wanted.container, login=login, mounts=(ContainerMount(volume, "/data"),))
    made = list(backend.create(replace(wanted, container=container)))
    (call,) = fake.calls_of("podRentInterruptable")
    expected = {
        "bidPerGpu": 1.345,
        "gpuCount": 2,
        "dataCenterId": "US-KS-2",
        "volumeInGb": 0,
        "networkVolumeId": volume.id,
        "volumeMountPath": "/data",
        "containerRegistryAuthId": made[0].id,
        "ports": "",
    }
    assert expected.items() <= call.body.items()
    args = json.loads(call.body["dockerArgs"])
    assert (*args["entrypoint"], *args["cmd"]) == container.command
    clock.passes(60)
    assert backend.describe(made).state == "running"
    assert [each.handle.id for each in backend.list_owned(wanted.instance_id, "US-KS-2")] == [
        each.id for each in reversed(made)
    ]
    assert list(backend.create(replace(wanted, container=container)))[1].id == made[1].id, "found by its name"


def test_one_whose_answer_is_lost_is_found_by_its_name(
    backend: RunpodBackend, fake: Runpod, wanted: CreateRequest
) -> None:
    fake.script.faults.append(Fault("podRentInterruptable", Cut, "after"))
    with pytest.raises(Transient):
        list(backend.create(wanted))
    (made,) = backend.create(wanted)
    assert [made.id] == [each.id for each in fake.books.existing("vm")]


def test_a_bid_that_is_too_low_by_now_is_a_lack_of_capacity_and_the_next_offers_are_new(
    backend: RunpodBackend, fake: Runpod, wanted: CreateRequest
) -> None:
    fake.bids[H100, "US-KS-2"] = 1.5
    with pytest.raises(InsufficientCapacity, match=r"for this bid left.*lower than the minimum"):
        list(backend.create(wanted))
    assert {each.region: each.price for each in offers(backend)}["US-KS-2"] == 3.0
    fake.script.limits[CREDIT] = 0
    with pytest.raises(QuotaExceeded):
        list(backend.create(request_for(next(each for each in offers(backend) if each.region == "US-KS-2"))))


@pytest.mark.parametrize(
    ("text", "code", "kind"),
    [
        (
            "There are no longer any instances available with the requested specifications.",
            "RUNPOD",
            InsufficientCapacity,
        ),
        ("no luck", "SUPPLY_CONSTRAINT", InsufficientCapacity),
        ("Your balance is insufficient to rent this pod.", "RUNPOD", QuotaExceeded),
        ('Field "bid" is not defined', "GRAPHQL_VALIDATION_FAILED", Unfit),
        ("no", "FORBIDDEN", MissingPermission),
        ("Something went wrong. Please try again later or contact support.", "INTERNAL_SERVER_ERROR", Transient),
    ],
)
def test_the_older_api_refuses_in_texts_and_codes(text: str, code: str, kind: type[BackendError]) -> None:
    body = {"errors": [{"message": text, "path": ["it"], "extensions": {"code": code}}], "data": {"it": None}}
    failure = graphql_failure(200, body)
    assert failure is not None and type(TABLE.error(failure, "POST /graphql")) is kind


def test_an_answer_without_a_pod_is_a_lack_of_capacity_unless_there_is_one(
    backend: RunpodBackend, fake: Runpod, wanted: CreateRequest
) -> None:
    nothing = Answer(200, {"data": {"podRentInterruptable": None}})
    other = replace(wanted, name=f"{wanted.name}-2")
    fake.script.faults.append(Fault("podRentInterruptable", nothing, "after"))
    list(backend.create(wanted))
    fake.script.faults.append(Fault("podRentInterruptable", nothing))
    with pytest.raises(InsufficientCapacity, match="names no pod"):
        list(backend.create(other))
    assert [each.facts["name"] for each in fake.books.existing("vm")] == [wanted.name]


# --- how it is taken back ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "graphql", "reason", "text"),
    [
        ("Exited by Runpod: Fri Nov 27 2026", True, InsufficientCapacity, r"taken .* back \(Exited by Runpod: .*bids"),
        ("Rented by User: Fri Nov 27 2026", True, InsufficientCapacity, r"back: a spot pod"),
        ("Exited by user: Fri Nov 27 2026", True, ContainerFailed, "Somebody has stopped"),
        ("Exited by user: Fri Nov 27 2026", False, InsufficientCapacity, "back: a spot pod"),
    ],
)
def test_who_has_stopped_it_decides(
    backend: RunpodBackend,
    fake: Runpod,
    wanted: CreateRequest,
    clock: Clock,
    change: str,
    graphql: bool,
    reason: type[BackendError],
    text: str,
) -> None:
    made = list(backend.create(wanted))
    clock.passes(60)
    stopped(fake, clock, change)
    fake.graphql = graphql
    with pytest.raises(Gone, match=text) as gone:
        backend.describe(made)
    assert gone.value.refused is reason


def test_a_pod_on_demand_that_runpod_stops_is_an_interruption_of_its_job(
    backend: RunpodBackend, fake: Runpod, clock: Clock
) -> None:
    made = list(backend.create(request_for(offers(backend, False)[0])))
    clock.passes(60)
    stopped(fake, clock, "Exited by Runpod: Fri Nov 27 2026")
    with pytest.raises(Gone, match=r"Runpod has stopped the pod .*maintenance") as gone:
        backend.describe(made)
    assert gone.value.refused is None


def test_one_that_never_started_says_what_its_log_says(
    backend: RunpodBackend, fake: Runpod, wanted: CreateRequest, clock: Clock
) -> None:
    """Runpod stops a pod whose image it can't pull, too, and its words are the same."""
    made = list(backend.create(wanted))
    clock.passes(2)
    stopped(fake, clock, "Exited by Runpod: now")
    clock.passes(20)
    with pytest.raises(Gone, match="taken") as gone:
        backend.describe(made)
    assert gone.value.refused is InsufficientCapacity
    next(fake.books.existing("vm")).facts["log"].append(NO_IMAGE)
    clock.passes(60)
    with pytest.raises(Gone, match="manifest unknown") as gone:
        backend.describe(made)
    assert gone.value.refused is ContainerFailed


def test_why_one_never_started_is_known_before_it_is_judged(
    backend: RunpodBackend, fake: Runpod, wanted: CreateRequest, clock: Clock
) -> None:
    """One call reads few logs."""
    made: list[list[Handle]] = [list(backend.create(request_for(wanted.offer, f"n{n}"))) for n in range(4)]
    for pod in fake.books.existing("vm"):
        pod.goes(clock.now(), (0, "EXITED"))
        pod.facts["log"].append(NO_IMAGE)
    clock.passes(15)
    for last in (NotYet, Gone):
        assert [type(each) for each in backend.describe_several(made)] == [Gone, Gone, Gone, last]


def test_many_that_are_taken_at_once_are_looked_up_at_once(
    backend: RunpodBackend, fake: Runpod, wanted: CreateRequest, clock: Clock
) -> None:
    made: list[list[Handle]] = [list(backend.create(request_for(wanted.offer, f"n{n}"))) for n in range(8)]
    clock.passes(60)
    for pod in fake.books.existing("vm"):
        pod.goes(clock.now(), (0, "EXITED"))
    found = backend.describe_several(made)
    assert [isinstance(each, Gone) and each.refused for each in found] == [InsufficientCapacity] * 8
    assert len(fake.calls_of("myself")) == 1 and not fake.calls_of("getPodLogs")
