"""What Vast.ai's users have run into, each as its fake does it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from chalicelib.backends.kit.rest import RestAnswer, RestCall
from chalicelib.backends.spi import CreateRequest, RegistryLogin
from chalicelib.backends.vastai.backend import VastAIBackend
from chalicelib.backends.vastai.cards import spelled
from chalicelib.backends.vastai.client import VastAIClient
from chalicelib.backends.vastai.errors import TABLE, failure_of
from chalicelib.domain.instants import DAY, MINUTE, SECOND
from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.domain.offers import Offer
from chalicelib.domain.specs.resources import ResourcesSpec
from chalicelib.engine.ports import PLAN_WAITS
from chalicelib.errors import (
    BackendError,
    ContainerFailed,
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
from tests.backends.fakes.script import Answer, Cut, Fault
from tests.backends.fakes.transport import sender
from tests.backends.vastai.fake import ENVIRONMENT, KEY, Vast, limits
from tests.backends.vastai.provider import CONFIG, NO_IMAGE, client, many

OCI = "Error response from daemon: OCI runtime create failed: runc create failed: unable to start container process"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def fake(clock: Clock) -> Vast:
    return Vast(clock.now)


@pytest.fixture
def backend(fake: Vast, clock: Clock) -> VastAIBackend:
    return VastAIBackend(CONFIG, client(fake, clock), clock.now)


def offers(backend: VastAIBackend, options: dict[str, Any] | None = None, **request: Any) -> list[Offer]:
    names = {name: request.pop(name) for name in ("spot", "max_price", "regions", "instance_types") if name in request}
    resources = ResourcesSpec.model_validate({"gpu": "1", **request})
    return list(backend.offers_for(OfferRequest(resources=resources, options=options or {}, **names)))


@pytest.fixture
def request_one(backend: VastAIBackend) -> CreateRequest:
    return request_for(offers(backend, gpu="RTX4090:4")[0])


@pytest.fixture
def bid(backend: VastAIBackend) -> CreateRequest:
    return request_for(offers(backend, gpu="RTX4090:4", spot=True)[0])


# --- what is offered --------------------------------------------------------------------------------------------------


def test_a_search_names_what_is_wanted_and_offers_what_fits(backend: VastAIBackend, fake: Vast) -> None:
    (one,) = offers(
        backend, gpu="RTX4090:24GB:2", cpu="8..", memory="100GB..", disk="200GB..", regions=("us-california",)
    )
    (call,) = fake.calls_of("searchOffers")
    wanted = {"gpu_name": {"in": ["RTX 4090"]}, "num_gpus": {"in": [2]}, "geolocation": {"in": ["US"]}, "limit": 100}
    assert wanted.items() <= call.body.items() and call.body["gpu_ram"]["gte"] < 24564 < call.body["gpu_ram"]["lte"]
    has = one.instance.resources
    assert (one.region, has.cpus, round(has.memory_mib / 1024), has.gpus[0].memory_mib) == (
        "us-california",
        32,
        125,
        24576,
    )
    assert (one.price, one.most_disk) == (round(0.8 + 200 * 0.15 / 720, 6), 1000)
    assert not offers(backend, gpu="RTX4090:2", memory="200GB.."), "two of four GPUs have half of the memory"
    assert not offers(backend, gpu="RTX4090:2", regions=("us-texas",))
    with pytest.raises(InsufficientCapacity, match=r"the country alone \(us\) finds nothing"):
        offers(backend, gpu="RTX4090:2", regions=("us",))
    assert not offers(backend, gpu="RTX4090:2", max_price=0.8), "with its disk it costs more"


def test_hosts_are_verified_reliable_and_of_a_data_center_if_wanted(fake: Vast, clock: Clock) -> None:
    config = CONFIG.with_(community_cloud=False)
    secure = VastAIBackend(config, client(fake, clock), clock.now)
    assert {each.instance.name for each in offers(secure, gpu="1..8")} == {"H100 SXM"}
    backend = VastAIBackend(CONFIG.with_(regions=("us", "ca-quebec", "pl")), client(fake, clock), clock.now)
    backend.check()
    assert {each.region for each in offers(backend)} == {"us-california", "us-texas", "us-virginia"}
    lax = offers(backend, {"min_reliability": 0.5})
    assert "ca-quebec" in {each.region for each in lax} and "pl-poland" not in {each.region for each in lax}
    with pytest.raises(Unfit, match="no region US, California"):
        VastAIBackend(CONFIG.with_(regions=("US, California",)), client(fake, clock)).check()


def test_options_choose_the_order_and_the_score(backend: VastAIBackend, fake: Vast) -> None:
    for options, first in (({}, "score"), ({"offer_order": "price"}, "dph_total")):
        offers(backend, options)
        assert fake.calls_of("searchOffers")[-1].body["order"][0][0] == first
    assert {each.instance.name for each in offers(backend, {"min_score": 150})} == {"RTX 4090", "H100 SXM"}


@pytest.mark.parametrize("field", ["gpu_ram", "gpu_name", "num_gpus", "cpu_ram", "disk_space", "cpu_cores_effective"])
def test_a_row_that_lacks_something_costs_no_other(backend: VastAIBackend, fake: Vast, field: str) -> None:
    def odd(true: Any) -> Any:
        first, *others = true["offers"]
        return {**true, "offers": [{**first, field: None}, *others]}

    whole = offers(backend, gpu="1..8", spot=False)
    fake.script.faults.append(Fault("searchOffers", odd))
    assert len(offers(backend, gpu="1..8", spot=False, max_price=99)) == len(whole) - 1


def test_equal_requests_are_searched_for_once_in_a_while(backend: VastAIBackend, fake: Vast, clock: Clock) -> None:
    for _ in range(5):
        offers(backend)
    assert len(fake.calls_of("searchOffers")) == 1
    clock.passes(21)
    offers(backend)
    assert len(fake.calls_of("searchOffers")) == 2


def test_a_search_is_given_up_before_a_plan_stops_waiting_for_it(fake: Vast, clock: Clock) -> None:
    deadlines: list[float] = []

    def send(call: RestCall, deadline: float) -> RestAnswer:
        deadlines.append(deadline)
        return sender(fake)(call, deadline)

    backend = VastAIBackend(CONFIG, VastAIClient(KEY, clock.now, send=send), clock.now)
    assert offers(backend, spot=None) and len(deadlines) == 2, "of both markets"
    assert max(deadlines) < PLAN_WAITS / SECOND


def test_what_has_no_gpu_or_an_unknown_one_isnt_there(backend: VastAIBackend, fake: Vast) -> None:
    with pytest.raises(InsufficientCapacity, match="have 1 to 16 GPUs"):
        offers(backend, gpu=0)
    assert not offers(backend, gpu="Voodoo2") and fake.calls_of("searchOffers")[-1].body["gpu_name"] == {
        "in": ["VOODOO2"]
    }
    assert offers(backend, gpu="GH200", cpu="arm:4..")[0].instance.resources.cpu_arch == "arm"


@pytest.mark.parametrize(
    ("name", "at_vast"),
    [
        ("h100", ["H100 PCIE", "H100 SXM"]),
        ("RTX3080Ti", ["RTX 3080 Ti"]),
        ("rtx4070tisuper", ["RTX 4070S Ti"]),
        ("A6000", ["RTX A6000"]),
        ("V100", ["Tesla V100"]),
        ("L40S", ["L40S"]),
    ],
)
def test_cards_are_spelled_as_there(name: str, at_vast: list[str]) -> None:
    assert spelled([name]) == at_vast


# --- what is created --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [404, 410])
def test_an_offer_that_is_gone_by_then_leads_to_a_new_search(
    backend: VastAIBackend, fake: Vast, request_one: CreateRequest, clock: Clock, status: int
) -> None:
    fake.gone = status
    clock.passes(MINUTE / SECOND * 11)
    offers(backend, gpu="RTX4090:4")  # what this finds would serve for a while
    before = len(fake.calls_of("searchOffers"))
    with pytest.raises(InsufficientCapacity, match="somebody has rented it"):
        list(backend.create(request_one))
    (fresh,) = offers(backend, gpu="RTX4090:4")
    assert len(fake.calls_of("searchOffers")) > before and list(backend.create(request_for(fresh)))
    assert not offers(backend, gpu="RTX4090:2"), "nobody gets a part of what is rented as a whole"


def test_a_bid_is_above_the_least_and_is_what_is_paid(backend: VastAIBackend, fake: Vast, bid: CreateRequest) -> None:
    """Without a price, it would be on demand."""
    list(backend.create(bid))
    (call,) = fake.calls_of("createInstance")
    assert call.body["price"] == pytest.approx(0.2 * 4 * 1.1) and call.body["cancel_unavail"] is True
    assert bid.offer.price == pytest.approx(call.body["price"] + 100 * 0.15 / 720, abs=1e-5)
    assert bid.offer.key.endswith(f"/spot/{bid.offer.terms.listing}")


def test_a_bid_that_is_lost_at_once_leads_to_the_next_offer_and_leaves_nothing(
    backend: VastAIBackend, fake: Vast, bid: CreateRequest, clock: Clock
) -> None:
    fake.raised[101] = 0.5
    with pytest.raises(InsufficientCapacity):
        list(backend.create(bid))
    assert not list(fake.books.existing())
    fake.keeps_low_bids = True
    making = backend.create(bid)
    made = next(making)
    with pytest.raises(InsufficientCapacity, match="lost at once"):
        next(making)
    with pytest.raises(Gone) as gone:
        backend.describe([made])
    assert gone.value.refused is InsufficientCapacity and list(backend.create(bid)) == [made]
    backend.terminate(made)
    clock.passes(60)
    assert not list(fake.books.existing())


def test_a_login_that_would_break_a_command_line_is_refused(backend: VastAIBackend, request_one: CreateRequest) -> None:
    assert request_one.container is not None
    for user, password in (("te am", "pa55word"), ("team", "pa55'; word"), ("-v", "pa55word"), ("team", "")):
        container = replace(request_one.container, login=RegistryLogin(user, password))
        with pytest.raises(Unfit, match="login as a command line") as refused:
            list(backend.create(replace(request_one, container=container)))
        assert not password or password not in str(refused.value)


def test_more_variables_than_vastai_takes_are_refused_before_anything_is_bought(
    backend: VastAIBackend, fake: Vast, request_one: CreateRequest
) -> None:
    assert request_one.container is not None
    for size, fits in ((ENVIRONMENT // 2, True), (ENVIRONMENT, False)):
        container = replace(request_one.container, env={**request_one.container.env, "LARGE": "x" * size})
        request = replace(request_one, container=container)
        if fits:
            assert list(backend.create(request))
            continue
        with pytest.raises(Unfit, match="more than 32768 characters"):
            list(backend.create(replace(request, name="other")))
    assert len(fake.calls_of("createInstance")) == 1


# --- what becomes of it -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wish", ["stopped", "running"])
def test_a_lost_bid_is_a_lack_of_capacity_and_billed_until_it_is_destroyed(
    backend: VastAIBackend, fake: Vast, bid: CreateRequest, clock: Clock, wish: str
) -> None:
    (made,) = backend.create(bid)
    assert backend.describe([made]).state == "pending", "a new instance is stopped, too"
    clock.passes(60)
    assert backend.describe([made]).state == "running"
    (one,) = fake.books.existing("vm")
    if wish == "stopped":  # by who rents on demand
        list(backend.create(request_for(offers(backend, gpu="RTX4090:4")[0], "other")))
        assert fake.calls_of("createInstance")[-1].body.get("price") is None
    else:
        fake.outbid(one, wish)
    with pytest.raises(Gone, match="has lost its bid") as gone:
        backend.describe([made])
    assert gone.value.refused is InsufficientCapacity
    assert made in [each.handle for each in backend.list_owned()], "its disk is billed"
    backend.terminate(made)
    clock.passes(60)
    with pytest.raises(Gone):
        backend.terminate(made)


def test_an_account_without_credit_interrupts_what_it_rents(
    backend: VastAIBackend, fake: Vast, request_one: CreateRequest, clock: Clock
) -> None:
    made = list(backend.create(request_one))
    clock.passes(60)
    (one,) = fake.books.existing("vm")
    fake.outbid(one)
    with pytest.raises(Gone, match="no credit left") as gone:
        backend.describe(made)
    assert gone.value.refused is None
    one.goes(clock.now(), (0, "running"))  # it goes on by itself once there is some
    one.facts["wish"] = "running"
    assert backend.describe(made).state == "running"


def test_the_end_of_a_hosts_offer_is_announced(
    backend: VastAIBackend, fake: Vast, request_one: CreateRequest, clock: Clock
) -> None:
    ends = clock.now() + 30 * DAY
    assert request_one.offer.terms.ends_at == ends
    made = list(backend.create(request_one))
    clock.passes((30 * DAY - 6 * MINUTE) / SECOND)
    assert not backend.describe(made).interrupted
    clock.passes(2 * 60)
    found = backend.describe(made)
    assert (found.interrupted, found.reclaim_at) == (True, ends)
    clock.passes(5 * 60)
    fake.outbid(next(fake.books.existing("vm")))
    with pytest.raises(Gone, match="rents out the machine no longer"):
        backend.describe(made)


@pytest.mark.parametrize(
    ("state", "line", "minutes", "reason"),
    [
        ("loading", NO_IMAGE, 1, ContainerFailed),
        ("created", f'{OCI}: exec: "/bin/sh": stat /bin/sh: no such file or directory', 1, ContainerFailed),
        ("created", f"{OCI}: nvidia-container-cli: device error", 1, InsufficientCapacity),
        ("loading", "toomanyrequests: You have reached your pull rate limit", 4, InsufficientCapacity),
        ("setup", "", 11, InsufficientCapacity),
        ("created", "", 11, InsufficientCapacity),
        ("exited", "out of memory", 5, ContainerFailed),
        ("loading", "3f2a: Pulling fs layer", 19, None),
        ("offline", "", 19, None),
        ("unknown", "", 19, None),
    ],
)
def test_an_instance_that_doesnt_start_is_given_up_for_what_its_status_says(
    backend: VastAIBackend,
    fake: Vast,
    request_one: CreateRequest,
    clock: Clock,
    state: str,
    line: str,
    minutes: int,
    reason: type[BackendError] | None,
) -> None:
    made = list(backend.create(request_one))
    (one,) = fake.books.existing("vm")
    one.goes(clock.now(), (0, state))
    one.facts["message"] = line
    clock.passes(minutes * 60)
    if reason is None:
        assert backend.describe(made).state == "pending"
        return
    with pytest.raises(Gone) as gone:
        backend.describe(made)
    assert gone.value.refused is reason and line in str(gone.value)


# --- answers that prove nothing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_wrong_key_is_a_wrong_key_whatever_the_status(
    backend: VastAIBackend, fake: Vast, request_one: CreateRequest, clock: Clock, status: int
) -> None:
    made = list(backend.create(request_one))
    clock.passes(60)
    fake.wrong_key = status
    wrong = VastAIBackend(CONFIG, VastAIClient("another key", clock.now, send=sender(fake), burst=99), clock.now)
    for call in (wrong.check, lambda: wrong.describe(made), lambda: wrong.terminate(made[0])):
        with pytest.raises(InvalidCredentials):
            call()
    assert len(list(fake.books.existing())) == 1


def test_an_endpoint_that_was_retired_says_nothing_of_instances(fake: Vast) -> None:
    call = RestCall("GET", "https://x", "/api/v0/instances/", headers={"authorization": f"Bearer {KEY}"})
    assert sender(fake)(call, 1.0).status == 410
    failure = failure_of(410, {"success": False, "error": "deprecated_endpoint"})
    assert failure is not None and type(TABLE.error(failure, "DELETE")) is Transient


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, {"error": "no_such_instance"}, Gone),
        (404, {"success": False, "msg": "error 404/3603: no_such_ask"}, InsufficientCapacity),
        (404, {"message": "no_such_instance"}, Gone),
        (404, {"msg": "Not Found"}, Transient),
        (404, "Not Found", Transient),
        (410, {}, Transient),
        (200, {"success": False, "msg": "Insufficient credit to rent this"}, QuotaExceeded),
        (200, {"success": False}, Transient),
        (200, [], Transient),
        (400, {"error": "invalid_price", "msg": "bid too low"}, InsufficientCapacity),
        (400, {"error": "invalid_args"}, Unfit),
        (503, "Service temporarily unavailable", Transient),
        (429, "API requests too frequent", Throttled),
    ],
)
def test_the_text_decides_before_the_status(status: int, body: Any, kind: type[BackendError]) -> None:
    failure = failure_of(status, body)
    assert failure is not None and type(TABLE.error(failure, "PUT")) is kind


@pytest.mark.parametrize("body", [{}, {"success": True}, {"instances": None}, {"success": False, "instances": []}])
def test_a_list_that_isnt_there_isnt_an_empty_one(
    backend: VastAIBackend, fake: Vast, request_one: CreateRequest, clock: Clock, body: Any
) -> None:
    made = list(backend.create(request_one))
    clock.passes(60)
    calls = (lambda: backend.describe(made), lambda: list(backend.list_owned()), lambda: backend.terminate(made[0]))
    for call in calls:
        fake.script.faults.append(Fault("showInstances", lambda _: body))
        with pytest.raises(Transient):
            call()
    fake.script.faults.append(Fault("showInstances", lambda true: {**true, "instances": []}))
    assert backend.describe(made).state == "running", "nor is an empty one believed"


def test_an_instance_without_a_date_is_described_listed_and_destroyed(
    backend: VastAIBackend, fake: Vast, request_one: CreateRequest, clock: Clock
) -> None:
    (made,) = backend.create(request_one)
    clock.passes(60)

    def undated(true: Any) -> Any:
        return {**true, "instances": [{**each, "start_date": None} for each in true["instances"]]}

    fake.script.faults.append(Fault("showInstances", undated, times=99))
    (owned,) = backend.list_owned()
    (again,) = backend.create(request_one)
    assert owned.handle.id == again.id == made.id and backend.describe([again]).state == "running"
    backend.terminate(owned.handle)
    clock.passes(60)
    with pytest.raises(Gone):
        backend.terminate(owned.handle)


def test_a_new_instance_that_is_destroyed_is_no_error_until_it_is_known_to_be_gone(
    backend: VastAIBackend, request_one: CreateRequest, clock: Clock
) -> None:
    (made,) = backend.create(request_one)
    for _ in range(3):
        backend.terminate(made)
        clock.passes(10)
    clock.passes(30)
    with pytest.raises(Gone):
        backend.terminate(made)


@pytest.mark.parametrize("body", ["<html>Not Found</html>", {"msg": "Not Found"}, {}])
def test_an_instance_that_no_list_has_is_gone_by_any_404(
    backend: VastAIBackend, fake: Vast, request_one: CreateRequest, clock: Clock, body: Any
) -> None:
    made = list(backend.create(request_one))
    backend.terminate(made[0])
    clock.passes(60)
    for call in (lambda: backend.terminate(made[0]), lambda: backend.describe(made)):
        fake.script.faults.append(Fault("showInstance", Answer(404, body)))
        with pytest.raises(Gone):
            call()
    for status, error in ((404, "auth_error"), (410, "deprecated_endpoint"), (502, "")):
        fake.script.faults.append(Fault("showInstance", Answer(status, {"error": error})))
        with pytest.raises((InvalidCredentials, Transient)):
            backend.terminate(made[0])


@pytest.mark.parametrize("becomes", [Cut, Answer(504, "<html>"), Answer(401, {"error": "auth_error"})])
def test_an_end_counts_once_nothing_is_listed(
    backend: VastAIBackend, fake: Vast, request_one: CreateRequest, clock: Clock, becomes: Any
) -> None:
    (made,) = backend.create(request_one)
    clock.passes(60)
    fake.script.faults.append(Fault("destroyInstance", becomes))
    with pytest.raises((Transient, InvalidCredentials)):
        backend.terminate(made)
    fake.script.faults.append(Fault("destroyInstance", Answer(200, {"success": True})))  # and does nothing
    for _ in range(2):
        clock.passes(30)
        backend.terminate(made)
    clock.passes(30)
    with pytest.raises(Gone):
        backend.terminate(made)


# --- limits of each endpoint ------------------------------------------------------------------------------------------


def test_many_instances_are_described_and_listed_within_the_limits(fake: Vast, clock: Clock) -> None:
    """A list of three pages takes three seconds, and each call goes on where the last had to stop."""
    rich = VastAIBackend(CONFIG, client(many(fake), clock), clock.now)
    offer = offers(rich, gpu="RTX4090:4")[0]
    made = [list(rich.create(request_for(offer, f"n{n}"))) for n in range(60)]
    clock.passes(60)
    instance_id = request_for(offer, "n59").instance_id
    fake.script.rates.update(limits())
    backend = VastAIBackend(CONFIG, client(fake, clock, burst=1), clock.now)
    before = len(fake.calls_of("showInstances"))
    for _ in range(2):
        with pytest.raises(Throttled) as early:
            backend.describe_several(made)
        clock.passes(early.value.retry_after)
    assert {getattr(each, "state", each) for each in backend.describe_several(made)} == {"running"}
    assert len(list(backend.list_owned(instance_id))) == 1, "what ends then shares the list"
    assert len(fake.calls_of("showInstances")) - before == 3 and not fake.calls_of("showInstance")
    for _ in range(2):  # sweeps come every five minutes
        clock.passes(300)
        with pytest.raises(Throttled):
            list(backend.list_owned())
    clock.passes(300)
    assert len(list(backend.list_owned())) == 60


def test_sweeps_read_a_list_however_many_of_them_it_takes(fake: Vast, clock: Clock) -> None:
    pages = 40

    def send(call: RestCall, _: float) -> RestAnswer:
        at = int(dict(call.query).get("after_token", 0))
        token = str(at + 1) if at + 1 < pages else None
        return RestAnswer(200, {}, orjson.dumps({"instances": [{"id": at}], "next_token": token}))

    sweeping = VastAIClient(KEY, clock.now, send=send)
    for _ in range(pages - 1):
        with pytest.raises(Throttled):
            sweeping.instances_for_sweep()
        clock.passes(300)
    assert [body["id"] for body in sweeping.instances_for_sweep()] == list(range(pages))


def test_of_two_markets_that_are_too_many_at_once_one_answers(fake: Vast, clock: Clock) -> None:
    fake.script.rates.update(limits())
    backend = VastAIBackend(CONFIG, VastAIClient(KEY, clock.now, send=sender(fake)), clock.now)
    found = offers(backend, gpu="RTX4090:4", spot=None)
    assert len({each.instance.resources.spot for each in found}) == 1
    with pytest.raises(Throttled):
        offers(backend, gpu="RTX4090:2", spot=None)


def test_a_call_that_came_too_soon_pauses_its_endpoint_alone(
    backend: VastAIBackend, fake: Vast, request_one: CreateRequest, clock: Clock
) -> None:
    (made,) = backend.create(request_one)
    clock.passes(60)
    fake.script.rates.update(limits())
    backend.terminate(made)
    other = VastAIBackend(CONFIG, client(fake, clock), clock.now)  # of another process
    clock.passes(1)
    with pytest.raises(Throttled, match="too frequent") as early:
        other.terminate(made)
    assert early.value.retry_after == 5.0
    clock.passes(2)
    assert backend.describe([made]).state == "pending"
    with pytest.raises(Throttled):
        other.terminate(made)
    clock.passes(5)
    other.terminate(made)
