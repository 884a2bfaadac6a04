"""What goes on costing money at TensorDock: each trap, with the mistake that walks into it and must be noticed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from chalicelib.backends.spi import CreateRequest
from chalicelib.backends.tensordock.backend import TensorDockBackend
from chalicelib.backends.tensordock.client import Body, TensorDockClient
from chalicelib.backends.tensordock.facts import FACTS
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.errors import BackendError, Gone, InsufficientCapacity, Transient
from tests.backends.clock import Clock
from tests.backends.conformance.requests import request_for
from tests.backends.conformance.suite import end_all
from tests.backends.fakes.script import Answer, Cut, Fault
from tests.backends.fakes.transport import sender
from tests.backends.tensordock.fake import TOKEN, TensorDock
from tests.backends.tensordock.provider import CONFIG


class Account:
    def __init__(self, mistake: type[TensorDockClient]) -> None:
        self.clock = Clock()
        self.fake = TensorDock(self.clock.now)
        client = mistake(TOKEN, self.clock.now, send=sender(self.fake), burst=10_000)
        self.backend = TensorDockBackend(CONFIG, client, self.clock.now)

    def request(self, name: str = "one") -> CreateRequest:
        """For a machine with two GPUs."""
        found = (each for each in self.backend.offers() if len(each.instance.resources.gpus) == 2)
        return request_for(min(found, key=lambda each: each.price), name)

    def running(self, name: str = "one") -> list[Handle]:
        made = list(self.backend.create(self.request(name)))
        self.clock.passes(90)
        assert self.backend.describe(made).state == "running"
        assert self.fake.billed() > 0
        return made

    def ended(self, made: Sequence[Handle]) -> None:
        end_all(self.backend, self.clock.passes, made)
        self.nothing_is_left()

    def swept(self) -> None:
        """By what is listed alone, as if nobody knew any handle."""
        end_all(self.backend, self.clock.passes, [each.handle for each in self.backend.list_owned()])
        self.nothing_is_left()

    def nothing_is_left(self) -> None:
        assert self.fake.billed() == 0.0 and not list(self.fake.books.existing())

    def becomes(self, status: str) -> None:
        next(self.fake.books.existing("vm")).goes(self.clock.now(), (0, status))
        self.clock.passes(10)


# --- the checks -------------------------------------------------------------------------------------------------------


def one_that_runs_is_ended(account: Account) -> None:
    account.ended(account.running())


def one_that_is_built_is_swept(account: Account) -> None:
    list(account.backend.create(account.request()))
    account.clock.passes(5)
    account.swept()


def one_that_has_stopped_is_swept(account: Account) -> None:
    """Its GPUs are billed."""
    account.running()
    account.becomes("Stopped")
    account.swept()


def one_that_has_lost_its_gpus_is_swept(account: Account) -> None:
    """Its disk is billed."""
    account.running()
    account.becomes("StoppedDisassociated")
    assert account.fake.billed() > 0
    account.swept()


def one_that_has_failed_is_swept(account: Account) -> None:
    account.fake.short.add(account.request().offer.instance.name)
    list(account.backend.create(account.request()))
    account.clock.passes(60)
    account.swept()


def one_whose_creation_was_lost_is_swept(account: Account) -> None:
    account.fake.script.faults.append(Fault("createInstance", Cut, "after"))
    with pytest.raises(Transient):
        list(account.backend.create(account.request()))
    account.clock.passes(60)
    account.swept()


def one_whose_creation_was_lost_is_taken_up(account: Account) -> None:
    one = account.request()
    account.fake.script.faults.append(Fault("createInstance", Cut, "after"))
    with pytest.raises(Transient):
        list(account.backend.create(one))
    account.clock.passes(FACTS.visibility_lag / SECOND)
    list(account.backend.create(one))
    assert account.fake.billed() == pytest.approx(one.offer.price)


def a_second_one_is_ended(account: Account) -> None:
    """Of a creation that was listed too late."""
    one = account.request()
    account.fake.script.lag = 3 * MINUTE
    account.fake.script.faults.append(Fault("createInstance", Cut, "after"))
    with pytest.raises(Transient):
        list(account.backend.create(one))
    account.clock.passes(FACTS.visibility_lag / SECOND)
    list(account.backend.create(one))
    account.clock.passes(300)
    list(account.backend.create(one))
    account.clock.passes(account.fake.end / SECOND)
    assert account.fake.billed() == pytest.approx(one.offer.price)


def one_whose_end_was_lost_is_ended(account: Account) -> None:
    made = account.running()
    account.fake.script.faults.append(Fault("deleteInstance", Cut))
    account.ended(made)


def one_whose_end_fails_is_ended(account: Account) -> None:
    made = account.running()
    account.fake.script.faults.append(Fault("deleteInstance", Answer(500, {"error": "Internal error"}), times=3))
    account.ended(made)


def one_that_a_list_lacks_is_ended(account: Account) -> None:
    made = account.running()
    account.fake.script.faults.append(Fault("listInstances", lambda _: {"data": {"instances": []}}))
    account.ended(made)


def one_that_isnt_shown_yet_is_ended(account: Account) -> None:
    account.fake.script.lag = 25 * SECOND
    account.ended(list(account.backend.create(account.request())))


def another_one_runs_on(account: Account) -> None:
    kept = account.running("kept")
    other = list(account.backend.create(account.request("other")))
    account.clock.passes(60)
    end_all(account.backend, account.clock.passes, other)
    assert [each.id for each in account.fake.books.existing("vm")] == [kept[0].id]


def nothing_is_bought_at_another_price(account: Account) -> None:
    one = account.request()
    account.fake.dearer = 3.0
    account.clock.passes(61)
    with pytest.raises(InsufficientCapacity):
        list(account.backend.create(one))
    assert account.fake.billed() == 0.0


def prices_are_those_that_are_billed(account: Account) -> None:
    one = account.request()
    list(account.backend.create(one))
    assert account.fake.billed() == pytest.approx(one.offer.price)


def an_unknown_price_is_none(account: Account) -> None:
    account.fake.unpriced.add("per_gb_ram_hr")
    assert account.backend.offers() == []


# --- the mistakes -----------------------------------------------------------------------------------------------------


class Mistake(TensorDockClient):
    """What each gets wrong is what it overrides."""


class EndsNothing(Mistake):
    def delete(self, id: str) -> None:
        """So it believes."""


class StopsInstances(Mistake):
    """And doesn't delete them."""

    def delete(self, id: str) -> None:
        self._rest.call("POST", "instances", id, "stop")


