"""Pages, regions, zones, look-ups, and what isn't listed yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

import pytest

from chalicelib.backends.kit.cache import LIFETIME, LookupCache
from chalicelib.backends.kit.paging import pages
from chalicelib.backends.kit.regions import by_region, everywhere, outcomes
from chalicelib.backends.kit.visibility import CREATED, check_settled, is_fresh, stamp
from chalicelib.backends.kit.zones import first_with_room, zone_token
from chalicelib.domain.instances import TRYING, Handle
from chalicelib.domain.instants import SECOND, from_iso
from chalicelib.errors import BackendError, InsufficientCapacity, QuotaExceeded, Transient, Unfit
from tests.backends.conformance.requests import request_for
from tests.backends.kit.backend import CirrusBackend
from tests.backends.kit.cirrus import KEY, SECRET, Cirrus

# --- pages -----------------------------------------------------------------------------------------------------------


def test_all_pages_are_read_in_their_order() -> None:
    tokens: list[str] = []

    def page(token: str) -> tuple[Sequence[int], str]:
        tokens.append(token)
        return {"": ([1, 2], "a"), "a": ([], "b"), "b": ([3], "")}[token]

    assert list(pages(page)) == [1, 2, 3]
    assert tokens == ["", "a", "b"]


def test_a_page_is_asked_for_when_it_is_needed() -> None:
    def page(token: str) -> tuple[Sequence[int], str]:
        if token:
            raise Transient("not now")
        return [1], "a"

    listing = pages(page)
    assert next(listing) == 1
    with pytest.raises(Transient):
        next(listing)


@pytest.mark.parametrize("then", [{"": "a", "a": "a"}, {"": "a", "a": "b", "b": "a"}])
def test_pages_that_lead_in_a_circle_are_an_error(then: dict[str, str]) -> None:
    tokens: list[str] = []

    def page(token: str) -> tuple[Sequence[int], str]:
        tokens.append(token)
        return [1], then[token]

    with pytest.raises(Transient, match="has no end"):
        list(pages(page))
    assert len(tokens) == len(then)


# --- regions ---------------------------------------------------------------------------------------------------------


def test_every_region_answers_in_its_place() -> None:
    assert everywhere(["b", "a", "c"], str.upper) == ["B", "A", "C"]
    assert everywhere(["a"], str.upper) == ["A"] and everywhere([], str.upper) == []


def test_one_region_that_fails_makes_the_whole_fail() -> None:
    def ask(region: str) -> str:
        if region == "b":
            raise Transient("b is down")
        return region

    for regions in (["a", "b"], ["b"]):
        with pytest.raises(Transient):
            everywhere(regions, ask)


def test_items_are_asked_for_once_a_region_and_answered_in_their_order() -> None:
    requests: list[tuple[str, tuple[str, ...]]] = []

    def ask(region: str, items: Sequence[str]) -> Sequence[str | BackendError]:
        requests.append((region, tuple(items)))
        if region == "b":
            raise Transient("b is down")
        return outcomes(items, lambda item: item.upper())

    found = by_region(["a1", "b1", "a2"], lambda item: item[0], ask)
    assert [each if isinstance(each, str) else type(each).__name__ for each in found] == ["A1", "Transient", "A2"]
    assert sorted(requests) == [("a", ("a1", "a2")), ("b", ("b1",))]


def test_each_item_has_its_outcome() -> None:
    def ask(item: str) -> str:
        if item == "b":
            raise Unfit("not b")
        return item

    first, second, third = outcomes(["a", "b", "c"], ask)
    assert (first, str(second), third) == ("a", "not b", "c")
    with pytest.raises(ZeroDivisionError):  # which is no failure of a provider
        outcomes([0], lambda item: 1 // item)


# --- zones -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    zone: str


class Walk:
    """A walk through the zones a, b and c, of which some refuse."""

    def __init__(self, trying: str = "", **refusals: BackendError) -> None:
        backend = CirrusBackend(KEY, SECRET, lambda: 0, send=Cirrus(lambda: 0).send)
        request = request_for(backend.offers()[0])
        self.request, self.refusals, self.tried = request.__class__(**{**vars(request), "trying": trying}), refusals, ""
        self.announced: list[str] = []

    def launch(self, place: Place) -> str:
        self.tried += place.zone
        if place.zone in self.refusals:
            raise self.refusals[place.zone]
        return f"vm in {place.zone}"

    def go(self) -> str:
        places = [Place(zone) for zone in "abc"]
        walk = first_with_room(self.request, places, self.launch, lambda error: not isinstance(error, QuotaExceeded))
        while True:
            try:
                handle = next(walk)
            except StopIteration as end:
                return str(end.value)
            assert handle.kind == TRYING and handle.data == {"zone": handle.id}
            assert handle.id not in self.tried, "it is announced before it is tried"
            self.announced.append(handle.id)


def test_the_first_zone_with_room_has_the_machine() -> None:
    walk = Walk(a=InsufficientCapacity("none"), b=Unfit("not this type"))
    assert (walk.go(), walk.tried, walk.announced) == ("vm in c", "abc", ["b", "c"])
    assert (Walk().go(), Walk().announced) == ("vm in a", [])


def test_a_repeated_walk_begins_where_the_last_one_was() -> None:
    walk = Walk(trying="c", a=InsufficientCapacity("none"))
    assert (walk.go(), walk.tried, walk.announced) == ("vm in c", "c", [])


def test_what_no_other_zone_could_mend_ends_the_walk() -> None:
    walk = Walk(a=InsufficientCapacity("none"), b=QuotaExceeded("0 of 8"))
    with pytest.raises(QuotaExceeded):
        walk.go()
    assert walk.tried == "ab"


def test_no_zone_at_all_says_what_each_refused_with() -> None:
    short = Walk(a=InsufficientCapacity("none left"), b=Unfit("unsupported"), c=Unfit("unsupported"))
    with pytest.raises(InsufficientCapacity, match=r"No zone has c4 now\. a: none left; b: unsupported; c: unsup"):
        short.go()
    with pytest.raises(Unfit):
        Walk(a=Unfit("x"), b=Unfit("x"), c=Unfit("x")).go()


def test_each_zone_has_a_token_of_its_own() -> None:
    tokens = {zone_token(token, zone) for token in ("one", "two") for zone in ("a", "b")}
    assert len(tokens) == 4 and {len(token) for token in tokens} == {64}
    assert zone_token("one", "a") == zone_token("one", "a")


# --- look-ups --------------------------------------------------------------------------------------------------------


def test_a_look_up_is_made_once_in_its_lifetime() -> None:
    at, made = [0], list[str]()
    cache = LookupCache[str](lambda: at[0])

    def look_up() -> str:
        made.append("x")
        return f"value {len(made)}"

    assert [cache.get("a", look_up), cache.get("a", look_up)] == ["value 1"] * 2
    at[0] = LIFETIME
    assert cache.get("a", look_up) == "value 2"
    at[0] -= 1  # a clock that was put back makes nothing last longer
    assert cache.get("a", look_up) == "value 3"
    cache.clear()
    assert cache.get("a", look_up) == "value 4" and cache.get("b", look_up) == "value 5"


def test_a_look_up_that_fails_or_finds_nothing_worth_keeping_is_made_again() -> None:
    cache, answers = LookupCache[str](lambda: 0, keeps=bool), iter(["", "found"])

    def fails() -> str:
        raise Transient("not now")

    with pytest.raises(Transient):
        cache.get("a", fails)
    assert [cache.get("a", lambda: next(answers)) for _ in range(3)] == ["", "found", "found"]


# --- not listed yet --------------------------------------------------------------------------------------------------

MADE = datetime(2026, 11, 18, 12, 0, 30, 999_999, tzinfo=timezone(timedelta(hours=2)))
THEN, LAG = from_iso("2026-11-18T10:00:30Z"), 60 * SECOND


def test_a_stamp_is_the_same_in_every_time_zone() -> None:
    assert stamp(MADE) == stamp(MADE.astimezone(UTC)) == "2026-11-18T10:00:30Z"


def test_what_is_new_may_not_be_listed_yet() -> None:
    handle = Handle(kind="vm", id="vm-1", data={CREATED: stamp(MADE)})
    assert is_fresh(handle, THEN + LAG - 1, LAG) and not is_fresh(handle, THEN + LAG, LAG)
    assert not is_fresh(Handle(kind="vm", id="vm-1"), THEN, LAG)
    with pytest.raises(Transient, match="Example doesn't show vm-1 yet"):
        check_settled([Handle(kind="vm", id="old"), handle], THEN, LAG, "Example")
    check_settled([handle], THEN + LAG, LAG, "Example")
