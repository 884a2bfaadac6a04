"""Where others have been caught at TensorDock, and what the backend does there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from chalicelib.backends.kit import docker_setup
from chalicelib.backends.kit.ssh_key import NOBODYS_KEY
from chalicelib.backends.spi import CreateRequest
from chalicelib.backends.tensordock.backend import TensorDockBackend
from chalicelib.backends.tensordock.client import TensorDockClient
from chalicelib.backends.tensordock.config import TensorDockBackendConfig
from chalicelib.backends.tensordock.facts import FACTS
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.domain.offers import Offer
from chalicelib.errors import (
    BackendError,
    Gone,
    InsufficientCapacity,
    InvalidCredentials,
    QuotaExceeded,
    Throttled,
    Transient,
    Unfit,
)
from tests.backends.clock import Clock
from tests.backends.conformance.requests import request_for
from tests.backends.conformance.suite import end_all
from tests.backends.fakes.script import Answer, Cut, Fault, Rate
from tests.backends.fakes.transport import sender
from tests.backends.tensordock.fake import MEMORIES, PLACES, TensorDock, stock
from tests.backends.tensordock.provider import CONFIG, CREDS, client

US, CANADA, FRANCE = PLACES
RTX, H100, L40S = "geforcertx4090-pcie-24gb", "h100-sxm5-80gb", "l40s-pcie-48gb"


def offers(backend: TensorDockBackend, name: str = RTX, place: str = US) -> list[Offer]:
    found = (each for each in backend.offers() if each.instance.name == name and each.backend_data["location"] == place)
    return sorted(found, key=lambda each: each.price)


def request(backend: TensorDockBackend, name: str = "one") -> CreateRequest:
    return request_for(offers(backend)[0], name)


# --- traps of the sheet -----------------------------------------------------------------------------------------------


def test_a_deletion_that_fails_is_asked_for_until_it_is_done(
    fake: TensorDock, clock: Clock, backend: TensorDockBackend
) -> None:
    made = list(backend.create(request(backend)))
    clock.passes(FACTS.visibility_lag / SECOND)
    fake.script.faults.append(Fault("deleteInstance", Answer(500, {"error": "Internal error"}), times=3))
    for _ in range(3):
        with pytest.raises(Transient):
            backend.terminate(made[0])
    assert [each.handle for each in backend.list_owned()] == made
    end_all(backend, clock.passes, made)
    assert fake.billed() == 0.0


def test_a_creation_that_seemed_to_fail_is_found(fake: TensorDock, clock: Clock, backend: TensorDockBackend) -> None:
    one = request(backend)
    fake.script.faults.append(Fault("createInstance", Cut, "after"))
    with pytest.raises(Transient):
        list(backend.create(one))
    clock.passes(FACTS.visibility_lag / SECOND)
    assert len(list(backend.create(one))) == len(list(fake.books.existing("vm"))) == 1


def test_two_of_one_request_are_one_in_the_end(fake: TensorDock, clock: Clock, backend: TensorDockBackend) -> None:
    one = request(backend)
    fake.script.lag = 3 * MINUTE
    fake.script.faults.append(Fault("createInstance", Cut, "after"))
    with pytest.raises(Transient):
        list(backend.create(one))
    clock.passes(FACTS.visibility_lag / SECOND)
    (second,) = list(backend.create(one))
    clock.passes(300)
    (first,) = list(backend.create(one))
    clock.passes(fake.end / SECOND)
    assert first.id != second.id and [each.id for each in fake.books.existing("vm")] == [first.id]


def test_where_no_ports_can_be_forwarded_nothing_is_offered(fake: TensorDock, backend: TensorDockBackend) -> None:
    """There, a machine would need an address of its own, with all its ports open to the world."""
    assert offers(backend, "rtxa4000-pcie-16gb", FRANCE) == []
    list(backend.create(request(backend)))
    (call,) = fake.calls_of("createInstance")
    body = call.body["data"]["attributes"]
    assert body["useDedicatedIp"] is False and "port_forwards" not in body


def test_all_sizes_that_are_offered_are_taken(fake: TensorDock, backend: TensorDockBackend) -> None:
    """In the steps and up to the limits that there are."""
    found = backend.offers()
    for n, offer in enumerate(found):
        disk = min(offer.most_disk, 333.0)
        list(backend.create(replace(request_for(offer, f"n{n}"), disk_mib=int(disk * 1024))))
    wanted = [call.body["data"]["attributes"]["resources"] for call in fake.calls_of("createInstance")]
    assert len(wanted) == len(found) > 20
    assert all(each["vcpu_count"] % 2 == 0 and each["ram_gb"] in MEMORIES for each in wanted)
    assert {each["storage_gb"] for each in wanted} == {350}
    counts = {len(each.instance.resources.gpus) for each in offers(backend, H100)}
    assert counts >= {1, 2, 4, 8}


def test_a_size_beyond_the_hosts_isnt_offered(backend: TensorDockBackend) -> None:
    """Two L40S have 16 CPUs and 64 GB at most."""
    found = {(len(has.gpus), has.cpus) for has in (each.instance.resources for each in offers(backend, L40S, CANADA))}
    assert found == {(1, 4), (1, 8), (1, 16), (2, 8), (2, 16)}


def test_what_was_offered_and_is_gone_costs_no_call(fake: TensorDock, clock: Clock, backend: TensorDockBackend) -> None:
    one = request(backend)
    clock.passes(61)
    fake.script.limits[stock(US, RTX)] = 0
    with pytest.raises(InsufficientCapacity, match=f"{RTX} of this size left in united-states-chubbuck"):
        list(backend.create(one))
    assert not fake.calls_of("createInstance")


def test_fewer_gpus_than_were_offered_cost_no_call(fake: TensorDock, clock: Clock, backend: TensorDockBackend) -> None:
    two = next(each for each in offers(backend) if len(each.instance.resources.gpus) == 2)
    clock.passes(61)
    fake.script.limits[stock(US, RTX)] = 1
    with pytest.raises(InsufficientCapacity):
        list(backend.create(request_for(two)))
    assert not fake.calls_of("createInstance")


def test_the_largest_disk_is_the_locations(fake: TensorDock, backend: TensorDockBackend) -> None:
    one = request(backend)
    assert one.offer.most_disk == PLACES[US].cards[RTX].disk == 2000
    with pytest.raises(InsufficientCapacity):
        list(backend.create(replace(one, disk_mib=2000 * 1024 + 1)))
    assert not fake.calls_of("createInstance")
    assert list(backend.create(replace(one, disk_mib=2000 * 1024)))


def test_what_is_gone_a_moment_later_is_the_next_offers_turn(fake: TensorDock, backend: TensorDockBackend) -> None:
    one = request(backend)
    fake.hidden.add(RTX)
    fake.script.limits[stock(US, RTX)] = 0
    with pytest.raises(InsufficientCapacity, match="No available nodes found"):
        list(backend.create(one))
    fake.hidden.clear()
    with pytest.raises(InsufficientCapacity):
        list(backend.create(one))
    assert len(fake.calls_of("createInstance")) == 1, "from then on it is looked up again"


def test_what_is_listed_after_its_end_is_gone(fake: TensorDock, clock: Clock, backend: TensorDockBackend) -> None:
    made = list(backend.create(request(backend)))
    clock.passes(90)
    next(fake.books.existing("vm")).goes(clock.at, (0, "Deleted"))
    for call in (backend.terminate, lambda handle: backend.describe([handle])):
        with pytest.raises(Gone):
            call(made[0])
    assert list(backend.list_owned()) == [] and not fake.calls_of("deleteInstance")


def test_a_sweep_reads_a_list_of_its_own(fake: TensorDock, clock: Clock, backend: TensorDockBackend) -> None:
    """What another server created a moment ago isn't gone."""
    first = list(backend.create(request(backend)))
    backend.describe(first)
    other = TensorDockBackend(CONFIG, client(fake, clock), clock.now)
    second = list(other.create(request(other, "two")))
    assert {each.handle.id for each in backend.list_owned()} == {first[0].id, second[0].id}


