"""The catalog: the offers of every account, in one blob per account, with the time of the fetch.

Only a refresh calls the accounts and writes; everything else reads. Accounts are refreshed independently. One that
doesn't respond keeps its last offers, with their age and the error. If a short outage at a provider emptied the
catalog, waiting runs would fail. The offers of other accounts are unaffected.

Readers parse and rank an account's offers once per refresh, however many projects it serves. The account's head names
the blob with the offers, and the ranked offers are cached until that name changes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import orjson
from pydantic import TypeAdapter

from chalicelib.backends.spi import IncompleteOffers, LiveOffers
from chalicelib.domain.instants import DAY, MINUTE, SECOND, Micros
from chalicelib.domain.market_answers import MOST_LISTINGS, MarketAnswer
from chalicelib.domain.offers import Offer
from chalicelib.engine.ports import Age, Backends, Clock
from chalicelib.errors import BackendError, InsufficientCapacity, Throttled, Transient
from chalicelib.store.cache import Lru

if TYPE_CHECKING:
    from chalicelib.backends.accounts import Account
    from chalicelib.domain.offer_requests import OfferRequest
    from chalicelib.planning.matching.offer_book import AccountOffers, OfferBook

log = logging.getLogger(__name__)

FOLDER = "catalog"
MAX_AGE: Micros = 30 * SECOND  # the age at which a reader checks for a newer copy
LATE: Micros = 10 * MINUTE  # how late a refresh may be before plans say that offers are old
PAGE = 1000  # names that one request lists
KEEP_ANSWERS: Micros = DAY  # of markets: far longer than any is used
MAX_AGE_WITHOUT_OFFERS: Micros = 2 * SECOND  # the same while there are no offers yet, for which jobs wait


class OfferBlobs(Protocol):
    def get(self, name: str) -> bytes | None: ...

    def put(self, name: str, data: bytes) -> None: ...

    def delete(self, *names: str) -> None: ...

    def dated(self, prefix: str, after: str = "", limit: int = 1000) -> Sequence[tuple[str, Micros]]: ...


@dataclass(frozen=True)
class LastRefresh:
    """The result of an account's last refresh."""

    blob: str = ""  # the blob with its offers; empty if it has never responded
    taken_at: Micros | None = None
    error: str = ""  # why that refresh failed
    prices: str = ""  # the prices' source, if not the provider
    again: bool = False  # the error may be temporary

    @property
    def awaited(self) -> bool:
        """It has never responded, but may soon."""
        return not self.blob and (self.again or not self.error)


@dataclass
class _CachedAccount:
    """An account as this reader last saw it."""

    head: LastRefresh = LastRefresh()
    checked_at: Micros | None = None
    read: LastRefresh = LastRefresh()  # what the shelf was made from
    offers: AccountOffers | None = None


