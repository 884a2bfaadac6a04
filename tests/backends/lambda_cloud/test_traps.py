"""Where others have been caught at Lambda, and what the backend does there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from chalicelib.backends.kit.rest import RestAnswer, RestCall
from chalicelib.backends.kit.ssh_key import NOBODYS_KEY
from chalicelib.backends.lambda_cloud import requests
from chalicelib.backends.lambda_cloud.backend import LambdaBackend
from chalicelib.backends.lambda_cloud.client import LambdaClient
from chalicelib.backends.lambda_cloud.config import LambdaBackendConfig
from chalicelib.backends.lambda_cloud.facts import FACTS
from chalicelib.backends.spi import CreateRequest
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import HOUR, MINUTE, SECOND
from chalicelib.domain.offers import Availability, Offer
from chalicelib.errors import (
    BackendError,
    Gone,
    InsufficientCapacity,
    InvalidCredentials,
    NotYet,
    Throttled,
    Transient,
    Unfit,
)
from tests.backends.clock import Clock
from tests.backends.conformance.requests import request_for
from tests.backends.conformance.suite import end_all, patient
from tests.backends.fakes.script import Answer, Cut, Fault, Rate
from tests.backends.fakes.server import Request
from tests.backends.fakes.transport import sender
from tests.backends.lambda_cloud.fake import KEY, KINDS, LambdaApi, limits, stock
from tests.backends.lambda_cloud.provider import CONFIG, failed, limited

A10, EIGHT = "gpu_1x_a10", "gpu_8x_h100_sxm5"


def offer(backend: LambdaBackend, name: str = A10, region: str = "us-east-1") -> Offer:
    return next(each for each in backend.offers() if (each.instance.name, each.region) == (name, region))


def request(backend: LambdaBackend, name: str = "one", kind: str = A10) -> CreateRequest:
    return request_for(offer(backend, kind), name)


def patiently(clock: Clock, call: Callable[[], Any], pause: float = 5.0) -> Any:
    """As the engine calls: again after a pause, until it is done."""
    for _ in range(200):
        try:
            return call()
        except BackendError as error:
            if not (patient(error) or isinstance(error, Throttled)):
                raise
            clock.passes(getattr(error, "retry_after", pause))
    pytest.fail("it never ends")


# --- few calls --------------------------------------------------------------------------------------------------------


def test_a_call_that_is_refused_after_a_launch_loses_nothing(
    fake: LambdaApi, clock: Clock, backend: LambdaBackend
) -> None:
    made = list(backend.create(request(backend)))
    fake.script.faults.append(Fault("*", failed(429, "global/rate-limit-exceeded")))
    with pytest.raises(Throttled) as found:
        backend.describe(made)
    clock.passes(found.value.retry_after)
    assert backend.describe(made).state == "pending"
    assert len(fake.calls_of("launchInstance")) == 1


def test_everything_goes_on_where_no_two_calls_are_allowed_within_a_second(fake: LambdaApi, clock: Clock) -> None:
    """Whether Lambda allows some after a pause isn't known. Each attempt gets one call further."""
    fake.script.rates = limits()
    backend = limited(fake, clock)
    patiently(clock, backend.check)
    patiently(clock, backend.offers)
    one = patiently(clock, lambda: request(backend))
    made = patiently(clock, lambda: list(backend.create(one)))
    clock.passes(fake.boot / SECOND)
    assert patiently(clock, lambda: backend.describe(made)).state == "running"
    assert len(patiently(clock, lambda: list(backend.list_owned(one.instance_id)))) == 1
    patiently(clock, lambda: backend.terminate(made[0]))
    clock.passes(fake.end / SECOND)
    with pytest.raises(Gone):
        patiently(clock, lambda: backend.terminate(made[0]))
    assert not list(fake.books.existing("vm"))