def test_what_has_become_dearer_is_another_offer(fake: TensorDock, clock: Clock, backend: TensorDockBackend) -> None:
    one = request(backend)
    fake.dearer = 1.5
    clock.passes(61)
    with pytest.raises(InsufficientCapacity, match=r"was offered for \$0\.40 an hour, and costs more now"):
        list(backend.create(one))
    assert not fake.calls_of("createInstance")
    assert list(backend.create(request(backend)))


def test_the_price_has_the_disk_in_it(fake: TensorDock, backend: TensorDockBackend) -> None:
    offer = offers(backend)[0].sized(350)
    made = list(backend.create(replace(request_for(offer), disk_mib=350 * 1024)))
    assert offer.price == pytest.approx(fake.billed()) and made


@pytest.mark.parametrize("part", ["per_vcpu_hr", "per_gb_ram_hr", "per_gb_storage_hr"])
def test_a_price_that_lacks_a_part_is_no_price(
    fake: TensorDock, clock: Clock, backend: TensorDockBackend, part: str, caplog: pytest.LogCaptureFixture
) -> None:
    one = request(backend)
    fake.unpriced.add(part)
    assert backend.offers() == []
    assert f"no price of {RTX}, {H100}" in caplog.text
    with pytest.raises(InsufficientCapacity):
        list(backend.create(one))