class ListsWhatRuns(Mistake):
    def instances(self) -> Sequence[Body]:
        return [each for each in super().instances() if each["status"] == "running"]


class ListsNoNames(Mistake):
    def instances(self) -> Sequence[Body]:
        return [{**each, "name": ""} for each in super().instances()]


class NamesAnew(Mistake):
    def create(self, body: Body, region: str, secrets: Sequence[str]) -> str:
        inner = {**body["data"]["attributes"], "name": "machine"}
        return super().create({"data": {**body["data"], "attributes": inner}}, region, secrets)


class CreatesAgain(Mistake):
    """When there is no answer."""

    def create(self, body: Body, region: str, secrets: Sequence[str]) -> str:
        try:
            return super().create(body, region, secrets)
        except Transient:
            return super().create(body, region, secrets)


class TakesNoAnswerForTheEnd(Mistake):
    def delete(self, id: str) -> None:
        try:
            super().delete(id)
        except Transient:
            self.hidden = {*getattr(self, "hidden", ()), id}

    def instances(self) -> Sequence[Body]:
        return [each for each in super().instances() if each["id"] not in getattr(self, "hidden", ())]

    def instance(self, id: str) -> Body:
        if id in getattr(self, "hidden", ()):
            raise Gone("so it believes")
        return super().instance(id)


class LooksUpNone(Mistake):
    """By its id."""

    def instance(self, id: str) -> Body:
        raise Gone("so it believes")


class EndsTheWholeAccount(Mistake):
    def delete(self, id: str) -> None:
        for each in self.instances():
            super().delete(str(each["id"]))


class PricesItsGpusAlone(Mistake):
    def locations(self) -> Sequence[Body]:
        parts = dict.fromkeys(("per_vcpu_hr", "per_gb_ram_hr", "per_gb_storage_hr"), 0.0)
        return [{**each, "gpus": [{**card, "pricing": parts} for card in each["gpus"]]} for each in super().locations()]


class ReadsPricesOnce(Mistake):
    def locations(self) -> Sequence[Body]:
        self.known: Sequence[Body] = getattr(self, "known", None) or super().locations()
        return self.known


TRAPS: Sequence[tuple[Callable[[Account], None], type[TensorDockClient]]] = [
    (one_that_runs_is_ended, EndsNothing),
    (one_that_runs_is_ended, StopsInstances),
    (one_that_is_built_is_swept, ListsWhatRuns),
    (one_that_is_built_is_swept, ListsNoNames),
    (one_that_has_stopped_is_swept, ListsWhatRuns),
    (one_that_has_stopped_is_swept, StopsInstances),
    (one_that_has_lost_its_gpus_is_swept, ListsWhatRuns),
    (one_that_has_failed_is_swept, ListsWhatRuns),
    (one_whose_creation_was_lost_is_swept, NamesAnew),
    (one_whose_creation_was_lost_is_taken_up, ListsNoNames),
    (one_whose_creation_was_lost_is_taken_up, NamesAnew),
    (one_whose_creation_was_lost_is_taken_up, CreatesAgain),
    (a_second_one_is_ended, EndsNothing),
    (one_whose_end_was_lost_is_ended, TakesNoAnswerForTheEnd),
    (one_whose_end_fails_is_ended, TakesNoAnswerForTheEnd),
    (one_that_a_list_lacks_is_ended, LooksUpNone),
    (one_that_isnt_shown_yet_is_ended, EndsNothing),
    (another_one_runs_on, EndsTheWholeAccount),
    (nothing_is_bought_at_another_price, ReadsPricesOnce),
    (prices_are_those_that_are_billed, PricesItsGpusAlone),
    (an_unknown_price_is_none, PricesItsGpusAlone),
]


@pytest.mark.parametrize("check", list(dict.fromkeys(check for check, _ in TRAPS)))
def test_nothing_goes_on_costing_money(check: Callable[[Account], None]) -> None:
    check(Account(TensorDockClient))


@pytest.mark.parametrize(("check", "mistake"), TRAPS)
def test_the_mistake_is_noticed(check: Callable[[Account], None], mistake: type[TensorDockClient]) -> None:
    with pytest.raises((AssertionError, BackendError, pytest.fail.Exception)):
        check(Account(mistake))
