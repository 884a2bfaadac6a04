"""The catalogue: what is on sale, how old that is, and what a bad minute of a provider does to it (nothing)."""

from __future__ import annotations

import pytest

from chalicelib.backends.fake import FakeCloud
from chalicelib.backends.fake_parts.script import Fault, Script
from chalicelib.backends.spi import Backend
from chalicelib.catalog.offers import LOOK_AGAIN, StoredCatalog
from chalicelib.domain.instants import HOUR
from chalicelib.domain.ranges import Range
from chalicelib.domain.specs.resources import CPUSpec, ResourcesSpec
from chalicelib.planning.offers import OfferBook, Query
from tests.engine.places import PROJECT, Place

ANY = Query(ResourcesSpec(cpu=CPUSpec(count=Range[int](min=1)), memory=Range[float](min=1.0)), spot=None)


class Blobs:
    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.reads = 0

    def get(self, name: str) -> bytes | None:
        self.reads += 1
        return self.kept.get(name)

    def put(self, name: str, data: bytes) -> None:
        self.kept[name] = data

    def delete(self, name: str) -> None:
        self.kept.pop(name, None)


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def backends(place: Place, script: Script) -> dict[str, Backend]:
    return {"dstack": FakeCloud(place.now, script=script)}


@pytest.fixture
def blobs() -> Blobs:
    return Blobs()


def test_empty_before_the_first_refresh(place: Place, blobs: Blobs) -> None:
    assert len(StoredCatalog(blobs, place).book(PROJECT)) == 0


def test_what_is_refreshed_is_read_back_whole(place: Place, blobs: Blobs, backends: dict[str, Backend]) -> None:
    StoredCatalog(blobs, place).refresh(backends)
    book = StoredCatalog(blobs, place).book(PROJECT)
    offers = backends["dstack"].offers()
    assert len(book) == len(offers)
    assert book.taken_at == place.at
    cheapest = min(offers, key=lambda offer: offer.price)
    assert book.match(ANY, 1)[0][0] == cheapest


def test_book_is_parsed_once_a_version(place: Place, blobs: Blobs, backends: dict[str, Backend]) -> None:
    catalog = StoredCatalog(blobs, place)
    catalog.refresh(backends)
    first = catalog.book(PROJECT)
    reads = blobs.reads
    assert catalog.book(PROJECT) is first
    assert blobs.reads == reads
    place.at += LOOK_AGAIN
    assert catalog.book(PROJECT) is first
    assert blobs.reads == reads + 1


def test_another_process_sees_a_refresh_soon(place: Place, blobs: Blobs, backends: dict[str, Backend]) -> None:
    reader = StoredCatalog(blobs, place)
    assert len(reader.book(PROJECT)) == 0
    StoredCatalog(blobs, place).refresh(backends)
    place.at += LOOK_AGAIN
    assert len(reader.book(PROJECT)) > 0


def test_backend_that_fails_keeps_its_last_offers_and_their_age(
    place: Place, blobs: Blobs, backends: dict[str, Backend], script: Script
) -> None:
    catalog = StoredCatalog(blobs, place)
    catalog.refresh(backends)
    before = place.at
    place.at += HOUR
    script.faults.append(Fault("offers", "Transient"))
    (taken,) = catalog.refresh(backends).values()
    assert taken.taken_at == before
    assert "Transient" in taken.error
    book: OfferBook = catalog.book(PROJECT)
    assert (len(book) > 0, book.taken_at) == (True, before)


def test_backend_that_never_answered_sells_nothing(
    place: Place, blobs: Blobs, backends: dict[str, Backend], script: Script
) -> None:
    script.faults.append(Fault("offers", "InvalidCredentials"))
    catalog = StoredCatalog(blobs, place)
    assert catalog.refresh(backends) == {}
    assert len(catalog.book(PROJECT)) == 0


def test_backend_that_is_taken_out_leaves_nothing_behind(
    place: Place, blobs: Blobs, backends: dict[str, Backend]
) -> None:
    catalog = StoredCatalog(blobs, place)
    catalog.refresh(backends)
    catalog.refresh({})
    assert len(catalog.book(PROJECT)) == 0
    assert list(blobs.kept) == ["catalog/head.json"]