@pytest.mark.parametrize("form", [0, 1, 2])
def test_every_known_form_of_answers_is_read(
    fake: TensorDock, clock: Clock, backend: TensorDockBackend, form: int
) -> None:
    fake.form = form
    made = list(backend.create(request(backend)))
    clock.passes(FACTS.visibility_lag / SECOND)
    assert [each.handle for each in backend.list_owned()] == made
    clock.passes(60)
    machine = backend.describe(made)
    assert (machine.state, machine.hostname) == ("running", "198.51.100.1")
    end_all(backend, clock.passes, made)


def test_the_older_spelling_of_addresses_is_read(fake: TensorDock, clock: Clock, backend: TensorDockBackend) -> None:
    made = list(backend.create(request(backend)))
    clock.passes(90)

    def older(body: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**{name: value for name, value in body.items() if name != "ipAddress"}, "ip_address": "203.0.113.9"}

    fake.script.faults.append(Fault("getInstance", older))
    assert backend.describe(made).hostname == "203.0.113.9"


@pytest.mark.parametrize(
    "body",
    [{}, {"data": {}}, {"data": {"instances": None}}, {"data": [{"id": "x"}]}, {"data": ["x"]}, [], {"error": "again"}],
)
def test_an_answer_without_a_list_proves_nothing(
    fake: TensorDock, clock: Clock, backend: TensorDockBackend, body: Any
) -> None:
    made = list(backend.create(request(backend)))
    clock.passes(90)
    fake.script.faults.append(Fault("listInstances", lambda _: body, times=3))
    for call in (
        lambda: list(backend.list_owned()),
        lambda: backend.describe(made),
        lambda: backend.terminate(made[0]),
    ):
        with pytest.raises(Transient):
            call()


def test_a_refusal_with_the_status_200_is_one(fake: TensorDock, backend: TensorDockBackend) -> None:
    one = request(backend)
    fake.ok_refusals = True
    fake.script.limits["balance"] = 0
    with pytest.raises(QuotaExceeded, match=r"Insufficient balance: you need at least \$0\.40"):
        list(backend.create(one))
    assert not list(fake.books.existing("vm"))


def test_an_error_with_the_status_200_proves_nothing(
    fake: TensorDock, clock: Clock, backend: TensorDockBackend
) -> None:
    made = list(backend.create(request(backend)))
    clock.passes(90)
    fake.script.faults.append(Fault("deleteInstance", lambda _: {"error": "Instance not found on node"}))
    with pytest.raises(Transient):
        backend.terminate(made[0])
    end_all(backend, clock.passes, made)


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (400, "Insufficient funds", QuotaExceeded),
        (400, "You need at least $1.00 in your account", QuotaExceeded),
        (400, "The hostnode does not have enough resources available", InsufficientCapacity),
        (409, "external port 20001 is already in use", InsufficientCapacity),
        (409, "A server with this name is being deployed", Transient),
        (404, "Location not found", InsufficientCapacity),
        (404, "GPU model x not found in this location", InsufficientCapacity),
        (404, "Not found", Transient),
        (422, "no gpus of this kind available", InsufficientCapacity),
        (402, "Your balance is too low", QuotaExceeded),
        (400, "unavailable", InsufficientCapacity),
        (400, "vcpu_count must be even", Unfit),
        (422, "cloud_init: unknown field", Unfit),
        (500, "No available nodes", Transient),
    ],
)
def test_what_a_creation_is_refused_with(
    fake: TensorDock, backend: TensorDockBackend, status: int, text: str, kind: type[BackendError]
) -> None:
    fake.script.faults.append(Fault("createInstance", Answer(status, {"error": text})))
    with pytest.raises(kind) as found:
        list(backend.create(request(backend)))
    assert text in str(found.value)


