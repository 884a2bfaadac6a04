"""Small working versions of the ports: stores that count reads or note calls, blobs in memory, a book of given offers,
backends that have only facts."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from chalicelib.backends.accounts import Account, Accounts
from chalicelib.backends.spi import Backend
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instants import Micros
from chalicelib.domain.keys import Key
from chalicelib.domain.market_answers import MarketAnswer
from chalicelib.domain.offers import Offer
from chalicelib.engine.ports import Age
from chalicelib.planning.matching.offer_book import OfferBook
from chalicelib.store.memory import MemoryStore
from chalicelib.store.port import Index, Page, Record, Store
from tests.world.time import NOW


class CountingStore(MemoryStore):
    """Counts reads."""

    def __init__(self, now: Callable[[], Micros], max_lag: Micros = 0) -> None:
        super().__init__(clock=now, rng=random.Random(1), max_lag=max_lag)
        self.read = 0
        self.keys: list[Key] = []

    def get(self, key: Key) -> Record | None:
        self.read += 1
        self.keys.append(key)
        return super().get(key)

    def query(
        self,
        index: Index,
        partition: str,
        *,
        low: str = "",
        high: str = "",
        limit: int = 100,
        cursor: str | None = None,
        reverse: bool = False,
    ) -> Page:
        page = super().query(index, partition, low=low, high=high, limit=limit, cursor=cursor, reverse=reverse)
        self.read += len(page.records)
        return page


class RecordedStore:
    """A store, and what it was asked: the method of each call, and what that was given first."""

    def __init__(self, below: Store) -> None:
        self.below, self.calls = below, list[tuple[str, Any]]()

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any, **more: Any) -> Any:
            self.calls.append((name, given[0] if given else None))
            return getattr(self.below, name)(*given, **more)

        return call


class Blobs:
    """In memory."""

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}
        self.written_at = NOW  # whatever is put

    def put(self, name: str, data: bytes) -> None:
        self._blobs[name] = data

    def get(self, name: str) -> bytes | None:
        return self._blobs.get(name)

    def delete(self, *names: str) -> None:
        for name in names:
            self._blobs.pop(name, None)

    def list(self, prefix: str, after: str = "", limit: int = 1000) -> list[str]:
        return sorted(name for name in self._blobs if name.startswith(prefix) and name > after)[:limit]

    def dated(self, prefix: str, after: str = "", limit: int = 1000) -> Sequence[tuple[str, Micros]]:
        return [(name, self.written_at) for name in self.list(prefix, after, limit)]

    def tidy(self, before: Micros) -> None:
        """Nothing breaks off."""

    def link(self, name: str, seconds: int) -> str | None:
        return None


class Books:
    """A catalog of the same offers for every project."""

    def __init__(self, offers: Iterable[Offer] = (), error: str = "") -> None:
        offers = tuple(offers)
        self._book = OfferBook(offers, NOW)
        self._ages = {offer.backend: Age(NOW, error) for offer in offers}

    def book(self, project_id: str) -> OfferBook:
        return self._book

    def answers(self, project_id: str, queries: Iterable[tuple[str, str]]) -> dict[tuple[str, str], MarketAnswer]:
        return {}

    def ages(self, project_id: str) -> dict[str, Age]:
        return self._ages


def accounts(*known: BackendFacts) -> Accounts:
    """Backends that every project has and nobody calls."""

    def make() -> Backend:
        raise AssertionError("nothing here asks a backend")

    return Accounts(Account(facts, make) for facts in known)
