"""Percentiles from histograms, against those of the list of all durations."""

from __future__ import annotations

from itertools import pairwise
from math import ceil

from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.domain.latencies import BOUNDS, CELLS, Histogram, below, cell_of, merged, percentile, trimmed

DURATIONS = st.lists(st.floats(0, 1000) | st.sampled_from(BOUNDS), max_size=30)


def histogram(durations: list[float]) -> Histogram:
    cells = [0] * CELLS
    for each in durations:
        cells[cell_of(each)] += 1
    return trimmed(cells)


@settings(deadline=None, max_examples=25)
@given(DURATIONS, st.integers(1, 100))
def test_a_percentile_is_in_the_cell_of_the_exact_one(durations: list[float], percent: int) -> None:
    found = percentile(histogram(durations), percent)
    if not durations:
        assert found is None
        return
    exact = sorted(durations)[ceil(len(durations) * percent / 100) - 1]
    cell = cell_of(exact)
    low, high = (0.0, *BOUNDS, BOUNDS[-1])[cell : cell + 2]
    assert found is not None and low <= found <= high
    assert found > low or cell in (0, CELLS - 1), "a cell doesn't have its lower bound"


@settings(deadline=None, max_examples=25)
@given(DURATIONS)
def test_a_greater_share_never_takes_less(durations: list[float]) -> None:
    found = [percentile(histogram(durations), percent) or 0 for percent in range(1, 101)]
    assert all(less <= more for less, more in pairwise(found))


@settings(deadline=None, max_examples=25)
@given(DURATIONS, DURATIONS, DURATIONS)
def test_merging_is_adding(one: list[float], two: list[float], three: list[float]) -> None:
    parts = [histogram(each) for each in (one, two, three)]
    assert merged(parts) == merged(reversed(parts)) == merged([merged(parts[:2]), parts[2]])
    assert merged(parts) == histogram([*one, *two, *three])


def test_requests_of_a_cell_are_spread_evenly() -> None:
    seconds = histogram([1.2] * 10)  # in the cell from 1 to 1.5 s
    assert [percentile(seconds, each) for each in (10, 50, 100)] == [1.05, 1.25, 1.5]
    assert percentile(histogram([1000.0]), 50) == BOUNDS[-1], "nobody knows how much longer it took"
    assert percentile((), 50) is None


def test_what_prometheus_reads_only_rises() -> None:
    found = below(histogram([0.001, 0.005, 0.3, 1000.0]))
    assert len(found) == len(BOUNDS)
    assert dict(zip(BOUNDS, found, strict=True))[0.005] == 2
    assert (found[0], found[-1]) == (2, 3)


def test_no_bound_is_more_than_twice_the_one_before() -> None:
    assert all(low < high <= 2 * low for low, high in pairwise(BOUNDS))