def test_launches_of_two_servers_all_come_to_pass(fake: LambdaApi, clock: Clock, backend: LambdaBackend) -> None:
    fake.script.rates = {"launchInstance": Rate(1, 12 * SECOND)}
    servers = [limited(fake, clock), limited(fake, clock)]
    waiting = [(servers[n % 2], request(backend, f"n{n}")) for n in range(6)]
    begun = clock.at
    while waiting:
        server, one = waiting.pop(0)
        try:
            list(server.create(one))
        except Throttled:
            waiting.append((server, one))
            clock.passes(1)
    assert len(list(fake.books.existing("vm"))) == 6
    assert clock.at - begun < 2 * MINUTE


def test_a_launch_that_must_wait_takes_no_call_of_the_account(fake: LambdaApi, clock: Clock) -> None:
    backend = limited(fake, clock)
    first, second = request(backend, "one"), request(backend, "two")
    clock.passes(10)
    list(backend.create(first))
    clock.passes(10)
    with pytest.raises(Throttled) as found:
        list(backend.create(second))
    assert found.value.retry_after == pytest.approx(2.0)
    clock.passes(2)
    list(backend.create(second))


def test_one_list_serves_many(fake: LambdaApi, clock: Clock, backend: LambdaBackend) -> None:
    requests_ = [request_for(offer(backend), f"n{n}") for n in range(5)]
    made = [list(backend.create(each)) for each in requests_]
    clock.passes(60)
    fake.calls.clear()
    backend.describe_several(made)
    for each, handles in zip(requests_, made, strict=True):
        list(backend.list_owned(each.instance_id))
        backend.terminate(handles[0])
    assert len(fake.calls_of("listInstances")) == 1


# --- launches ---------------------------------------------------------------------------------------------------------


def test_no_launch_has_a_quantity_and_lambda_takes_none(fake: LambdaApi, backend: LambdaBackend) -> None:
    list(backend.create(request(backend)))
    (call,) = fake.calls_of("launchInstance")
    assert "quantity" not in call.body
    sent = b'{"region_name": "us-east-1", "instance_type_name": "gpu_1x_a10", "ssh_key_names": ["k"], "quantity": 2}'
    target, headers = "/api/v1/instance-operations/launch", {"authorization": f"Bearer {KEY}"}
    assert fake.answer(Request("POST", target, headers, sent)).status == 400


def test_a_host_may_boot_for_half_an_hour(fake: LambdaApi, clock: Clock, backend: LambdaBackend) -> None:
    fake.boot = 30 * MINUTE
    made = list(backend.create(request(backend, kind=EIGHT)))
    for _ in range(29):
        clock.passes(60)
        assert backend.describe(made).state == "pending"
    clock.passes(61)
    assert backend.describe(made).state == "running"
    assert FACTS.provisioning_timeout > fake.boot


def test_a_region_without_capacity_costs_no_launch(fake: LambdaApi, clock: Clock, backend: LambdaBackend) -> None:
    fake.script.limits[stock(A10, "us-east-1")] = 0
    found = {each.region: each.availability for each in backend.offers() if each.instance.name == A10}
    assert found["us-east-1"] is Availability.unknown and found["us-west-3"] is Availability.available
    with pytest.raises(InsufficientCapacity, match="no gpu_1x_a10 left in us-east-1"):
        list(backend.create(request(backend)))
    assert not fake.calls_of("launchInstance")
    fake.script.limits.clear()
    clock.passes(61)
    assert list(backend.create(request(backend))), "what was known a minute ago is looked up again"


def test_capacity_that_is_gone_a_moment_later_is_the_next_offers_turn(fake: LambdaApi, backend: LambdaBackend) -> None:
    one = request(backend)
    fake.script.limits[stock(A10, "us-east-1")] = 0
    with pytest.raises(InsufficientCapacity, match=r"gpu_1x_a10 left in us-east-1: .*not enough capacity"):
        list(backend.create(one))
    with pytest.raises(InsufficientCapacity):
        list(backend.create(one))
    assert len(fake.calls_of("launchInstance")) == 1, "from then on it is known"


