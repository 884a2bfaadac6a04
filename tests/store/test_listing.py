"""Listings that are longer than a page, and the text that says where the next page begins."""

from __future__ import annotations

import base64

import pytest

from chalicelib.domain.keys import Key
from chalicelib.errors import Invalid
from chalicelib.store import cursors
from chalicelib.store.listing import PAGE, all_of, every, page_after
from chalicelib.store.memory import MemoryStore
from chalicelib.store.port import MAX_CHANGES, Put, Record, Store

NAMES = [f"secret/{number:04d}" for number in range(2 * PAGE + 1)]


def store_of(*names: str) -> Store:
    store = MemoryStore()
    records = [Record(Key("project/p", name), 1, b"{}", gsi1=("names", name[-4:])) for name in names]
    for start in range(0, len(records), MAX_CHANGES):
        store.commit([Put(record, 0) for record in records[start : start + MAX_CHANGES]])
    return store


def test_every_goes_on_over_all_pages_and_no_further_than_the_prefix() -> None:
    store = store_of("secres/a", "secret", *NAMES, "secret0", "secret0/a", "secreu/a")
    assert [record.key.sk for record in every(store, "project/p", "secret/")] == NAMES
    assert list(every(store, "project/other", "secret/")) == []


def test_an_index_is_listed_within_its_bounds() -> None:
    store = store_of(*NAMES[:5])
    assert [r.key.sk for r in all_of(store, "gsi1", "names", low="0001", high="0003")] == NAMES[1:3]


def test_a_page_begins_behind_a_name_that_may_be_gone() -> None:
    store = store_of("secret/a", "secret/ab", "secret/b", "secret/c", "secret0")

    def page(after: str, limit: int | None) -> str:
        return " ".join(r.key.sk[7:] for r in page_after(store, "project/p", "secret/", after=after, limit=limit))

    assert (page("", 2), page("a", 2), page("aa", 2), page("c", 2)) == ("a ab", "ab b", "ab b", "")
    assert page("", None) == "a ab b c"


def cursor(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


NONE = [cursor(text) for text in ("{", "{}", "[]", '["main","p","a","b"]', '["main","p",1,2,3]')]


@pytest.mark.parametrize("given", ["", "é", "!!!", *NONE])
def test_a_cursor_that_is_none_is_refused(given: str) -> None:
    with pytest.raises(Invalid, match="isn't one that this server issued"):
        cursors.decode(given, "main", "p")


def test_a_cursor_is_good_for_its_own_listing() -> None:
    record = Record(Key("project/p", "secret/ä?>"), 1, b"", gsi1=("names", "7"), gsi2=("others", "8"))
    for index, partition, sort in (
        ("main", "project/p", "secret/ä?>"),
        ("gsi1", "names", "7"),
        ("gsi2", "others", "8"),
    ):
        text = cursors.encode(index, partition, record)  # type: ignore[arg-type]
        assert cursors.decode(text, index, partition) == (sort, *record.key)  # type: ignore[arg-type]
        with pytest.raises(Invalid, match="another listing"):
            cursors.decode(text, index, "elsewhere")  # type: ignore[arg-type]
    with pytest.raises(Invalid, match="another listing"):
        cursors.decode(cursors.encode("gsi1", "names", record), "gsi2", "names")
    with pytest.raises(ValueError, match="isn't in gsi2"):
        cursors.position_of("gsi2", Record(Key("a", "b"), 1, b""))
