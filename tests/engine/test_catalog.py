"""The catalog: what is on sale to whom, how old that is, and what a provider's bad minute does to it (nothing)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from chalicelib.backends.accounts import Account, Accounts
from chalicelib.backends.simulated.cloud import FACTS, FakeCloud
from chalicelib.backends.simulated.script import Fault, Script
from chalicelib.backends.spi import Backend, IncompleteOffers
from chalicelib.catalog.offers import MAX_AGE, MAX_AGE_WITHOUT_OFFERS, PAGE, StoredCatalog, answer_from_json
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.ids import derive
from chalicelib.domain.instants import DAY, HOUR, MINUTE, Micros
from chalicelib.domain.market_answers import MarketAnswer
from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.domain.offers import NO_TERMS, Offer, OfferTerms
from chalicelib.domain.ranges import Range
from chalicelib.domain.specs.resources import CPUSpec, ResourcesSpec
from chalicelib.engine.ports import Age
from chalicelib.errors import InvalidCredentials, Refused, Throttled, Transient
from chalicelib.planning.matching.machine_index import Query
from chalicelib.planning.matching.offer_book import OfferBook
from tests.world.engine import Engine
from tests.world.nouns import PROJECT

ANY = Query(ResourcesSpec(cpu=CPUSpec(count=Range[int](min=1)), memory=Range[float](min=1.0)), spot=None)
OTHER = derive("test", "project", 2)
NIMBUS = BackendFacts(name="nimbus")


class Blobs:
    def __init__(self, clock: Callable[[], Micros] = lambda: 0) -> None:
        self.stored: dict[str, bytes] = {}
        self.written_at: dict[str, Micros] = {}
        self.reads: list[str] = []
        self._clock = clock

    def get(self, name: str) -> bytes | None:
        self.reads.append(name)
        return self.stored.get(name)

    def put(self, name: str, data: bytes) -> None:
        self.stored[name], self.written_at[name] = data, self._clock()

    def delete(self, *names: str) -> None:
        for name in names:
            self.stored.pop(name, None)

    def dated(self, prefix: str, after: str = "", limit: int = 1000) -> Sequence[tuple[str, Micros]]:
        names = sorted(name for name in self.stored if name.startswith(prefix) and name > after)
        return [(name, self.written_at[name]) for name in names[:limit]]


class Seller(FakeCloud):
    """An account of Nimbus: its own prices, and a failure on request."""

    def __init__(self, price: float) -> None:
        super().__init__(lambda: 0, facts=NIMBUS)
        self.price = price
        self.error: Exception | None = None
        self.terms = NO_TERMS

    def offers(self) -> Sequence[Offer]:
        if self.error is not None:
            raise self.error
        return [offer.with_(backend="nimbus", price=self.price, terms=self.terms) for offer in super().offers()[:3]]


class Sold(StoredCatalog):
    """The catalog, with every account refreshed as a schedule has it done."""

    def __init__(self, blobs: Blobs, clock: Engine, backends: Accounts) -> None:
        super().__init__(blobs, clock, backends)
        self.accounts = backends

    def refresh_all(self) -> None:
        self.forget_unused()
        for account in self.accounts.accounts():
            self.refresh(account.key)


def prices(book: OfferBook) -> list[float]:
    return [offer.price for offer in book.match(ANY, 100)[0]]


@pytest.fixture
def place() -> Engine:
    return Engine.in_memory()


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def cloud(place: Engine, script: Script) -> Backend:
    return FakeCloud(place.now, script=script)


@pytest.fixture
def backends(cloud: Backend) -> Accounts:
    return Accounts([Account.of(cloud)])


@pytest.fixture
def blobs(place: Engine) -> Blobs:
    return Blobs(place.now)


def test_empty_before_the_first_refresh(place: Engine, blobs: Blobs, backends: Accounts) -> None:
    catalog = Sold(blobs, place, backends)
    assert len(catalog.book(PROJECT)) == 0
    assert catalog.ages(PROJECT) == {FACTS.name: Age(None)}


def test_what_is_refreshed_is_read_back_whole(place: Engine, blobs: Blobs, cloud: Backend, backends: Accounts) -> None:
    Sold(blobs, place, backends).refresh_all()
    book = Sold(blobs, place, backends).book(PROJECT)
    offers = cloud.offers()
    assert len(book) == len(offers)
    assert book.taken_at == place.at
    cheapest = min(offers, key=lambda offer: offer.price)
    assert book.match(ANY, 1)[0][0] == cheapest


def test_book_is_parsed_once_a_version(place: Engine, blobs: Blobs, backends: Accounts) -> None:
    catalog = Sold(blobs, place, backends)
    catalog.refresh_all()
    first = catalog.book(PROJECT)
    reads = len(blobs.reads)
    assert catalog.book(PROJECT) is first
    assert len(blobs.reads) == reads
    place.at += MAX_AGE
    assert catalog.book(PROJECT) is first
    assert len(blobs.reads) == reads + 1


def test_prices_that_are_not_the_providers_are_said_and_stay_so_while_it_fails(place: Engine, blobs: Blobs) -> None:
    seller = Seller(1.0)
    catalog = Sold(blobs, place, Accounts([Account.of(seller, PROJECT)]))
    seller.terms = OfferTerms(prices="prices.csv, 2026-11-20")
    catalog.refresh_all()
    assert catalog.ages(PROJECT)["nimbus"].prices == "prices.csv, 2026-11-20"
    seller.error = Transient("later")
    catalog.refresh_all()
    assert catalog.ages(PROJECT)["nimbus"] == Age(place.at, "later", "prices.csv, 2026-11-20")
    seller.error, seller.terms = None, NO_TERMS
    catalog.refresh_all()
    assert catalog.ages(PROJECT)["nimbus"] == Age(place.at)


class Stall(Seller):
    """A market."""

    facts = NIMBUS.with_(name="bazaar", offers_last=MINUTE)

    def __init__(self) -> None:
        super().__init__(1.0)
        self.facts = Stall.facts

    def offers_for(self, request: OfferRequest) -> Sequence[Offer]:
        return [offer.with_(terms=OfferTerms(listing="one")) for offer in self.offers()] * 60


REQUEST = OfferRequest(resources=ResourcesSpec())
SELLER = ("bazaar", REQUEST.key)


def test_what_a_market_answers_is_kept_for_who_decides_and_it_is_in_no_list(place: Engine, blobs: Blobs) -> None:
    stall = Stall()
    market = Account.of(stall, PROJECT)
    catalog = Sold(blobs, place, Accounts([market, Account.of(Seller(1.0), PROJECT)]))
    catalog.refresh_all()
    assert len(catalog.book(PROJECT)) == 3 and catalog.book(PROJECT).live == ("bazaar",)
    assert set(catalog.ages(PROJECT)) == {"nimbus"} and not catalog.awaited()
    assert catalog.answers(PROJECT, [SELLER]) == {}
    answer = catalog.ask(market, REQUEST)
    assert (answer.at, answer.error, len(answer.offers)) == (place.at, "", 100)
    assert catalog.answers(PROJECT, [SELLER, SELLER, ("gone", "k")]) == {SELLER: answer}
    assert catalog.answers("another", [SELLER]) == {}, "another's answers are its own"
    for error, text in ((Transient("closed"), "closed"), (KeyError("x"), "the backend failed unexpectedly (KeyError)")):
        stall.error = error
        catalog.ask(market, REQUEST)
        assert catalog.answers(PROJECT, [SELLER])[SELLER].error == text


def test_old_answers_of_a_market_are_deleted_however_many_they_are(place: Engine, blobs: Blobs) -> None:
    market = Account.of(Stall(), PROJECT)
    catalog = Sold(blobs, place, Accounts([market]))
    for number in range(PAGE + 7):
        blobs.put(f"catalog/{market.key}/answers/{number}.json", b"{}")
    place.at += DAY
    catalog.ask(market, REQUEST)
    catalog.refresh_all()
    assert len(blobs.stored) == PAGE + 8
    place.at += 1
    blobs.reads.clear()
    catalog.forget_unused()
    assert len(blobs.stored) == 1 and catalog.answers(PROJECT, [SELLER])
    assert len(blobs.reads) == 1, "no answer is read for its age"
    Sold(blobs, place, Accounts([])).forget_unused()
    assert not blobs.stored


def test_what_a_market_couldnt_find_out_is_in_its_answer_beside_its_offers(place: Engine, blobs: Blobs) -> None:
    class Half(Stall):
        def offers_for(self, request: OfferRequest) -> Sequence[Offer]:
            place.at += 250_000
            return IncompleteOffers(super().offers_for(request)[:2], "no spot machines: its market is closed")

    market = Account.of(Half(), PROJECT)
    catalog, asked_at = Sold(blobs, place, Accounts([market])), place.at
    catalog.ask(market, REQUEST)
    answer = catalog.answers(PROJECT, [SELLER])[SELLER]
    assert (len(answer.offers), answer.lacking) == (2, "no spot machines: its market is closed")
    assert (answer.at, answer.took, answer.request) == (asked_at, 250_000, REQUEST.in_words)
    assert answer_from_json({"at": 1, "offers": [], "error": "", "new": 1}) == MarketAnswer(1), "of another version"


def test_an_account_that_becomes_a_market_leaves_no_list(place: Engine, blobs: Blobs) -> None:
    seller = Seller(1.0)
    before = Account.of(seller, PROJECT)
    Sold(blobs, place, Accounts([before])).refresh_all()
    assert blobs.stored
    market = Account(NIMBUS.with_(live_offers=True), lambda: seller, PROJECT)
    assert market.key == before.key
    catalog = Sold(blobs, place, Accounts([market]))
    catalog.refresh_all()
    assert not blobs.stored


def test_a_market_is_never_due_and_its_answers_set_no_schedule(place: Engine, blobs: Blobs) -> None:
    market, listed = Account.of(Stall(), PROJECT), Account.of(Seller(1.0), PROJECT)
    assert Sold(blobs, place, Accounts([market, listed])).due(MINUTE) == [listed.key]


def test_an_answer_that_took_long_replaces_none_that_was_asked_for_later(place: Engine, blobs: Blobs) -> None:
    class Slow(Stall):
        def offers_for(self, request: OfferRequest) -> Sequence[Offer]:
            if self.price == 1.0:
                self.price = 2.0
                place.at += MINUTE
                catalog.ask(market, request)
                self.price = 3.0
            return super().offers_for(request)

    market = Account.of(Slow(), PROJECT)
    catalog = Sold(blobs, place, Accounts([market]))
    catalog.ask(market, REQUEST)
    answer = catalog.answers(PROJECT, [SELLER])[SELLER]
    assert (answer.at, answer.offers[0].price) == (place.at, 2.0)


def test_an_account_is_due_before_its_offers_outlive_what_its_facts_say(place: Engine, blobs: Blobs) -> None:
    class Brief(Seller):
        facts = NIMBUS.with_(name="brief", offers_last=5 * MINUTE)

        def __init__(self) -> None:
            super().__init__(1.0)
            self.facts = Brief.facts

    slow, brief = Account.of(Seller(1.0), PROJECT), Account.of(Brief(), PROJECT)
    catalog = Sold(blobs, place, Accounts([slow, brief]))
    every = [slow.key, brief.key]
    assert sorted(catalog.due(MINUTE)) == sorted(every), "nobody has asked them"
    catalog.refresh_all()
    place.at += 3 * MINUTE
    assert catalog.due(MINUTE) == []
    assert catalog.due(2 * MINUTE) == [brief.key], "the next turn would be too late"
    assert sorted(catalog.due(MINUTE, longest=4 * MINUTE)) == sorted(every)
    place.at += 12 * MINUTE
    ages = catalog.ages(PROJECT)
    assert (ages["brief"].outlived, ages["nimbus"].outlived) == (None, None), "a refresh may be under way"
    place.at += 1
    ages = catalog.ages(PROJECT)
    assert (ages["brief"].outlived, ages["nimbus"].outlived) == (5 * MINUTE, None)


def test_another_process_sees_a_refresh_soon(place: Engine, blobs: Blobs, backends: Accounts) -> None:
    reader = Sold(blobs, place, backends)
    assert len(reader.book(PROJECT)) == 0
    Sold(blobs, place, backends).refresh_all()
    place.at += MAX_AGE
    assert len(reader.book(PROJECT)) > 0


def test_a_reader_that_is_overtaken_finds_what_it_was_told_of(place: Engine, blobs: Blobs, backends: Accounts) -> None:
    """Between the head that it read and the blob that this names, somebody refreshes."""
    writer = Sold(blobs, place, backends)
    writer.refresh_all()

    class Overtaken(Blobs):
        def get(self, name: str) -> bytes | None:
            found = blobs.get(name)
            if name.endswith("head.json"):
                place.at += HOUR
                writer.refresh_all()
            return found

    assert len(Sold(Overtaken(), place, backends).book(PROJECT)) > 0
    assert len(blobs.stored) == 3  # the head, and two refreshes' offers


def test_backend_that_fails_keeps_its_last_offers_and_their_age(
    place: Engine, blobs: Blobs, backends: Accounts, script: Script
) -> None:
    catalog = Sold(blobs, place, backends)
    catalog.refresh_all()
    before = place.at
    for error in ("Transient", "InvalidCredentials"):
        place.at += HOUR
        script.faults.append(Fault("offers", error))
        catalog.refresh_all()
        age = catalog.ages(PROJECT)[FACTS.name]
        assert (age.taken_at, error in age.error) == (before, True)
        book = catalog.book(PROJECT)
        assert (len(book) > 0, book.taken_at) == (True, before)
    catalog.refresh_all()
    assert catalog.ages(PROJECT) == {FACTS.name: Age(place.at)}


def test_backend_that_never_answered_sells_nothing_and_says_why(
    place: Engine, blobs: Blobs, backends: Accounts, script: Script
) -> None:
    script.faults.append(Fault("offers", "InvalidCredentials"))
    catalog = Sold(blobs, place, backends)
    catalog.refresh_all()
    age = catalog.ages(PROJECT)[FACTS.name]
    assert (age.taken_at, "InvalidCredentials" in age.error) == (None, True)
    assert len(catalog.book(PROJECT)) == 0


def test_backend_that_is_taken_out_leaves_nothing_behind(place: Engine, blobs: Blobs, backends: Accounts) -> None:
    Sold(blobs, place, backends).refresh_all()
    blobs.put("catalog/head.json", b"of an older version")
    without = Sold(blobs, place, Accounts())
    assert len(without.book(PROJECT)) == 0
    without.refresh_all()
    assert blobs.stored == {}


# --- before the first offers -----------------------------------------------------------------------------------------


def test_offers_are_awaited_until_the_first_answer_and_read_soon_after_it(place: Engine, blobs: Blobs) -> None:
    backends = Accounts([Account.of(Seller(1.0), PROJECT)])
    reader = Sold(blobs, place, backends)
    assert reader.book(PROJECT).awaited == ("nimbus",)
    Sold(blobs, place, backends).refresh_all()
    place.at += MAX_AGE_WITHOUT_OFFERS
    assert (len(reader.book(PROJECT)), reader.book(PROJECT).awaited) == (3, ())


@pytest.mark.parametrize(
    ("error", "awaited"),
    [
        (Transient("no answer"), True),
        (Throttled("too many calls"), True),
        (InvalidCredentials("a wrong key"), False),
        (ZeroDivisionError("a bug"), False),
    ],
)
def test_who_failed_is_asked_again_soon_if_that_may_help(
    place: Engine, blobs: Blobs, error: Exception, awaited: bool
) -> None:
    seller = Seller(1.0)
    catalog = Sold(blobs, place, Accounts([Account.of(seller, PROJECT)]))
    seller.error = error
    catalog.refresh_all()
    assert (catalog.book(PROJECT).awaited == ("nimbus",), len(catalog.awaited())) == (awaited, awaited)
    seller.error = None
    for account in catalog.awaited():
        catalog.refresh(account.key)
    assert (len(catalog.book(PROJECT)) > 0) == awaited


def test_an_account_with_older_offers_is_not_awaited(place: Engine, blobs: Blobs) -> None:
    seller = Seller(1.0)
    catalog = Sold(blobs, place, Accounts([Account.of(seller, PROJECT)]))
    catalog.refresh_all()
    seller.error = Transient("no answer")
    catalog.refresh_all()
    assert (catalog.book(PROJECT).awaited, catalog.awaited()) == ((), [])


# --- accounts of several projects ------------------------------------------------------------------------------------


def test_each_project_reads_its_own_account(place: Engine, blobs: Blobs) -> None:
    backends = Accounts([Account.of(Seller(1.0), PROJECT), Account.of(Seller(2.0), OTHER)])
    catalog = Sold(blobs, place, backends)
    catalog.refresh_all()
    assert (prices(catalog.book(PROJECT)), prices(catalog.book(OTHER))) == ([1.0] * 3, [2.0] * 3)
    assert len(catalog.book(derive("test", "project", 3))) == 0


@pytest.mark.parametrize("error", [Transient("a bad minute"), ZeroDivisionError("a bug")])
def test_a_failing_account_is_nobody_elses_business(place: Engine, blobs: Blobs, error: Exception) -> None:
    own, others = Seller(1.0), Seller(2.0)
    catalog = Sold(blobs, place, Accounts([Account.of(own, PROJECT), Account.of(others, OTHER)]))
    catalog.refresh_all()
    before, place.at = place.at, place.at + HOUR
    own.error, own.price, others.price = error, 3.0, 4.0
    catalog.refresh_all()
    assert (prices(catalog.book(PROJECT)), prices(catalog.book(OTHER))) == ([1.0] * 3, [4.0] * 3)
    assert catalog.ages(PROJECT)["nimbus"].taken_at == before
    assert catalog.ages(PROJECT)["nimbus"].error
    assert catalog.ages(OTHER) == {"nimbus": Age(place.at)}


def test_an_account_that_cannot_be_opened_says_why(place: Engine, blobs: Blobs) -> None:
    def make() -> Backend:
        raise Refused("The key file isn't there.")

    catalog = Sold(blobs, place, Accounts([Account(NIMBUS, make, PROJECT)]))
    catalog.refresh_all()
    assert catalog.ages(PROJECT) == {"nimbus": Age(None, "The key file isn't there.")}


def test_one_account_is_refreshed_alone(place: Engine, blobs: Blobs) -> None:
    own, others = Seller(1.0), Seller(2.0)
    backends = Accounts([Account.of(own, PROJECT), Account.of(others, OTHER)])
    catalog = Sold(blobs, place, backends)
    catalog.refresh_all()
    before = {name: body for name, body in blobs.stored.items() if OTHER in name}
    place.at += HOUR
    own.price = others.price = 5.0
    catalog.refresh(backends.accounts(PROJECT)[0].key)
    assert (prices(catalog.book(PROJECT)), prices(catalog.book(OTHER))) == ([5.0] * 3, [2.0] * 3)
    assert {name: body for name, body in blobs.stored.items() if OTHER in name} == before


def test_what_all_projects_share_is_read_once_and_beside_their_own(place: Engine, blobs: Blobs, cloud: Backend) -> None:
    own, others = Seller(0.001), Seller(99.0)
    backends = Accounts([Account.of(cloud), Account.of(own, PROJECT), Account.of(others, OTHER)])
    catalog = Sold(blobs, place, backends)
    catalog.refresh_all()
    blobs.reads.clear()
    shared = len(cloud.offers())
    books = [catalog.book(project_id) for project_id in (PROJECT, OTHER, *(f"project-{n}" for n in range(50)))]
    assert [len(book) for book in books[:3]] == [shared + 3, shared + 3, shared]
    assert all(book is books[2] for book in books[2:])
    assert len([name for name in blobs.reads if name.startswith(f"catalog/{FACTS.name}-all/")]) == 2
    assert prices(books[0])[0] == 0.001 and prices(books[1])[-1] == 99.0
    assert catalog.ages(PROJECT).keys() == {FACTS.name, "nimbus"}


def test_the_book_says_how_old_its_oldest_offers_are(place: Engine, blobs: Blobs, cloud: Backend) -> None:
    backends = Accounts([Account.of(cloud), Account.of(Seller(1.0), PROJECT)])
    catalog = Sold(blobs, place, backends)
    catalog.refresh_all()
    before, place.at = place.at, place.at + HOUR
    catalog.refresh(backends.accounts(OTHER)[0].key)
    assert catalog.book(PROJECT).taken_at == before
    assert catalog.book(OTHER).taken_at == place.at