def test_a_refusal_of_unknown_meaning_is_a_creation_that_may_have_succeeded(
    fake: TensorDock, clock: Clock, backend: TensorDockBackend
) -> None:
    one, refusal = request(backend), Answer(409, {"error": "A server with this name is being deployed"})
    fake.script.faults.append(Fault("createInstance", refusal, "after"))
    with pytest.raises(Transient):
        list(backend.create(one))
    clock.passes(FACTS.visibility_lag / SECOND)
    assert len(list(backend.create(one))) == len(list(fake.books.existing("vm"))) == 1


@pytest.mark.parametrize(
    ("status", "refused", "says"),
    [
        ("StoppedDisassociated", InsufficientCapacity, "its host has taken them back"),
        ("Stopped", None, "no balance left"),
        ("ERROR", InsufficientCapacity, "has failed on its host"),
        ("Deleting", None, "somebody has deleted it"),
    ],
)
def test_what_is_no_machine_any_more_is_gone_and_then_deleted(
    fake: TensorDock, clock: Clock, backend: TensorDockBackend, status: str, refused: Any, says: str
) -> None:
    made = list(backend.create(request(backend)))
    clock.passes(90)
    assert backend.describe(made).state == "running"
    next(fake.books.existing("vm")).goes(clock.at, (0, status), (20 * SECOND, status))
    clock.passes(10)
    with pytest.raises(Gone, match=says) as found:
        backend.describe(made)
    assert found.value.refused is refused
    if status != "Deleting":
        end_all(backend, clock.passes, made)
        assert fake.billed() == 0.0 and not list(fake.books.existing("vm"))


def test_an_end_is_asked_for_once_where_the_list_is_older(
    fake: TensorDock, clock: Clock, backend: TensorDockBackend
) -> None:
    """And the instance may have gone within that time."""
    fake.end = SECOND
    one = request(backend)
    made = list(backend.create(one))
    clock.passes(90)
    list(backend.list_owned(one.instance_id))
    backend.terminate(made[0])
    clock.passes(2)
    backend.terminate(made[0])
    assert len(fake.calls_of("deleteInstance")) == 1
    clock.passes(2)
    with pytest.raises(Gone):
        backend.terminate(made[0])


def test_a_server_error_of_any_form_proves_nothing(fake: TensorDock, backend: TensorDockBackend) -> None:
    fake.script.faults.append(Fault("createInstance", Answer(500, {"message": "try again"})))
    with pytest.raises(Transient, match="try again"):
        list(backend.create(request(backend)))


def test_running_is_said_long_before_it_is_so(fake: TensorDock, clock: Clock, backend: TensorDockBackend) -> None:
    fake.addressed = 15 * MINUTE
    made = list(backend.create(request(backend)))
    for _ in range(14):
        clock.passes(60)
        assert backend.describe(made).state == "pending"
    clock.passes(90)
    assert backend.describe(made).state == "running"
    assert FACTS.provisioning_timeout > 20 * MINUTE


# --- calls ------------------------------------------------------------------------------------------------------------


def test_one_list_describes_all_and_addresses_are_looked_up_once(
    fake: TensorDock, clock: Clock, backend: TensorDockBackend
) -> None:
    made = [list(backend.create(request(backend, f"n{n}"))) for n in range(4)]
    clock.passes(90)
    fake.calls.clear()
    for _ in range(3):
        assert [getattr(each, "state", each) for each in backend.describe_several(made)] == ["running"] * 4
        clock.passes(10)
    assert (len(fake.calls_of("listInstances")), len(fake.calls_of("getInstance"))) == (3, 4)


def test_the_limit_of_an_organisation_is_kept(fake: TensorDock, clock: Clock) -> None:
    fake.script.rates["*"] = Rate(100, MINUTE)
    limited = TensorDockBackend(CONFIG, client(fake, clock, burst=20), clock.now)
    sent = 0
    for _ in range(300):
        try:
            list(limited.list_owned())
            sent += 1
        except Throttled as error:
            assert "takes no more calls" in str(error), "TensorDock itself refuses none"
            clock.passes(error.retry_after)
    assert sent > 100


