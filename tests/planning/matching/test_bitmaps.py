"""Sets of rows as bits: a column answers as a walk over it would."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.planning.matching.bitmaps import Column, first_of, rows_down, rows_of, selectors


def column(values: list[Any]) -> Column:
    return Column(values, range(len(values)))


@given(st.sets(st.integers(0, 300)))
def test_a_set_gives_back_its_rows_in_order(rows: set[int]) -> None:
    found = sum(1 << row for row in rows)
    assert list(rows_of(found)) == sorted(rows)
    assert list(rows_down(found)) == sorted(rows, reverse=True)
    assert [row for row, chosen in enumerate(selectors(found)) if chosen] == sorted(rows)
    assert not rows or first_of(found) == min(rows)


values = st.one_of(st.integers(0, 20), st.floats(0, 20).map(lambda value: round(value, 1)))


@given(st.lists(values, max_size=60), st.one_of(st.none(), values), st.one_of(st.none(), values))
def test_bounds_are_inclusive_and_none_is_no_bound(held: list[float], low: float | None, high: float | None) -> None:
    if low is not None and high is not None and low > high:
        low, high = high, low
    want = [n for n, value in enumerate(held) if (low is None or value >= low) and (high is None or value <= high)]
    assert list(rows_of(column(held).between(low, high))) == want


@pytest.mark.parametrize("different", [255, 256, 257, 1000])
def test_a_column_of_very_many_values_answers_alike(different: int) -> None:
    held = [(7919 * n) % different for n in range(2 * different)]
    values = column(held)
    for low, high in ((0, 0), (3, 3), (17, different // 2), (None, 200), (different - 2, None), (different, None)):
        want = [n for n, value in enumerate(held) if (low or 0) <= value <= (different if high is None else high)]
        assert list(rows_of(values.between(low, high))) == want


def test_rows_share_values() -> None:
    values = Column(["eu", "us"], [0, 1, 1, 0])
    assert list(rows_of(values.equal("us"))) == [1, 2]
    assert list(rows_of(values.any_of(["us", "eu", "asia"]))) == [0, 1, 2, 3]
    assert values.equal("asia") == 0


def test_nothing_is_in_an_empty_column() -> None:
    assert column([]).between() == column([]).between(1, 2) == column([]).equal(1) == 0
