"""Work on accounts in the embedded server: whom a slow provider keeps waiting, and what a person is told of a check."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from queue import Queue
from typing import Any

import pytest

from chalicelib.domain.market_answers import MarketAnswer
from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.domain.specs.resources import ResourcesSpec
from chalicelib.engine.ports import ConfigurationCheck
from chalicelib.errors import InvalidCredentials, Transient
from chalicelib.runtime.provider_threads import ProviderThreads

LONG = 300.0  # seconds that a test waits for what must come


@dataclass
class Root:
    """Each call holds its thread while its account is slow."""

    slow: set[str] = field(default_factory=set)
    begun: Queue[tuple[str, str]] = field(default_factory=Queue)
    over: threading.Event = field(default_factory=threading.Event)
    says: Exception | None = None

    def sweep(self, account: str) -> None:
        self._call("sweep", account)

    def refresh(self, account: str) -> None:
        self._call("refresh", account)

    def check(self, check: ConfigurationCheck) -> None:
        self._call("check", check.account)
        if self.says is not None:
            raise self.says

    def offers_for(self, account: str, request: OfferRequest) -> MarketAnswer:
        self._call("offers", account)
        if self.says is not None:
            raise self.says
        return MarketAnswer(1, error=account)

    def _call(self, what: str, account: str) -> None:
        hangs = account in self.slow  # before it is known to have begun: a test may change that then
        self.begun.put((what, account))
        if hangs:
            self.over.wait(LONG)

    def next(self, number: int) -> Counter[tuple[str, str]]:
        return Counter(self.begun.get(timeout=LONG) for _ in range(number))


def started(root: Any, **more: Any) -> ProviderThreads:
    made = ProviderThreads(lambda: root, **more)
    made.start()
    return made


def test_an_account_that_never_answers_delays_no_other_and_is_not_asked_twice_at_once() -> None:
    root = Root(slow={"aws-slow"})
    work = started(root)
    work.sweep("aws-slow")
    assert root.next(1) == Counter({("sweep", "aws-slow"): 1})
    for _ in range(3):  # a schedule that comes again and again meanwhile
        work.sweep("aws-slow")
        work.refresh("aws-slow")
    for number in range(50):
        work.sweep(f"aws-{number}")
    assert ("sweep", "aws-slow") not in (begun := root.next(50)) and len(begun) == 50
    assert work.busy("aws-slow") and not work.settle(0.0)
    root.over.set()
    assert root.next(2) == Counter({("refresh", "aws-slow"): 1, ("sweep", "aws-slow"): 1}), "each once more"
    assert work.settle(LONG) and not work.busy("aws-slow") and root.begun.empty()
    work.stop()


def test_a_project_with_many_slow_accounts_leaves_threads_to_the_others() -> None:
    many = [f"type{number}-bad" for number in range(20)]
    root = Root(slow={*many})
    work = started(root, threads=4)
    for account in many:
        work.sweep(account)
    assert len(root.next(2)) == 2, "half of them"
    work.sweep("aws-good")
    assert root.next(1) == Counter({("sweep", "aws-good"): 1})
    root.over.set()
    assert len(root.next(18)) == 18, "nothing is forgotten"
    work.stop()


def test_a_check_says_what_the_provider_says_while_the_accounts_own_sweep_hangs() -> None:
    root = Root(slow={"aws-slow"}, says=InvalidCredentials("no such key"))
    work = started(root)
    work.sweep("aws-slow")
    root.next(1)
    root.slow = set()
    with pytest.raises(InvalidCredentials, match="no such key"):
        work.check(ConfigurationCheck("slow", "aws", "{}"))
    root.says = None
    work.check(ConfigurationCheck("slow", "aws", "{}"))
    root.over.set()
    work.stop()


def test_a_check_that_takes_too_long_says_to_try_again() -> None:
    root = Root(slow={"aws-p"})
    work = started(root, patience=0.01)
    with pytest.raises(Transient, match="aws couldn't be checked"):
        work.check(ConfigurationCheck("p", "aws", "{}"))
    root.over.set()
    work.stop()


def test_before_the_start_whoever_asks_does_the_work() -> None:
    root = Root()
    before = threading.enumerate()
    work = ProviderThreads(lambda: root)  # type: ignore[arg-type, return-value]
    work.sweep("aws-p")
    work.refresh("aws-p")
    work.check(ConfigurationCheck("p", "aws", "{}"))
    assert len(root.next(3)) == 3 and set(threading.enumerate()) <= set(before)


def test_what_fails_holds_up_nothing() -> None:
    class Failing(Root):
        def sweep(self, account: str) -> None:
            super().sweep(account)
            raise ZeroDivisionError("a bug")

    root = Failing()
    work = started(root)
    for account in ("aws-a", "aws-b"):
        work.sweep(account)
        work.refresh(account)
    assert len(root.next(4)) == 4
    assert work.settle(LONG)
    work.stop()


REQUEST = OfferRequest(resources=ResourcesSpec())


def test_a_plan_waits_for_no_slow_market_and_gets_what_the_others_answered() -> None:
    root = Root(slow={"bazaar-p"})
    work = started(root, plan_waits=0.05)
    found: list[MarketAnswer | None] = []
    while found[1:] != [MarketAnswer(1, error="quick-p")]:  # it may need longer on a busy machine
        found = list(work.offers([("bazaar-p", REQUEST), ("quick-p", REQUEST)]))
        assert found[0] is None
    root.over.set()
    work.stop()


def test_a_market_that_fails_unexpectedly_is_as_one_that_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    work = started(Root(says=ZeroDivisionError("a bug")), plan_waits=LONG)
    assert list(work.offers([("bazaar-p", REQUEST)])) == [None]
    assert "bazaar-p couldn't be asked for a plan" in caplog.text
    work.stop()


def test_a_project_whose_plans_ask_slow_markets_leaves_threads_to_the_others() -> None:
    root = Root(slow={"bazaar-p"})
    work = started(root, threads=4, plan_waits=0.0)
    for _ in range(20):
        work.offers([("bazaar-p", REQUEST)])
    work.sweep("aws-good")
    begun = root.next(1)
    while ("sweep", "aws-good") not in begun:
        begun += root.next(1)
    assert begun["offers", "bazaar-p"] <= 2, "half of them"
    root.over.set()
    assert work.settle(LONG)
    assert begun["offers", "bazaar-p"] + root.begun.qsize() <= 2, "those whose plans were shown meanwhile aren't begun"
    work.stop()


def test_a_check_that_nobody_waits_for_any_more_is_not_begun() -> None:
    root = Root(slow={"aws-p"})
    work = started(root, threads=2, patience=0.0)
    work.sweep("aws-p")
    root.next(1)
    for _ in range(3):
        with pytest.raises(Transient):
            work.check(ConfigurationCheck("p", "aws", "{}"))
    root.over.set()
    assert work.settle(LONG) and root.begun.empty()
    work.stop()