@pytest.mark.parametrize(
    ("code", "text", "kind"),
    [
        ("provider/internal-unavailable", "try again", Transient),
        ("provider/out-of-hosts", "resource exhausted in this zone", InsufficientCapacity),
        ("instance-operations/launch/file-system-in-wrong-region", "no", Unfit),
        ("global/invalid-address", "no billing address", InvalidCredentials),
        ("global/something-new", "?", Transient),
    ],
)
def test_what_a_launch_is_refused_with(
    fake: LambdaApi, backend: LambdaBackend, code: str, text: str, kind: type[BackendError]
) -> None:
    status = 400 if kind is Unfit else 403 if kind is InvalidCredentials else 503
    fake.script.faults.append(Fault("launchInstance", Answer(status, {"error": {"code": code, "message": text}})))
    with pytest.raises(kind, match=text.replace("?", r"\?")):
        list(backend.create(request(backend)))


def test_an_advice_of_lambda_is_passed_on(fake: LambdaApi, backend: LambdaBackend) -> None:
    fake.script.limits["instances"] = 0
    with pytest.raises(BackendError, match=r"0 instances are yours Ask for more\."):
        list(backend.create(request(backend)))


@pytest.mark.parametrize("body", [{}, {"data": {}}, {"data": []}, {"data": {"instance_ids": []}}, [], "accepted"])
def test_an_answer_that_names_no_instance_proves_nothing(
    fake: LambdaApi, clock: Clock, backend: LambdaBackend, body: Any
) -> None:
    one = request(backend)
    fake.script.faults.append(Fault("launchInstance", lambda _: body))
    with pytest.raises(Transient):
        list(backend.create(one))
    clock.passes(FACTS.visibility_lag / SECOND)
    assert len(list(backend.create(one))) == len(list(fake.books.existing("vm"))) == 1


def test_two_of_one_request_are_one_in_the_end(fake: LambdaApi, clock: Clock, backend: LambdaBackend) -> None:
    """The answer was lost, and the list lagged for longer than it should."""
    one = request(backend)
    fake.script.lag = 2 * FACTS.visibility_lag
    fake.script.faults.append(Fault("launchInstance", Cut, "after"))
    with pytest.raises(Transient):
        list(backend.create(one))
    clock.passes(FACTS.visibility_lag / SECOND)
    (second,) = list(backend.create(one))
    clock.passes(5 * MINUTE / SECOND)
    (first,) = list(backend.create(one))
    assert first.id != second.id
    clock.passes(fake.end / SECOND)
    assert [each.id for each in fake.books.existing("vm") if each.state(clock.at) == "active"] == [first.id]


def test_a_launch_whose_answer_was_lost_is_found_by_its_name(
    fake: LambdaApi, clock: Clock, backend: LambdaBackend
) -> None:
    """Tags are an optional part of a list."""
    one = request(backend)
    fake.script.faults.append(Fault("launchInstance", Cut, "after"))
    with pytest.raises(Transient):
        list(backend.create(one))
    clock.passes(FACTS.visibility_lag / SECOND)

    def untagged(body: Any) -> Any:
        return {"data": [{name: value for name, value in each.items() if name != "tags"} for each in body["data"]]}

    fake.script.faults.append(Fault("listInstances", untagged, times=1))
    assert len(list(backend.create(one))) == len(list(fake.books.existing("vm"))) == 1


def test_a_list_that_began_before_a_launch_is_not_used_after_it(
    fake: LambdaApi, clock: Clock, backend: LambdaBackend
) -> None:
    one = request(backend)
    with pytest.raises(Transient):
        fake.script.faults.append(Fault("launchInstance", Cut, "after"))
        list(backend.create(one))
    clock.passes(1)
    assert len(list(backend.create(one))) == len(list(fake.books.existing("vm"))) == 1


