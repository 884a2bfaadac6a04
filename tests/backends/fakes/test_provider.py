"""What the conformance suite arranges, as a client of the provider meets it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pytest

from chalicelib.domain.instances import Handle
from chalicelib.domain.offers import InstanceType, Offer, Resources
from tests.backends.clock import Clock
from tests.backends.conformance.provider import Fails
from tests.backends.crusoe.fake import Crusoe, capacity_of, quota
from tests.backends.crusoe.plain import EAST, INSTANCES, VM, Client, machine, made, names
from tests.backends.fakes.provider import ScriptedProvider
from tests.backends.fakes.script import Answer

STATUSES: dict[Fails, int] = {"InvalidCredentials": 401, "MissingPermission": 403, "Throttled": 429, "Transient": 500}


class CrusoeProvider(ScriptedProvider):
    operations: ClassVar = {
        "check": "listProjectQuotas",
        "offers": "getVMTypes",
        "create": "createInstance",
        "describe": "listInstances",
        "terminate": "deleteInstance",
        "list": "listInstances",
    }
    errors: ClassVar = {
        name: Answer(status, {"code": "scripted", "message": "scripted"}) for name, status in STATUSES.items()
    }
    kinds = ("vm", "disk")
    page_token = "next_token"

    def capacity_counters(self, offer: Offer, zone: str = "") -> Sequence[str]:
        return [capacity_of(zone or offer.region, offer.instance.name)]

    def quota_of(self, offer: Offer) -> tuple[str, int]:
        return quota(offer.instance.name), 2


OFFER = Offer(
    backend="crusoe",
    instance=InstanceType(name=VM, resources=Resources(cpus=2, memory_mib=8192)),
    region=EAST,
    price=0.08,
)


@pytest.fixture
def provider(crusoe: Crusoe) -> CrusoeProvider:
    return CrusoeProvider(crusoe)


@pytest.mark.parametrize("error", STATUSES)
def test_calls_fail_as_arranged_and_pass_again(call: Client, provider: CrusoeProvider, error: Fails) -> None:
    provider.fail("create", error, when="after")
    provider.fail("list", error, times=2)
    assert call("POST", INSTANCES, machine())[0] == STATUSES[error]
    (vm,) = (each for each in provider.fake.books.existing("vm"))
    assert vm.id in provider.existing()
    assert [call("GET", INSTANCES)[0] for _ in range(3)] == [STATUSES[error], STATUSES[error], 200]


def test_a_further_page_fails_and_the_first_does_not(call: Client, provider: CrusoeProvider) -> None:
    for name in ("one", "two"):
        made(call("POST", INSTANCES, machine(name)))
    provider.pages_of(1)
    provider.page_fails()
    token = call("GET", INSTANCES)[1]["next_page_token"]
    assert [call("GET", INSTANCES, next_token=token)[0] for _ in range(2)] == [500, 200]
    provider.region_down(EAST)
    assert call("GET", INSTANCES)[0] == 500


def test_what_is_left_is_what_exists_already(call: Client, provider: CrusoeProvider, clock: Clock) -> None:
    made(call("POST", INSTANCES, machine()))
    provider.none_left(OFFER)
    _, body = call("POST", INSTANCES, machine("two"))
    clock.passes(60)
    where = f"{INSTANCES}/operations/{body['operation']['operation_id']}"
    assert call("GET", where)[1]["result"]["code"] == "out_of_stock"
    assert names(call("GET", INSTANCES)) == ["one"]
    provider.zone_is_full(OFFER, EAST, full=False)
    made(call("POST", INSTANCES, machine("two")))
    provider.quota(OFFER, 2)
    assert call("POST", INSTANCES, machine("three"))[0] == 400


def test_a_machine_that_is_lost_is_nowhere(call: Client, provider: CrusoeProvider, clock: Clock) -> None:
    provider.invisible_for(5)
    vm = made(call("POST", INSTANCES, machine()))
    assert names(call("GET", INSTANCES)) == [] and vm in provider.existing()
    clock.passes(5)
    assert names(call("GET", INSTANCES)) == ["one"]
    provider.lost([Handle(kind="vm", id=vm)])
    assert names(call("GET", INSTANCES)) == [] and vm not in provider.existing()