@pytest.mark.parametrize(
    "answer",
    [Answer(404, {"error": "Location not found"}), Answer(410, {}), Answer(200, {"status": 404, "error": "Not found"})],
)
def test_a_list_that_isnt_found_ends_nothing(
    fake: TensorDock, clock: Clock, backend: TensorDockBackend, answer: Answer
) -> None:
    made = list(backend.create(request(backend)))
    clock.passes(90)
    fake.script.faults.append(Fault("listInstances", answer, times=3))
    for call in (
        lambda: backend.describe_several([made]),
        lambda: backend.terminate(made[0]),
        lambda: list(backend.list_owned()),
    ):
        with pytest.raises(Transient):
            call()
    assert backend.describe(made).state == "running"


def test_one_that_is_listed_is_there_though_it_isnt_found_by_itself(
    fake: TensorDock, clock: Clock, backend: TensorDockBackend
) -> None:
    made = list(backend.create(request(backend)))
    clock.passes(90)
    fake.script.faults.append(Fault("getInstance", Answer(404, {"error": "Not found"})))
    assert backend.describe(made).state == "pending", "its address isn't known yet"
    assert backend.describe(made).state == "running"


def test_a_list_that_lacks_an_instance_ends_nothing(fake: TensorDock, clock: Clock, backend: TensorDockBackend) -> None:
    made = list(backend.create(request(backend)))
    clock.passes(90)
    fake.script.faults.append(Fault("listInstances", lambda _: {"data": {"instances": []}}, times=2))
    assert backend.describe(made).state == "running"
    clock.passes(5)
    backend.terminate(made[0])
    assert fake.calls_of("deleteInstance")


def test_one_that_a_list_lacks_has_its_own_reason_to_be_gone(
    fake: TensorDock, clock: Clock, backend: TensorDockBackend
) -> None:
    made = list(backend.create(request(backend)))
    clock.passes(90)
    next(fake.books.existing("vm")).goes(clock.at, (0, "StoppedDisassociated"))
    fake.script.faults.append(Fault("listInstances", lambda _: {"data": {"instances": []}}))
    with pytest.raises(Gone, match="its host has taken them back") as found:
        backend.describe(made)
    assert found.value.refused is InsufficientCapacity


def test_a_new_one_is_described_at_once(fake: TensorDock, clock: Clock, backend: TensorDockBackend) -> None:
    """Though the list was read a moment before."""
    first = list(backend.create(request(backend)))
    assert backend.describe(first).state == "pending"
    second = list(backend.create(request(backend, "two")))
    assert backend.describe(second).state == "pending"


# --- what is requested and checked ------------------------------------------------------------------------------------


def test_docker_is_prepared_before_the_agent_starts(fake: TensorDock, backend: TensorDockBackend) -> None:
    one = request(backend)
    list(backend.create(one))
    body = fake.calls_of("createInstance")[0].body["data"]["attributes"]
    config = body["cloud_init"]
    assert body["ssh_key"] == NOBODYS_KEY and "ssh_key_id" not in body
    assert config["runcmd"][0] == docker_setup.PLACE != config["runcmd"][1]
    files = {each["path"]: each["content"] for each in config["write_files"]}
    assert [files[each] for each in config["runcmd"]] == [docker_setup.SCRIPT, one.user_data]


def test_only_the_regions_of_the_settings_are_offered(fake: TensorDock, clock: Clock) -> None:
    def with_regions(*names: str) -> TensorDockBackend:
        config = TensorDockBackendConfig.model_validate({"type": "tensordock", "creds": CREDS, "regions": names})
        return TensorDockBackend(config, client(fake, clock), clock.now)

    assert {each.region for each in with_regions("canada-winnipeg").offers()} == {"canada-winnipeg"}
    with_regions("Canada-Winnipeg").check()
    with pytest.raises(Unfit, match=r"no location mars\. .*canada-winnipeg, france-paris, united-states-chubbuck"):
        with_regions("mars").check()


def test_a_wrong_token_is_noticed_though_locations_are_shown_to_anybody(fake: TensorDock, clock: Clock) -> None:
    token = "another-token-0123456789"
    given = {"type": "tensordock", "creds": {**CREDS, "api_token": token}, "regions": ["canada-winnipeg"]}
    wrong = TensorDockClient(token, clock.now, send=sender(fake))
    backend = TensorDockBackend(TensorDockBackendConfig.model_validate(given), wrong)
    assert backend.offers()
    with pytest.raises(InvalidCredentials):
        backend.check()