def test_the_calls_up_to_a_launch_fit_into_the_time_that_is_kept_for_them(fake: LambdaApi, clock: Clock) -> None:
    """However slow each of them is: nobody else may act before the last one has ended."""
    send, longest = sender(fake), 0.0

    def timed(call: RestCall, deadline: float) -> RestAnswer:
        nonlocal longest
        longest += deadline
        return send(call, deadline)

    backend = LambdaBackend(CONFIG, LambdaClient(KEY, clock.now, send=timed, burst=99), clock.now)
    one, longest = request(backend), 0.0
    clock.passes(HOUR / SECOND)
    list(backend.create(one))
    assert len(fake.calls_of("addSSHKey")) == len(fake.calls_of("launchInstance")) == 1
    assert longest <= FACTS.create_timeout / 2 / SECOND


# --- the key ----------------------------------------------------------------------------------------------------------


def test_the_key_is_added_once_and_every_launch_names_it_alone(
    fake: LambdaApi, clock: Clock, backend: LambdaBackend
) -> None:
    for name in ("one", "two"):
        list(backend.create(request(backend, name)))
    (key,) = fake.books.existing("key")
    assert (key.facts["name"], key.facts["public_key"]) == (requests.KEY_NAME, NOBODYS_KEY)
    assert [call.body["ssh_key_names"] for call in fake.calls_of("launchInstance")] == [[requests.KEY_NAME]] * 2
    assert len(fake.calls_of("addSSHKey")) == 1
    again = LambdaBackend(CONFIG, LambdaClient(KEY, clock.now, send=sender(fake), burst=99, launches=99), clock.now)
    list(again.create(request(again, "three")))
    assert len(fake.calls_of("addSSHKey")) == 1, "another server finds it"


def test_a_key_that_another_server_adds_meanwhile_is_found(
    fake: LambdaApi, clock: Clock, backend: LambdaBackend
) -> None:
    fake.script.faults.append(Fault("addSSHKey", failed(400, "global/duplicate"), "after"))
    with pytest.raises(Transient):
        list(backend.create(request(backend)))
    clock.passes(5)
    assert list(backend.create(request(backend)))


def test_a_key_that_somebody_deletes_is_added_again(fake: LambdaApi, clock: Clock, backend: LambdaBackend) -> None:
    for name in ("zero", "one"):
        list(backend.create(request(backend, name)))
    (key,) = fake.books.existing("key")
    key.goes(clock.at, (0, None))
    with pytest.raises(Unfit, match="the key dstack-no-login does not exist"):
        list(backend.create(request(backend, "two")))
    assert list(backend.create(request(backend, "two")))


# --- the life of an instance ------------------------------------------------------------------------------------------


def test_an_end_that_comes_too_early_is_asked_for_again(fake: LambdaApi, clock: Clock, backend: LambdaBackend) -> None:
    fake.unready = MINUTE
    made = list(backend.create(request(backend)))
    clock.passes(5)
    with pytest.raises(NotYet, match="it has not launched yet"):
        backend.terminate(made[0])
    assert not fake.calls_of("terminateInstance"), "the list shows that it would be refused"
    end_all(backend, clock.passes, made)
    assert not list(fake.books.existing("vm"))


def test_an_end_that_is_refused_is_asked_for_again(fake: LambdaApi, clock: Clock, backend: LambdaBackend) -> None:
    made = list(backend.create(request(backend)))
    clock.passes(30)
    fake.script.faults.append(Fault("terminateInstance", failed(400, "global/invalid-parameters")))
    with pytest.raises(NotYet):
        backend.terminate(made[0])
    end_all(backend, clock.passes, made)


def test_one_that_is_ending_is_left_alone(fake: LambdaApi, clock: Clock, backend: LambdaBackend) -> None:
    """Lambda answers with an unknown error."""
    made = list(backend.create(request(backend)))
    clock.passes(30)
    backend.terminate(made[0])
    clock.passes(5)
    backend.terminate(made[0])
    assert len(fake.calls_of("terminateInstance")) == 1
    end_all(backend, clock.passes, made)


