"""What Nebius sells, at which price, and in which of its projects things are."""

from __future__ import annotations

import pytest

from chalicelib.backends.nebius.backend import NebiusBackend
from chalicelib.backends.spi import Machine
from chalicelib.domain.offers import Availability
from chalicelib.errors import (
    Gone,
    MissingPermission,
    Transient,
    Unfit,
)
from tests.backends.clock import Clock
from tests.backends.conformance.requests import group_request_for, inside, request_for
from tests.backends.fakes.script import Fault
from tests.backends.nebius.fake import Nebius
from tests.backends.nebius.kinds import CPU, EIGHT, ONE, bought, offer, vm
from tests.backends.nebius.provider import INSTANCES, answer, client, config
from tests.backends.nebius.shop import SPOT, Platform
from tests.backends.test_nebius import all_offers

HINTS = (
    "capacity.v1.ResourceAdviceService",
    "capacity.v1.CapacityBlockGroupService",
    "quotas.v1.QuotaAllowanceService",
)
UNSEEN = (*HINTS, "common.v1.OperationService", "vpc.v1.SecurityRuleService")

# --- offers ----------------------------------------------------------------------------------------------------------


def test_offers_are_what_is_sold_and_can_be_used() -> None:
    found = {(each.region, each.instance.name, each.instance.resources.spot) for each in all_offers()}
    assert ("us-central1", "gpu-rtx6000 1gpu-24vcpu-218gb", True) in found
    assert ("eu-north1", CPU, False) in found and ("eu-north1", CPU, True) not in found
    assert not any("gb200" in name for _, name, _ in found), "it has ARM processors"
    cards = {each.instance.name.split()[0]: each.instance.resources.gpus[:1] for each in all_offers()}
    assert {name: [(one.name, one.memory_mib) for one in gpus] for name, gpus in cards.items()} == {
        "cpu-d3": [],
        "gpu-h100-sxm": [("H100", 81_920)],
        "gpu-h200-sxm": [("H200", 144_384)],
        "gpu-rtx6000": [("RTXPRO6000", 98_304)],
    }
    spot, usual = offer(ONE, spot=True), offer(ONE)
    disk = usual.terms.disk
    assert disk is not None
    assert (spot.price - 100 * disk.gib_hour) == pytest.approx((usual.price - 100 * disk.gib_hour) * SPOT, rel=1e-3)


def test_those_that_can_be_in_a_cluster_say_what_its_network_needs() -> None:
    with_network = {each.instance.name: each.terms.interconnect for each in all_offers() if each.terms.interconnect}
    assert with_network.keys() == {EIGHT, EIGHT.replace("h100", "h200")}
    network = with_network[EIGHT]
    assert network is not None and network.name == "InfiniBand"
    assert network.env == {
        "NCCL_IB_HCA": "mlx5",
        "UCX_NET_DEVICES": "mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1,mlx5_4:1,mlx5_5:1,mlx5_6:1,mlx5_7:1",
    }


def test_what_has_no_price_isnt_offered(backend: NebiusBackend, fake: Nebius, caplog: pytest.LogCaptureFixture) -> None:
    fake.prices["gpu-h100-sxm"] = 0
    assert not [each for each in backend.offers() if "h100" in each.instance.name]
    assert "no price of" in caplog.text and ONE in caplog.text
    other = Fault("*EstimateBatch", lambda body: {**body, "currency": "ils"}, times=2)
    fake.script.faults.append(other)
    with pytest.raises(Transient, match="answers in ils"):
        backend.offers()


def test_nothing_is_free(backend: NebiusBackend, fake: Nebius) -> None:
    def free(body: dict[str, list[dict[str, object]]]) -> object:
        for each in body["resource_costs"]:
            if "h100" in str(each["metadata"]):
                each["general"] = {"total": {"cost": "0"}}
        return body

    fake.script.faults.append(Fault("*EstimateBatch", free, times=2))
    found = {each.instance.name for each in backend.offers()}
    assert CPU in found and EIGHT not in found


