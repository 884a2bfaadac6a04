"""Handles, and which of several resources is there."""

from __future__ import annotations

import pytest

from chalicelib.backends.kit.handles import located
from chalicelib.backends.kit.visibility import CREATED, check_time, first_shown
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import SECOND, from_iso
from chalicelib.errors import Transient

BORN = "2026-01-02T03:04:05Z"
LAG = 10 * SECOND


def test_a_handle_says_where_and_since_when_and_nothing_that_is_empty() -> None:
    plain = located("disk", 7, "eu-1")
    assert (plain.kind, plain.id, plain.data) == ("disk", "7", {"region": "eu-1"})
    whole = located("vm", "a", "eu-1", zone="eu-1-b", created="2026-01-02T05:04:05.678+02:00", market="spot", type="")
    assert whole.data == {"region": "eu-1", "zone": "eu-1-b", "market": "spot", CREATED: BORN}


def first(listed: dict[str, str], found: dict[str, str], seconds: int) -> tuple[str, str] | None:
    handles = [located("vm", each, "eu-1", created=BORN) for each in ("a", "b")]
    now = from_iso(BORN) + seconds * SECOND

    def find(handle: Handle) -> str | None:
        return found.get(handle.id)

    shown = first_shown(handles, listed, find, now, LAG, "Example")
    return None if shown is None else (shown[0].id, shown[1])


def test_what_is_listed_needs_no_look_up_and_what_is_not_gets_one() -> None:
    assert first({"b": "listed"}, {"a": "found"}, 1) == ("b", "listed")
    assert first({}, {"b": "found"}, 11) == ("b", "found")
    assert first({}, {}, 11) is None


def test_nothing_that_is_missing_counts_as_gone_before_a_list_could_show_it() -> None:
    with pytest.raises(Transient, match="Example doesn't show a yet"):
        first({}, {}, 9)


def test_nothing_is_bought_so_late_that_it_would_be_taken_for_what_was_never_bought() -> None:
    check_time(0, LAG, LAG, "Example")
    with pytest.raises(Transient, match=r"Example answers slowly: .* took 11 seconds"):
        check_time(0, LAG + SECOND, LAG, "Example")