class StoredCatalog:
    def __init__(self, blobs: OfferBlobs, clock: Clock, backends: Backends) -> None:
        self._blobs, self._clock, self._backends = blobs, clock, backends
        self._lock = threading.Lock()
        self._cache: dict[str, _CachedAccount] = {}
        self._books: Lru[OfferBook] = Lru(64)

    # --- writing -----------------------------------------------------------------------------------------------------

    def refresh(self, key: str) -> LastRefresh | None:
        """Fetches one account's offers, independently of other accounts' refreshes. None if the account isn't
        configured (any more); its offers are then removed."""
        account = self._backends.account(key)
        if account is None:
            self._blobs.delete(*(name for name, _ in self._stored(f"{FOLDER}/{key}/")))
            return None
        if account.facts.live_offers:
            return None
        before = self._read_head(account.key)
        head = self._fetch(account, before)
        self._blobs.put(_head_of(account.key), orjson.dumps(asdict(head)))
        with self._lock:
            self._cache.setdefault(account.key, _CachedAccount()).checked_at = None
        # The replaced blob stays until the next refresh, because a reader may have read the head before it changed.
        in_use = {_head_of(account.key), head.blob, before.blob}
        stored = [name for name, _ in self._stored(f"{FOLDER}/{account.key}/")]
        self._blobs.delete(*(name for name in stored if name not in in_use))
        return head

    def due(self, turn: Micros, longest: Micros | None = None) -> list[str]:
        """The accounts whose offers expire, or get older than `longest`, before the next run. An account that failed to
        respond is due every time."""
        now, found = self._clock.now(), []
        for account in self._listing():
            taken_at, lasts = self._read_head(account.key).taken_at, account.facts.offers_last
            if taken_at is None or now + turn - taken_at >= (lasts if longest is None else min(lasts, longest)):
                found.append(account.key)
        return found

    def ask(self, account: Account, request: OfferRequest) -> MarketAnswer:
        """Ask a market, and keep its answer for those who decide, unless it was asked later and has answered that."""
        answer = answer_of(account, request, self._clock)
        name = _answer_blob(account.key, request.key)
        stored = self._blobs.get(name)
        if stored is None or orjson.loads(stored)["at"] <= answer.at:
            self._blobs.put(name, answer_to_json(answer))
        return answer

    def forget_unused(self) -> None:
        """Removes the offers of accounts that aren't configured any more, such as a deleted project's, the answers of
        markets that are too old for any decision, and a market's list from before it was one."""
        known: dict[str, Account | None] = {account.key: account for account in self._backends.accounts()}
        before = self._clock.now() - KEEP_ANSWERS
        unused = []
        for name, written_at in self._stored(f"{FOLDER}/"):
            key = name.split("/")[1]
            if key not in known:
                known[key] = self._backends.account(key)  # it may have been configured a moment ago
            account = known[key]
            if account is None:
                unused.append(name)
            elif name.startswith(_answers_of(key)):
                unused += [name] if written_at < before else []
            elif account.facts.live_offers:
                unused.append(name)
        self._blobs.delete(*unused)

    def _stored(self, prefix: str) -> Iterator[tuple[str, Micros]]:
        page = self._blobs.dated(prefix, limit=PAGE)
        yield from page
        while len(page) == PAGE:
            page = self._blobs.dated(prefix, page[-1][0], PAGE)
            yield from page

    def _listing(self) -> list[Account]:
        """The accounts that list their offers."""
        return [account for account in self._backends.accounts() if not account.facts.live_offers]

    def _fetch(self, account: Account, before: LastRefresh) -> LastRefresh:
        now = self._clock.now()
        try:
            offers = list(account.backend.offers())
        except BackendError as error:
            log.warning("keeping the previous offers of %s: %s", account.key, error)
            return replace(before, error=str(error), again=isinstance(error, Transient | Throttled))
        except Exception as error:  # a bug in its backend; the other accounts are still refreshed
            log.exception("the offers of %s stay as they are", account.key)
            return replace(before, error=f"the backend failed unexpectedly ({type(error).__name__})", again=False)
        blob = f"{FOLDER}/{account.key}/{now}.json"
        self._blobs.put(blob, _adapter().dump_json(offers, exclude_defaults=True))
        elsewhere = {offer.terms.prices for offer in offers} - {""}
        return LastRefresh(blob, now, prices=", ".join(sorted(elsewhere)))

    # --- reading -----------------------------------------------------------------------------------------------------

    def book(self, project_id: str) -> OfferBook:
        """The offers of the project's accounts, as of each one's last refresh."""
        with self._lock:
            every = self._backends.accounts(project_id)
            accounts = [each for each in every if not each.facts.live_offers]
            live = tuple(each.facts.name for each in every if each.facts.live_offers)
            cached = [self._read_offers(account.key) for account in accounts]
            awaited = tuple(a.facts.name for a, each in zip(accounts, cached, strict=True) if each.head.awaited)
            key = (awaited, live, *(each.read.blob for each in cached))
            return self._books.get(key, lambda: _bound(cached, awaited, live))

    def ages(self, project_id: str) -> Mapping[str, Age]:
        """The age of the offers of each of the project's backends, by type."""
        now = self._clock.now()
        with self._lock:
            accounts = [each for each in self._backends.accounts(project_id) if not each.facts.live_offers]
            heads = [(account.facts, self._cached(account.key).head) for account in accounts]
        return {facts.name: _age(head, facts.offers_last, now) for facts, head in heads}

    def awaited(self) -> list[Account]:
        """The accounts that have never responded, but may soon."""
        return [account for account in self._listing() if self._read_head(account.key).awaited]

    def answers(self, project_id: str, queries: Iterable[tuple[str, str]]) -> dict[tuple[str, str], MarketAnswer]:
        """What the project's markets have answered, by backend and key of the request."""
        accounts = {each.facts.name: each.key for each in self._backends.accounts(project_id)}
        found = {}
        for backend, key in dict.fromkeys(queries):
            body = self._blobs.get(_answer_blob(accounts[backend], key)) if backend in accounts else None
            if body is not None:
                found[backend, key] = answer_from_json(orjson.loads(body))
        return found

    def _read_offers(self, key: str) -> _CachedAccount:
        cached = self._cached(key)
        if not cached.head.blob:
            cached.offers, cached.read = None, cached.head
        elif cached.head.blob != cached.read.blob:
            body = self._blobs.get(cached.head.blob)
            if body is None:
                log.warning("the catalog names %s, which doesn't exist: refreshed meanwhile?", cached.head.blob)
                cached.checked_at = None
            else:
                cached.offers, cached.read = _parsed(body), cached.head
        return cached

    def _cached(self, key: str) -> _CachedAccount:
        now, cached = self._clock.now(), self._cache.setdefault(key, _CachedAccount())
        max_age = MAX_AGE if cached.head.blob else MAX_AGE_WITHOUT_OFFERS
        if cached.checked_at is None or not 0 <= now - cached.checked_at < max_age:
            cached.head, cached.checked_at = self._read_head(key), now
        return cached

    def _read_head(self, key: str) -> LastRefresh:
        body = self._blobs.get(_head_of(key))
        return LastRefresh() if body is None else LastRefresh(**orjson.loads(body))


