"""What goes on costing money at Lambda: each trap with the mistake that walks into it, which the check must notice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from chalicelib.backends.lambda_cloud.backend import LambdaBackend
from chalicelib.backends.lambda_cloud.client import Body, LambdaClient
from chalicelib.backends.lambda_cloud.facts import FACTS
from chalicelib.backends.spi import CreateRequest
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import HOUR, MINUTE, SECOND
from chalicelib.errors import BackendError, Gone, InsufficientCapacity, NotYet, Transient
from tests.backends.clock import Clock
from tests.backends.conformance.requests import request_for
from tests.backends.conformance.suite import end_all
from tests.backends.fakes.script import Cut, Fault
from tests.backends.fakes.transport import sender
from tests.backends.lambda_cloud.fake import KEY, KINDS, LambdaApi, stock
from tests.backends.lambda_cloud.provider import CONFIG

KIND = "gpu_8x_h100_sxm5"


class Account:
    def __init__(self, mistake: type[LambdaClient]) -> None:
        self.clock = Clock()
        self.fake = LambdaApi(self.clock.now)
        client = mistake(KEY, self.clock.now, send=sender(self.fake), burst=10_000, launches=10_000)
        self.backend = LambdaBackend(CONFIG, client, self.clock.now)

    def request(self, name: str = "one") -> CreateRequest:
        found = {(each.instance.name, each.region): each for each in self.backend.offers()}
        return request_for(found[KIND, "us-west-3"], name)

    def running(self, name: str = "one") -> list[Handle]:
        made = list(self.backend.create(self.request(name)))
        self.clock.passes(self.fake.boot / SECOND)
        assert self.backend.describe(made).state == "running"
        assert self.fake.billed() == KINDS[KIND].cents / 100
        return made

    def ended(self, made: Sequence[Handle]) -> None:
        end_all(self.backend, self.clock.passes, made)
        self.nothing_is_left()

    def swept(self) -> None:
        """By what is listed alone, as if nobody knew any handle."""
        end_all(self.backend, self.clock.passes, [each.handle for each in self.backend.list_owned()])
        self.nothing_is_left()

    def nothing_is_left(self) -> None:
        assert self.fake.billed() == 0.0
        assert not [each for each in self.fake.books.existing("vm") if "cluster" not in each.facts]


# --- the checks -------------------------------------------------------------------------------------------------------


def one_that_runs_is_ended(account: Account) -> None:
    account.ended(account.running())


def one_that_boots_is_swept(account: Account) -> None:
    list(account.backend.create(account.request()))
    account.clock.passes(60)
    account.swept()


def one_that_is_unhealthy_is_swept(account: Account) -> None:
    account.running()
    next(account.fake.books.existing("vm")).goes(account.clock.now(), (0, "unhealthy"))
    account.clock.passes(60)
    account.swept()


def one_whose_launch_was_lost_is_swept(account: Account) -> None:
    account.fake.script.faults.append(Fault("launchInstance", Cut, "after"))
    with pytest.raises(Transient):
        list(account.backend.create(account.request()))
    account.clock.passes(account.fake.boot / SECOND)
    assert account.fake.billed() > 0
    account.swept()


def one_whose_launch_was_lost_is_taken_up(account: Account) -> None:
    one = account.request()
    account.fake.script.faults.append(Fault("launchInstance", Cut, "after"))
    with pytest.raises(Transient):
        list(account.backend.create(one))
    account.clock.passes(FACTS.visibility_lag / SECOND)
    list(account.backend.create(one))
    assert account.fake.billed() == KINDS[KIND].cents / 100


def a_second_one_is_ended(account: Account) -> None:
    """Of a launch that was listed too late."""
    one = account.request()
    account.fake.script.lag = MINUTE
    account.fake.script.faults.append(Fault("launchInstance", Cut, "after"))
    with pytest.raises(Transient):
        list(account.backend.create(one))
    account.clock.passes(FACTS.visibility_lag / SECOND)
    list(account.backend.create(one))
    account.clock.passes(300)
    list(account.backend.create(one))
    account.clock.passes(account.fake.end / SECOND)
    assert account.fake.billed() == KINDS[KIND].cents / 100


def one_whose_end_was_lost_is_ended(account: Account) -> None:
    made = account.running()
    account.fake.script.faults.append(Fault("terminateInstance", Cut))
    account.ended(made)


def one_that_cant_be_ended_yet_is_ended(account: Account) -> None:
    account.fake.unready = 2 * MINUTE
    made = list(account.backend.create(account.request()))
    account.clock.passes(60)
    account.ended(made)


def one_that_a_list_lacks_is_ended(account: Account) -> None:
    made = account.running()
    account.fake.script.faults.append(Fault("listInstances", lambda _: {"data": []}))
    account.ended(made)


def one_that_isnt_shown_yet_is_ended(account: Account) -> None:
    account.fake.script.lag = 15 * SECOND
    account.ended(list(account.backend.create(account.request())))


def one_of_another_project_runs_on(account: Account) -> None:
    kept = account.running("kept")
    other = list(account.backend.create(account.request("other")))
    account.clock.passes(account.fake.boot / SECOND)
    end_all(account.backend, account.clock.passes, other)
    assert [each.id for each in account.fake.books.existing("vm")] == [kept[0].id]


def nodes_that_people_have_booked_run_on(account: Account) -> None:
    booked = account.fake.booked_node()
    account.running()
    account.clock.passes(60)
    account.swept()
    assert booked.state(account.clock.now()) == "active"


def nothing_is_launched_where_nothing_is_left(account: Account) -> None:
    account.fake.script.limits[stock(KIND, "us-west-3")] = 0
    with pytest.raises(InsufficientCapacity):
        list(account.backend.create(account.request()))
    assert not account.fake.calls_of("launchInstance")


def prices_are_those_that_are_billed(account: Account) -> None:
    price = account.request().offer.price
    account.running()
    assert price == account.fake.billed()


def what_has_ended_is_ended_once(account: Account) -> None:
    account.fake.lingers = HOUR
    made = account.running()
    end_all(account.backend, account.clock.passes, made)
    assert len(account.fake.calls_of("terminateInstance")) == 1 and account.fake.billed() == 0.0


# --- the mistakes -----------------------------------------------------------------------------------------------------


class Mistake(LambdaClient):
    def launched(self, body: Body) -> Body:
        return body

    def launch(self, body: Body, region: str, secrets: Sequence[str]) -> Sequence[str]:
        return super().launch(self.launched(body), region, secrets)


class EndsNothing(Mistake):
    def terminate(self, id: str) -> None:
        """So it believes."""


class ListsWhatIsActive(Mistake):
    def instances(self) -> Sequence[Body]:
        return [each for each in super().instances() if each["status"] == "active"]


class ListsNoTags(Mistake):
    def instances(self) -> Sequence[Body]:
        return [{**each, "tags": [], "name": ""} for each in super().instances()]


class SetsNoTags(Mistake):
    def launched(self, body: Body) -> Body:
        return {**body, "tags": [], "name": "machine"}


class SetsNoTokenOrName(Mistake):
    def launched(self, body: Body) -> Body:
        tags = [each for each in body["tags"] if each["key"] != "dstack-token"]
        return {**body, "tags": tags, "name": "machine"}


class LaunchesAgain(Mistake):
    """When there is no answer."""

    def launch(self, body: Body, region: str, secrets: Sequence[str]) -> Sequence[str]:
        try:
            return super().launch(body, region, secrets)
        except Transient:
            return super().launch(body, region, secrets)


class TakesNoAnswerForTheEnd(Mistake):
    def terminate(self, id: str) -> None:
        try:
            super().terminate(id)
        except Transient:
            self.hidden = {*getattr(self, "hidden", ()), id}

    def instances(self) -> Sequence[Body]:
        return [each for each in super().instances() if each["id"] not in getattr(self, "hidden", ())]

    def instance(self, id: str) -> Body:
        if id in getattr(self, "hidden", ()):
            raise Gone("so it believes")
        return super().instance(id)


class TakesARefusalForTheEnd(TakesNoAnswerForTheEnd):
    def terminate(self, id: str) -> None:
        try:
            super().terminate(id)
        except NotYet:
            self.hidden = {id}

    def instances(self) -> Sequence[Body]:
        return [{**each, "actions": {}} for each in super().instances()]


class LooksUpNone(Mistake):
    """By its id."""

    def instance(self, id: str) -> Body:
        raise Gone("so it believes")


class EndsTheWholeAccount(Mistake):
    def terminate(self, id: str) -> None:
        for each in self.instances():
            super().terminate(str(each["id"]))


class OwnsEverything(Mistake):
    def instances(self) -> Sequence[Body]:
        bodies = super().instances()
        tags = next((each["tags"] for each in bodies if each["tags"]), [])
        return [{**each, "tags": tags} for each in bodies]


class SeesCapacityEverywhere(Mistake):
    def instance_types(self) -> Mapping[str, Body]:
        there = [{"name": each, "description": ""} for each in self.regions()]
        return {
            name: {**each, "regions_with_capacity_available": there} for name, each in super().instance_types().items()
        }


class PricesOneGpu(Mistake):
    def instance_types(self) -> Mapping[str, Body]:
        def one(body: Any) -> Any:
            kind = body["instance_type"]
            cents = kind["price_cents_per_hour"] // max(1, kind["specs"]["gpus"])
            return {**body, "instance_type": {**kind, "price_cents_per_hour": cents}}

        return {name: one(each) for name, each in super().instance_types().items()}


class ForgetsWhatEnds(Mistake):
    def instances(self) -> Sequence[Body]:
        return [{**each, "status": "active"} for each in super().instances()]


TRAPS: Sequence[tuple[Callable[[Account], None], type[LambdaClient]]] = [
    (one_that_runs_is_ended, EndsNothing),
    (one_that_boots_is_swept, ListsWhatIsActive),
    (one_that_boots_is_swept, ListsNoTags),
    (one_that_is_unhealthy_is_swept, ListsWhatIsActive),
    (one_whose_launch_was_lost_is_swept, SetsNoTags),
    (one_whose_launch_was_lost_is_taken_up, ListsNoTags),
    (one_whose_launch_was_lost_is_taken_up, SetsNoTokenOrName),
    (one_whose_launch_was_lost_is_taken_up, LaunchesAgain),
    (a_second_one_is_ended, EndsNothing),
    (a_second_one_is_ended, SetsNoTokenOrName),
    (one_whose_end_was_lost_is_ended, TakesNoAnswerForTheEnd),
    (one_that_cant_be_ended_yet_is_ended, TakesARefusalForTheEnd),
    (one_that_a_list_lacks_is_ended, LooksUpNone),
    (one_that_isnt_shown_yet_is_ended, EndsNothing),
    (one_of_another_project_runs_on, EndsTheWholeAccount),
    (nodes_that_people_have_booked_run_on, OwnsEverything),
    (nodes_that_people_have_booked_run_on, EndsTheWholeAccount),
    (nothing_is_launched_where_nothing_is_left, SeesCapacityEverywhere),
    (prices_are_those_that_are_billed, PricesOneGpu),
    (what_has_ended_is_ended_once, ForgetsWhatEnds),
]


@pytest.mark.parametrize("check", list(dict.fromkeys(check for check, _ in TRAPS)))
def test_nothing_goes_on_costing_money(check: Callable[[Account], None]) -> None:
    check(Account(LambdaClient))


@pytest.mark.parametrize(("check", "mistake"), TRAPS)
def test_the_mistake_is_noticed(check: Callable[[Account], None], mistake: type[LambdaClient]) -> None:
    with pytest.raises((AssertionError, BackendError, pytest.fail.Exception)):
        check(Account(mistake))
