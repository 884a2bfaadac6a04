"""Effects: who may act, what is written down when, and what each failure means."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from chalicelib import errors
from chalicelib.backends.accounts import Account
from chalicelib.backends.simulated.cloud import FACTS, FakeCloud
from chalicelib.backends.simulated.script import Fault
from chalicelib.backends.spi import CreateRequest, Owned, facts_of
from chalicelib.domain import keys
from chalicelib.domain.boot_script import read_user_data
from chalicelib.domain.instances import Handle, InstanceStatus
from chalicelib.domain.instants import SECOND
from chalicelib.domain.reasons import InstanceReason
from chalicelib.engine.bootstrap_tokens import bootstrap_token
from chalicelib.engine.effects.purchases import Purchases
from chalicelib.engine.effects.table import from_message, to_message
from chalicelib.errors import BackendError, Bug, InsufficientCapacity
from chalicelib.planning.kernel.failures import MEANINGS
from chalicelib.planning.kernel.plan import Effect
from chalicelib.planning.kernel.purchases import (
    Bought,
    Left,
    NotBought,
    NotDone,
)
from chalicelib.store import nouns
from chalicelib.store.port import Delete
from tests.engine.effect_bench import KEY, Bench


@pytest.fixture
def bench() -> Bench:
    return Bench()


# --- buying ---------------------------------------------------------------------------------------------------------


def test_purchase_is_written_down_and_concluded(bench: Bench) -> None:
    bench.executor.execute(bench.effect)
    assert bench.outcomes == [Bought(bench.unit, 0, bench.effect.act_until)]
    assert [handle.kind for handle in bench.instance.handles] == ["disk", "vm"]
    assert bench.instance.status is InstanceStatus.provisioning


def test_request_is_the_same_every_time_and_says_whose_it_is(bench: Bench) -> None:
    request = bench.request()
    assert request == Purchases(bench.executing().here).request(bench.instance)
    assert dict(request.tags) == {
        "dstack-install": "install",
        "dstack-project": bench.first.project_id,
        "dstack-instance": bench.first.id,
        "dstack-epoch": "0",
        "dstack-name": bench.first.name,
        "team": "blue",
    }
    token = bootstrap_token(KEY, bench.first.id, 0)
    assert read_user_data(request.user_data) == ("http://plane:3000", bench.first.id, token)


def test_another_epoch_is_another_request(bench: Bench) -> None:
    one = bench.request()
    other = bench.request(bench.instance.with_(epoch=1))
    assert one.token != other.token
    assert one.name != other.name
    assert one.user_data != other.user_data


def test_effect_of_an_older_commit_is_not_executed(bench: Bench) -> None:
    bench.executor.execute(replace(bench.effect, act_until=1))
    assert bench.outcomes == []
    assert bench.cloud.machines() == []


def test_effect_that_comes_late_is_left_to_the_next_pass(bench: Bench) -> None:
    """A call begun now might still run when another may act."""
    bench.place.at += FACTS.create_timeout // 2 + 1
    bench.executor.execute(bench.effect)
    assert bench.cloud.machines() == []


def test_effect_on_an_instance_that_has_ended_does_nothing(bench: Bench) -> None:
    bench.change(status=InstanceStatus.terminated)
    for effect in (bench.effect, bench.describe, bench.end, replace(bench.effect, unit="instance/nobody")):
        bench.executor.execute(effect)
    assert bench.outcomes == []


class Between(FakeCloud):
    """Does something else between the two handles."""

    def __init__(self, bench: Bench, do: Callable[[], None]) -> None:
        super().__init__(bench.place.now, script=bench.script)
        self.do = do

    def create(self, request: CreateRequest) -> Iterator[Handle]:
        for handle in super().create(request):
            yield handle
            self.do()
            self.do = lambda: None


def test_every_handle_is_written_before_the_next_resource_is_made(bench: Bench) -> None:
    seen: list[tuple[int, int]] = []
    cloud: Between
    cloud = Between(bench, lambda: seen.append((len(bench.instance.handles), len(cloud.resources()))))
    bench.with_backend(cloud).execute(bench.effect)
    assert seen == [(1, 1)]


def test_purchase_stops_where_it_is_not_wanted_any_more(bench: Bench) -> None:
    class Overtaken(FakeCloud):
        def create(self, request: CreateRequest) -> Iterator[Handle]:
            for handle in super().create(request):
                bench.change(status=InstanceStatus.terminating, reason=InstanceReason.error)
                yield handle

    cloud = Overtaken(bench.place.now, script=bench.script)
    bench.with_backend(cloud).execute(bench.effect)
    assert [body["kind"] for body in cloud.resources()] == ["disk"]
    assert len(bench.instance.handles) == 1
    assert bench.outcomes == []


def test_resource_made_for_an_instance_that_ended_meanwhile_is_given_back(bench: Bench) -> None:
    class Late(FakeCloud):
        def create(self, request: CreateRequest) -> Iterator[Handle]:
            made = list(super().create(request))
            bench.change(status=InstanceStatus.terminated)
            yield made[1]

    cloud = Late(bench.place.now, script=bench.script)
    bench.with_backend(cloud).execute(bench.effect)
    bench.place.at += bench.script.end
    assert cloud.machines() == []


def test_resource_made_for_an_instance_that_was_erased_meanwhile_is_given_back(bench: Bench) -> None:
    class Late(FakeCloud):
        def create(self, request: CreateRequest) -> Iterator[Handle]:
            made = list(super().create(request))
            bench.place.store.commit([Delete(keys.instance(bench.instance.id), expect=bench.instance.version)])
            yield made[1]

    cloud = Late(bench.place.now, script=bench.script)
    bench.with_backend(cloud).execute(bench.effect)
    bench.place.at += bench.script.end
    assert cloud.machines() == []


def test_writer_who_was_quicker_costs_no_handle(bench: Bench) -> None:
    store, inner = bench.place.store, bench.place.store.commit
    raced = []

    class Racing(FakeCloud):
        def create(self, request: CreateRequest) -> Iterator[Handle]:
            for handle in super().create(request):
                if not raced:
                    raced.append(handle)
                    store.before = lambda changes: None
                    current = bench.instance
                    inner([nouns.put(current.with_(message="quicker"))])
                yield handle

    bench.with_backend(Racing(bench.place.now)).execute(bench.effect)
    assert len(bench.instance.handles) == 2


# --- what a failure means -------------------------------------------------------------------------------------------

ALL_ERRORS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, BackendError) and kind is not BackendError
]


@pytest.mark.parametrize("kind", ALL_ERRORS)
def test_every_provider_error_has_a_row_of_its_own(kind: type[BackendError]) -> None:
    assert kind.__name__ in MEANINGS


@pytest.mark.parametrize(
    ("error", "when", "name", "made"),
    [
        ("InsufficientCapacity", "before", "InsufficientCapacity", 0),
        ("QuotaExceeded", "before", "QuotaExceeded", 0),
        ("InvalidCredentials", "before", "InvalidCredentials", 0),
        ("MissingPermission", "before", "MissingPermission", 0),
        ("Throttled", "before", "Throttled", 0),
        ("AlreadyThere", "before", "AlreadyThere", 0),
        ("Transient", "before", "Transient", 0),
        ("Bug", "before", "Transient", 0),
        ("Transient", "after", "Transient", 2),
        ("InsufficientCapacity", "between", "InsufficientCapacity", 1),
    ],
)
def test_failed_purchase_is_told(bench: Bench, error: str, when: str, name: str, made: int) -> None:
    bench.script.faults.append(Fault("create", error, when))  # type: ignore[arg-type]
    bench.executor.execute(bench.effect)
    (outcome,) = bench.outcomes
    assert isinstance(outcome, NotBought)
    assert outcome.error == name
    assert outcome.message
    assert len(bench.cloud.resources()) == made


def test_throttling_says_for_how_long(bench: Bench) -> None:
    bench.script.faults.append(Fault("create", "Throttled", retry_after=33.0))
    bench.executor.execute(bench.effect)
    (outcome,) = bench.outcomes
    assert isinstance(outcome, NotBought)
    assert outcome.retry_after == 33.0


def test_refused_after_a_part_was_made_leaves_nothing(bench: Bench) -> None:
    bench.script.faults.append(Fault("create", "InsufficientCapacity", "between"))
    bench.executor.execute(bench.effect)
    assert bench.instance.status is InstanceStatus.terminating
    for _ in range(5):
        bench.executor.execute(bench.end)
        bench.place.at += 10 * SECOND
    assert bench.instance.status is InstanceStatus.terminated
    assert bench.cloud.resources() == []


def test_refused_at_a_repeat_is_not_called_ended_unseen(bench: Bench) -> None:
    """The first try was cut short after a disk was made, and nobody wrote it down; the second is refused."""
    making = bench.cloud.create(bench.request())
    next(making)
    bench.place.at += FACTS.create_timeout + FACTS.visibility_lag
    until = bench.place.at + FACTS.create_timeout + FACTS.visibility_lag
    bench.change(act_until=until)
    bench.script.faults.append(Fault("create", "InsufficientCapacity"))
    bench.executor.execute(replace(bench.effect, act_until=until))
    assert bench.instance.status is InstanceStatus.terminating
    for _ in range(5):
        bench.executor.execute(bench.end)
        bench.place.at += 10 * SECOND
    assert bench.instance.status is InstanceStatus.terminated
    assert bench.cloud.resources() == []


# --- giving back ----------------------------------------------------------------------------------------------------


def ending(bench: Bench, **changes: object) -> None:
    bench.change(status=InstanceStatus.terminating, reason=InstanceReason.idle_timeout, **changes)


def test_end_is_asked_for_until_nothing_is_left(bench: Bench) -> None:
    bench.executor.execute(bench.effect)
    ending(bench)
    bench.executor.execute(bench.end)
    last = bench.outcomes[-1]
    assert isinstance(last, Left) and last.going
    assert bench.instance.status is InstanceStatus.terminating
    bench.place.at += 10 * SECOND
    bench.executor.execute(bench.end)
    last = bench.outcomes[-1]
    assert isinstance(last, Left) and not last.going
    assert bench.cloud.resources() == []


def test_cloud_that_lies_is_asked_again(bench: Bench) -> None:
    bench.executor.execute(bench.effect)
    ending(bench)
    bench.script.lies = 6  # three times for each of the two resources
    for _ in range(3):
        bench.executor.execute(bench.end)
        bench.place.at += 3600 * SECOND
    assert bench.instance.status is InstanceStatus.terminating
    bench.executor.execute(bench.end)
    bench.place.at += 10 * SECOND
    bench.executor.execute(bench.end)
    assert bench.instance.status is InstanceStatus.terminated
    assert bench.cloud.resources() == []


def test_machine_of_a_lost_reply_is_found_by_its_tag(bench: Bench) -> None:
    list(bench.cloud.create(bench.request()))
    bench.place.at += FACTS.create_timeout + FACTS.visibility_lag
    ending(bench)
    bench.executor.execute(bench.end)
    assert len(bench.instance.handles) == 2
    bench.place.at += 10 * SECOND
    bench.executor.execute(bench.end)
    assert bench.cloud.resources() == []


def test_nothing_is_called_gone_while_a_purchase_may_be_under_way(bench: Bench) -> None:
    ending(bench, due_at=bench.place.at)
    bench.executor.execute(bench.end)
    (outcome,) = bench.outcomes
    assert outcome == Left(bench.unit, 0, bench.place.at, bench.first.act_until)
    assert bench.instance.due_at == (bench.first.act_until or 0) + 1
    list(bench.cloud.create(bench.request()))  # it was
    for _ in range(5):
        bench.place.at += 10 * SECOND
        bench.executor.execute(bench.end)
    assert bench.instance.status is InstanceStatus.terminated
    assert bench.cloud.resources() == []


def test_what_is_left_is_asked_of_the_region_that_it_was_bought_in(bench: Bench) -> None:
    requests: list[tuple[str | None, str]] = []

    class Noting(FakeCloud):
        def list_owned(self, instance_id: str | None = None, region: str = "") -> Iterator[Owned]:
            requests.append((instance_id, region))
            return super().list_owned(instance_id, region)

    ending(bench, act_until=None)
    bench.with_backend(Noting(bench.place.now)).execute(bench.end)
    assert requests == [(bench.first.id, bench.first.offer.region)]


def test_somebody_elses_resource_is_left_alone(bench: Bench) -> None:
    class Shared(FakeCloud):
        def list_owned(self, instance_id: str | None = None, region: str = "") -> Iterator[Owned]:
            yield Owned(Handle(kind="vm", id="theirs"), "another install", "p", bench.first.id, 0)

        def terminate(self, handle: Handle) -> None:
            raise AssertionError(f"{handle} isn't ours")

    ending(bench, act_until=None)
    bench.with_backend(Shared(bench.place.now)).execute(bench.end)
    assert bench.outcomes == [Left(bench.unit, 0, bench.place.at)]


@pytest.mark.parametrize("call", ["list", "terminate"])
@pytest.mark.parametrize("error", ["Transient", "Throttled", "InvalidCredentials", "Bug"])
def test_failed_end_is_tried_again(bench: Bench, call: str, error: str) -> None:
    bench.executor.execute(bench.effect)
    ending(bench)
    bench.script.faults.append(Fault(call, error))  # type: ignore[arg-type]
    bench.executor.execute(bench.end)
    assert isinstance(bench.outcomes[-1], NotDone)
    for _ in range(4):
        bench.place.at += 10 * SECOND
        bench.executor.execute(bench.end)
    assert bench.instance.status is InstanceStatus.terminated


def test_an_effect_that_nobody_executes_is_a_bug(bench: Bench) -> None:
    with pytest.raises(Bug, match="nothing executes Effect"):
        bench.executor.execute(Effect(bench.end.unit, "aws", bench.end.act_until))


def test_end_is_not_begun_for_an_instance_that_is_wanted(bench: Bench) -> None:
    bench.executor.execute(bench.effect)
    bench.executor.execute(bench.end)
    assert len(bench.cloud.machines()) == 1


# --- whose backend --------------------------------------------------------------------------------------------------


def test_an_instance_is_bought_seen_and_ended_at_its_projects_account_alone(bench: Bench) -> None:
    class Forbidden(FakeCloud):
        """Another project's account of the same provider."""

        def __getattribute__(self, name: str) -> object:
            raise AssertionError(f"{name} of another project's account was used")

    others = Account(facts_of(FakeCloud), lambda: Forbidden(bench.place.now), "another-project")
    executor = bench.executing(others, Account.of(bench.cloud, bench.first.project_id))
    executor.execute(bench.effect)
    assert len(bench.cloud.machines()) == 1
    bench.place.at += 20 * SECOND
    executor.execute(bench.describe)
    ending(bench)
    executor.execute(bench.end)
    bench.place.at += 10 * SECOND
    executor.execute(bench.end)
    assert bench.cloud.resources() == []
    assert bench.instance.status is InstanceStatus.terminated