def answer_of(account: Account, request: OfferRequest, clock: Clock) -> MarketAnswer:
    """What a market answers now, or why it doesn't."""
    backend, asked = account.backend, MarketAnswer(clock.now(), request=request.in_words)
    try:
        if not isinstance(backend, LiveOffers):  # its class has the method, so this one stands in for it
            backend.check()
            return replace(asked, error=f"the backend {account.facts.name} can't be used")
        found = backend.offers_for(request)
        missing = found.missing if isinstance(found, IncompleteOffers) else ""
        answer = replace(asked, offers=tuple(found)[:MOST_LISTINGS], lacking=missing)
    except InsufficientCapacity as error:
        answer = replace(asked, lacking=str(error))
    except BackendError as error:
        answer = replace(asked, error=str(error))
    except Exception as error:  # a bug in its backend: those who wait go on without it
        log.exception("asking %s for offers failed in a way its backend doesn't translate", account.key)
        answer = replace(asked, error=f"the backend failed unexpectedly ({type(error).__name__})")
    return replace(answer, took=clock.now() - asked.at)


def answer_to_json(answer: MarketAnswer) -> bytes:
    offers = orjson.Fragment(_adapter().dump_json(list(answer.offers), exclude_defaults=True))
    return orjson.dumps({**{each.name: getattr(answer, each.name) for each in fields(answer)}, "offers": offers})


def answer_from_json(body: Mapping[str, Any]) -> MarketAnswer:
    """Another version may have written more, or less."""
    known = {each.name: body[each.name] for each in fields(MarketAnswer) if each.name in body}
    return MarketAnswer(**{**known, "offers": tuple(_adapter().validate_python(body["offers"]))})


def _answers_of(key: str) -> str:
    return f"{FOLDER}/{key}/answers/"


def _answer_blob(key: str, request: str) -> str:
    return f"{_answers_of(key)}{request}.json"


@cache
def _adapter() -> TypeAdapter[list[Offer]]:
    return TypeAdapter(list[Offer])


def _parsed(body: bytes) -> AccountOffers:
    from chalicelib.planning.matching.offer_book import AccountOffers  # only who plans needs one

    return AccountOffers(_adapter().validate_json(body))


def _bound(cached: Sequence[_CachedAccount], awaited: Sequence[str], live: Sequence[str]) -> OfferBook:
    from chalicelib.planning.matching.offer_book import OfferBook

    taken = [each.read.taken_at for each in cached if each.read.taken_at is not None]
    account_offers = [each.offers for each in cached if each.offers]
    return OfferBook(taken_at=min(taken, default=0), accounts=account_offers, awaited=awaited, live=live)


def _age(head: LastRefresh, lasts: Micros, now: Micros) -> Age:
    late = head.taken_at is not None and now - head.taken_at > lasts + LATE
    return Age(head.taken_at, head.error, head.prices, lasts if late else None)


def _head_of(key: str) -> str:
    return f"{FOLDER}/{key}/head.json"