def test_one_that_is_listed_after_its_end_is_gone(fake: LambdaApi, clock: Clock, backend: LambdaBackend) -> None:
    fake.lingers = HOUR
    made = list(backend.create(request(backend)))
    clock.passes(fake.boot / SECOND)
    end_all(backend, clock.passes, made)
    assert list(backend.list_owned()) == []
    with pytest.raises(Gone, match="is terminated: somebody"):
        backend.describe(made)


@pytest.mark.parametrize(
    "answer",
    [failed(404, "global/not-found"), failed(404, "global/object-does-not-exist"), failed(410, "")],
)
def test_a_list_that_isnt_found_ends_nothing(
    fake: LambdaApi, clock: Clock, backend: LambdaBackend, answer: Answer
) -> None:
    made = list(backend.create(request(backend)))
    clock.passes(fake.boot / SECOND)
    fake.script.faults.append(Fault("listInstances", answer, times=3))
    for call in (
        lambda: backend.describe_several([made]),
        lambda: backend.terminate(made[0]),
        lambda: list(backend.list_owned()),
    ):
        with pytest.raises(Transient):
            call()
    assert backend.describe(made).state == "running"


def test_a_list_that_lacks_an_instance_ends_nothing(fake: LambdaApi, clock: Clock, backend: LambdaBackend) -> None:
    made = list(backend.create(request(backend)))
    clock.passes(fake.boot / SECOND)
    fake.script.faults.append(Fault("listInstances", lambda _: {"data": []}, times=2))
    assert backend.describe(made).state == "running"
    clock.passes(5)
    backend.terminate(made[0])
    assert fake.calls_of("terminateInstance")


def test_one_that_a_list_lacks_has_its_own_reason_to_be_gone(
    fake: LambdaApi, clock: Clock, backend: LambdaBackend
) -> None:
    made = list(backend.create(request(backend)))
    clock.passes(fake.boot / SECOND)
    next(fake.books.existing("vm")).goes(clock.at, (0, "preempted"))
    fake.script.faults.append(Fault("listInstances", lambda _: {"data": []}))
    with pytest.raises(Gone, match="was taken back") as found:
        backend.describe(made)
    assert found.value.refused is InsufficientCapacity


def test_a_new_one_is_described_at_once(fake: LambdaApi, clock: Clock, backend: LambdaBackend) -> None:
    """Though the list was read a moment before."""
    first = list(backend.create(request(backend)))
    assert backend.describe(first).state == "pending"
    second = list(backend.create(request(backend, "two")))
    assert backend.describe(second).state == "pending"


def test_a_sweep_reads_a_list_of_its_own(fake: LambdaApi, clock: Clock, backend: LambdaBackend) -> None:
    """What another server created a moment ago isn't gone."""
    first = list(backend.create(request(backend)))
    backend.describe(first)
    other = LambdaBackend(CONFIG, LambdaClient(KEY, clock.now, send=sender(fake)), clock.now)
    second = list(other.create(request(backend, "two")))
    assert {each.handle.id for each in backend.list_owned()} == {first[0].id, second[0].id}


def test_one_that_is_unhealthy_is_judged_by_its_agent(fake: LambdaApi, clock: Clock, backend: LambdaBackend) -> None:
    made = list(backend.create(request(backend)))
    clock.passes(fake.boot / SECOND)
    (one,) = fake.books.existing("vm")
    one.goes(clock.at, (0, "unhealthy"))
    assert backend.describe(made).state == "running"
    end_all(backend, clock.passes, made)
    assert not list(fake.books.existing("vm")), "it is billed, so it is ended like any other"


def test_one_that_is_taken_back_is_gone_and_then_ended(fake: LambdaApi, clock: Clock, backend: LambdaBackend) -> None:
    made = list(backend.create(request(backend)))
    clock.passes(fake.boot / SECOND)
    (one,) = fake.books.existing("vm")
    one.goes(clock.at, (0, "preempted"))
    with pytest.raises(Gone) as found:
        backend.describe(made)
    assert found.value.refused is InsufficientCapacity
    end_all(backend, clock.passes, made)
    assert not list(fake.books.existing("vm"))