def test_prices_without_names_are_told_apart_by_their_order_if_none_is_missing(
    backend: NebiusBackend, fake: Nebius
) -> None:
    fake.script.faults.append(Fault("*EstimateBatch", _nameless, times=2))
    prices = {each.key: each.price for each in backend.offers()}
    assert prices == {each.key: each.price for each in all_offers()}
    fake.prices["gpu-h100-sxm"] = 0
    fake.script.faults.append(Fault("*EstimateBatch", _nameless, times=2))
    with pytest.raises(Transient, match="no price of a disk"):
        backend.offers()


def _nameless(body: dict[str, list[dict[str, object]]]) -> object:
    costs = [{key: value for key, value in each.items() if key != "metadata"} for each in body["resource_costs"]]
    return {**body, "resource_costs": costs}


def test_availability_is_what_nebius_advises_and_no_more(backend: NebiusBackend, fake: Nebius) -> None:
    def read() -> dict[str, Availability]:
        return {
            each.instance.name: each.availability
            for each in backend.offers()
            if each.region == "eu-north1" and not each.instance.resources.spot
        }

    assert read()[EIGHT] is Availability.available
    for level, freshness in (("LIMIT_REACHED", "FRESH"), ("HIGH", "STALE"), ("UNKNOWN", "FRESH")):
        fake.advised = dict.fromkeys(("fabric-2", "fabric-3"), (0, level, freshness))
        assert read()[EIGHT] is Availability.unknown
    fake.script.limits["eu-north1/compute.instance.gpu.h100"] = 4
    assert read()[EIGHT] is Availability.no_quota and read()[ONE].usable


def test_each_preset_of_a_reserved_platform_is_offered_in_its_group(backend: NebiusBackend, fake: Nebius) -> None:
    usual = {each.key for each in all_offers()}
    reserved = fake.reserve("eu-north1", "gpu-h100-sxm", 8, "STATE_ACTIVE")
    found = {each.instance.name: each for each in backend.offers() if each.reservation == reserved}
    assert found.keys() == {EIGHT, ONE} and not any(each.instance.resources.spot for each in found.values())
    assert found[EIGHT].price == offer(EIGHT).price and usual < {each.key for each in backend.offers()}
    fake.denied.add("capacity.v1.CapacityBlockGroupService")
    assert {each.key for each in backend.offers()} == usual


@pytest.mark.parametrize("service", HINTS)
def test_hints_that_may_not_be_read_are_no_reason_to_offer_nothing(
    backend: NebiusBackend, fake: Nebius, caplog: pytest.LogCaptureFixture, service: str
) -> None:
    fake.denied.add(service)
    assert len(backend.offers()) == len(all_offers())
    backend.check()
    assert f"capacity stays unknown: Nebius doesn't allow {service}.List" in caplog.text


# --- where things are ------------------------------------------------------------------------------------------------


def test_each_missing_permission_is_named(backend: NebiusBackend, fake: Nebius) -> None:
    """Of all that offers, a purchase, its end and a sweep read in a project, but for what is read of a resource that
    isn't there yet."""
    assert backend.offers()
    handles = list(backend.create(request_for(offer(CPU))))
    backend.describe(handles)
    backend.terminate(handles[0])
    for listed in (backend.list_owned(), backend.list_owned_groups(), backend.list_owned_volumes()):
        assert len(list(listed)) <= 1
    read = [call.operation.name.removeprefix("nebius.").split(".") for call in fake.calls]
    services = {".".join(name[:-1]): name[-1] for name in read if name[-1].startswith(("List", "Estimate"))}
    services = {name: call for name, call in services.items() if name not in UNSEEN and not name.startswith("iam.")}
    assert len(services) >= 6
    for service, call in services.items():
        fake.denied = {service}
        with pytest.raises(MissingPermission) as raised:
            backend.check()
        for region in ("eu-north1", "us-central1"):
            assert f"{service}.{call} in {region}" in str(raised.value)
        assert not [other for other in services if other != service and other in str(raised.value)]


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        ({"projects": ["project-e00none"]}, "The tenant has no project project-e00none"),
        ({"regions": ["me-west1"]}, "The account has no project in me-west1"),
        (
            {"projects": ["project-e00north", "project-e00other"]},
            "`projects` names several of eu-north1",
        ),
        ({"projects": ["project-e00north"]}, ""),
    ],
)
def test_projects_and_regions_are_those_of_the_settings(
    fake: Nebius, clock: Clock, settings: dict[str, list[str]], wrong: str
) -> None:
    backend = NebiusBackend(config(**settings), client(fake, clock.now), clock.now)
    if wrong:
        with pytest.raises(Unfit, match=wrong):
            backend.check()
    else:
        assert {each.region for each in backend.offers()} == {"eu-north1"}