# --- a backend that was taken out -----------------------------------------------------------------------------------


def test_backend_that_is_not_configured_is_said_so_and_waited_for(bench: Bench) -> None:
    bench.executor.execute(bench.effect)
    ending(bench)
    bench.executing().execute(bench.end)
    assert bench.instance.status is InstanceStatus.terminating
    assert "isn't configured" in bench.instance.message
    bench.executor.execute(bench.end)
    bench.place.at += 10 * SECOND
    bench.executor.execute(bench.end)
    assert bench.instance.status is InstanceStatus.terminated


def test_an_error_of_a_backends_own_kind_means_what_its_root_means(bench: Bench) -> None:
    class NoneLeft(InsufficientCapacity):
        """A provider's own word for it."""

    class Shop(FakeCloud):
        def create(self, request: CreateRequest) -> Iterator[Handle]:
            raise NoneLeft("sold out")

    bench.with_backend(Shop(bench.place.now)).execute(bench.effect)
    (outcome,) = bench.outcomes
    assert isinstance(outcome, NotBought) and outcome.error == "InsufficientCapacity"


def test_an_effect_that_waited_too_long_is_left_to_the_next_pass(bench: Bench) -> None:
    bench.executor.execute(bench.effect)
    ending(bench)
    late, outcomes = bench.end, list(bench.outcomes)
    bench.place.at += SECOND
    bench.executor.execute(late)
    assert bench.outcomes == outcomes
    bench.place.at += SECOND  # a machine that is asked to end is gone by then
    assert len(bench.cloud.machines()) == 1


# --- through a queue --------------------------------------------------------------------------------------------------


def test_an_effect_comes_out_of_a_queue_as_it_went_in(bench: Bench) -> None:
    for effect in (bench.effect, bench.describe, bench.end):
        message = to_message(effect)
        assert (message["backend"], message["effect"]) == (FACTS.name, type(effect).__name__)
        assert from_message(json.loads(json.dumps(message))) == effect
    with pytest.raises(Bug, match="'Paint'"):
        from_message({"effect": "Paint"})