def test_one_that_ends_before_it_ran_lacked_capacity(fake: LambdaApi, clock: Clock, backend: LambdaBackend) -> None:
    """So the next offer is tried."""
    made = list(backend.create(request(backend)))
    next(fake.books.existing("vm")).goes(clock.at, (0, "terminating"))
    clock.passes(30)
    with pytest.raises(Gone, match="has ended before it ran") as found:
        backend.describe(made)
    assert found.value.refused is InsufficientCapacity


def test_one_without_an_address_isnt_there_yet(fake: LambdaApi, clock: Clock, backend: LambdaBackend) -> None:
    made = list(backend.create(request(backend)))
    clock.passes(fake.boot / SECOND)

    def bare(body: Any) -> Any:
        hidden = ("ip", "private_ip", "actions")
        return {"data": [{name: value for name, value in each.items() if name not in hidden} for each in body["data"]]}

    fake.script.faults.append(Fault("listInstances", bare))
    assert backend.describe(made).state == "pending"
    clock.passes(10)
    machine = backend.describe(made)
    assert (machine.state, machine.hostname, machine.internal_ip) == ("running", "198.51.100.2", "10.19.60.2")
    clock.passes(10)
    fake.script.faults.append(Fault("listInstances", bare))
    backend.terminate(made[0])
    assert fake.calls_of("terminateInstance"), "what isn't said to be refused is tried"


@pytest.mark.parametrize(
    ("said", "shown"),
    [({"reason_code": "vm-is-too-old"}, "vm-is-too-old"), ({}, "Lambda doesn't say why")],
)
def test_why_one_cant_be_ended_is_shown(
    fake: LambdaApi, clock: Clock, backend: LambdaBackend, said: dict[str, str], shown: str
) -> None:
    made = list(backend.create(request(backend)))
    clock.passes(30)

    def refusing(body: Any) -> Any:
        actions = {"terminate": {"available": False, **said}}
        return {"data": [{**each, "actions": actions} for each in body["data"]]}

    fake.script.faults.append(Fault("listInstances", refusing))
    with pytest.raises(NotYet, match=shown):
        backend.terminate(made[0])


def test_an_account_that_becomes_inactive_has_lost_nothing(
    fake: LambdaApi, clock: Clock, backend: LambdaBackend
) -> None:
    made = list(backend.create(request(backend)))
    clock.passes(fake.boot / SECOND)
    fake.inactive = True
    with pytest.raises(InvalidCredentials, match=r"account-inactive.*Set up a payment method"):
        backend.describe(made)
    with pytest.raises(InvalidCredentials):
        backend.terminate(made[0])
    fake.inactive = False
    assert backend.describe(made).state == "running"


# --- what isn't ours --------------------------------------------------------------------------------------------------


def test_nodes_that_people_have_booked_are_never_ours(fake: LambdaApi, clock: Clock, backend: LambdaBackend) -> None:
    booked = fake.booked_node()
    made = list(backend.create(request(backend)))
    clock.passes(60)
    assert [each.handle.id for each in backend.list_owned()] == [made[0].id]
    end_all(backend, clock.passes, made)
    assert [each.id for each in fake.books.existing("vm")] == [booked.id]


def test_an_instance_whose_tags_were_taken_away_is_known_by_its_name(
    fake: LambdaApi, clock: Clock, backend: LambdaBackend
) -> None:
    one = request(backend)
    made = list(backend.create(one))
    clock.passes(60)
    fake.books.find("vm", made[0].id).facts["request"]["tags"] = []  # type: ignore[union-attr]
    assert [(each.handle.id, each.instance_id) for each in backend.list_owned()] == [(made[0].id, one.instance_id)]