def test_a_project_is_chosen_by_its_id(fake: Nebius, clock: Clock) -> None:
    backend = NebiusBackend(config(projects=["project-e00other"]), client(fake, clock.now), clock.now)
    list(backend.create(request_for(offer(CPU))))
    assert vm(fake).facts["parent"] == "project-e00other"


def test_what_was_created_in_another_project_is_still_listed(
    backend: NebiusBackend, fake: Nebius, clock: Clock
) -> None:
    """The settings may have named that one before."""
    before = NebiusBackend(config(projects=["project-e00other"]), client(fake, clock.now), clock.now)
    made = list(before.create(request_for(offer(CPU))))
    group = before.create_group(group_request_for(offer(EIGHT)))
    clock.passes(60)
    assert [each.handle for each in backend.list_owned()] == made
    assert [each.handle for each in backend.list_owned_groups()] == [group]


def test_an_id_that_nebius_could_never_have_given_is_gone_and_disturbs_no_other(
    backend: NebiusBackend, clock: Clock
) -> None:
    made = bought(backend)
    clock.passes(60)
    wrong = made[0].with_(id="i-0123456789abcdef0")
    found = backend.describe_several([[wrong], made])
    assert isinstance(found[0], Gone) and isinstance(found[1], Machine)
    with pytest.raises(Gone):
        backend.terminate(wrong)


def test_a_refusal_of_a_right_id_proves_nothing(backend: NebiusBackend, fake: Nebius, clock: Clock) -> None:
    made = bought(backend)
    clock.passes(60)
    for call in ("Get", "Delete"):
        fake.script.faults.append(Fault(f"{INSTANCES}.{call}", answer("INVALID_ARGUMENT", "bad_request")))
        with pytest.raises(Unfit):
            backend.terminate(made[0])


def test_several_projects_of_a_region_without_a_default_are_a_question(backend: NebiusBackend, fake: Nebius) -> None:
    fake.projects = {"project-e00a": ("a", "eu-north1"), "project-e00b": ("b", "eu-north1")}
    with pytest.raises(Unfit, match=r"several projects: project-e00a \(a\), project-e00b \(b\)"):
        backend.check()


def test_the_settings_tags_are_on_all_that_is_created(fake: Nebius, clock: Clock) -> None:
    backend = NebiusBackend(config(tags={"team": "research"}), client(fake, clock.now), clock.now)
    group = backend.create_group(group_request_for(offer(EIGHT)))
    list(backend.create(inside(request_for(offer(EIGHT)), group)))
    bearing = [each for each in fake.books.existing() if each.kind in ("vm", "disk", "cluster", "group")]
    assert len(bearing) == 4 and all(each.facts["labels"]["team"] == "research" for each in bearing)


def test_a_platform_with_a_card_of_unknown_memory_isnt_offered(backend: NebiusBackend, fake: Nebius) -> None:
    fake.platforms["gpu-x9"] = Platform(("eu-north1",), {"1gpu": (8, 32, 1)}, 1.0, "q")
    assert not [each for each in backend.offers() if "x9" in each.instance.name]