def test_a_time_in_a_tag_that_is_no_time_is_passed_over(fake: LambdaApi, clock: Clock, backend: LambdaBackend) -> None:
    made = list(backend.create(request(backend)))
    clock.passes(60)
    tags = fake.books.find("vm", made[0].id).facts["request"]["tags"]  # type: ignore[union-attr]
    next(each for each in tags if each["key"] == requests.LAUNCHED)["value"] = "yesterday"
    (found,) = backend.list_owned()
    assert found.handle == Handle(kind="vm", id=made[0].id)


def test_the_accounts_firewall_is_never_touched(fake: LambdaApi, clock: Clock, backend: LambdaBackend) -> None:
    before = list(fake.rules)
    made = list(backend.create(request(backend)))
    clock.passes(60)
    end_all(backend, clock.passes, made)
    assert fake.rules == before
    assert not any("firewall_rulesets" in call.body for call in fake.calls_of("launchInstance"))


# --- what is sold and accepted ----------------------------------------------------------------------------------------


def test_offers_have_what_machines_have(backend: LambdaBackend) -> None:
    found = {each.instance.name: each for each in backend.offers()}
    assert set(found) == set(KINDS)
    eight, arm, cpu = (found[name].instance.resources for name in (EIGHT, "gpu_1x_gh200", "cpu_4x_general"))
    assert [(card.name, card.memory_mib) for card in eight.gpus] == [("H100", 80 * 1024)] * 8
    assert (arm.cpu_arch, eight.cpu_arch) == ("arm", "x86")
    assert (cpu.gpus, cpu.cpus, cpu.memory_mib, cpu.disk.size_mib) == ((), 4, 16 * 1024, 512 * 1024)
    assert found[EIGHT].price == 31.92


def test_a_type_of_unknown_gpu_or_price_isnt_offered(
    fake: LambdaApi, backend: LambdaBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = {"new": replace(KINDS[A10], gpu="something"), "free": replace(KINDS[A10], cents=0)}
    monkeypatch.setitem(KINDS, "new", odd["new"])
    monkeypatch.setitem(KINDS, "free", odd["free"])
    assert {"new", "free"}.isdisjoint(each.instance.name for each in backend.offers())


def test_only_the_regions_of_the_settings_are_offered(fake: LambdaApi, clock: Clock) -> None:
    def with_regions(*names: str) -> LambdaBackend:
        config = LambdaBackendConfig.model_validate({**CONFIG.model_dump(), "creds": CONFIG.creds, "regions": names})
        return LambdaBackend(config, LambdaClient(KEY, clock.now, send=sender(fake), burst=99), clock.now)

    assert {each.region for each in with_regions("us-west-3").offers()} == {"us-west-3"}
    with_regions("us-west-3").check()
    with pytest.raises(Unfit, match=r"no region mars-1\. .*us-east-1, us-south-1, us-west-3"):
        with_regions("us-west-3", "mars-1").check()


@pytest.mark.parametrize("tag", [("Team", "ml"), ("team", "v" * 129)])
def test_tags_that_lambda_doesnt_take_are_refused_by_name(
    fake: LambdaApi, backend: LambdaBackend, tag: tuple[str, str]
) -> None:
    one = request(backend)
    with pytest.raises(Unfit, match=f"Lambda takes no such tags: `{tag[0]}`"):
        list(backend.create(replace(one, tags=(*one.tags, tag))))
    assert not list(fake.books.existing("vm"))
    made = list(backend.create(replace(one, tags=(*one.tags, ("team", "ml")))))
    body = fake.books.find("vm", made[0].id).facts["request"]  # type: ignore[union-attr]
    assert {"key": "team", "value": "ml"} in body["tags"]
    assert FACTS.tags, "otherwise plans say that tags aren't set"


def test_a_script_that_is_too_long_is_refused(fake: LambdaApi, backend: LambdaBackend) -> None:
    one = request(backend)
    with pytest.raises(Unfit, match="longer than the 1048576 bytes that Lambda takes"):
        list(backend.create(replace(one, user_data=one.user_data + "#" * (1 << 20))))
    assert not fake.calls_of("launchInstance")
