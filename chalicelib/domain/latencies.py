"""How long requests take, as histograms with fixed bounds: those of any doors and times are added up cell by cell, and
percentiles are read from the sum.

A histogram is a tuple of counts. Cell n has the requests that took longer than bound n - 1 and at most bound n, the
last one those beyond all bounds; zeros at the end are left out. Records and reports of other releases have the same
bounds, so others would need fields with other names.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate, zip_longest

BOUNDS = (
    0.005, 0.01, 0.015, 0.025, 0.04, 0.06, 0.1, 0.15, 0.25, 0.4, 0.6, 1.0,
    1.5, 2.5, 4.0, 6.0, 10.0, 15.0, 25.0, 40.0, 60.0, 100.0, 150.0, 300.0,
)  # fmt: skip
"""Seconds. Each is twice the one before at most, so that a percentile is off by less than that."""
MOST = BOUNDS[-1]  # what took longer counts as this in percentiles
CELLS = len(BOUNDS) + 1
Histogram = tuple[int, ...]


def cell_of(seconds: float) -> int:
    return bisect_left(BOUNDS, seconds)


def trimmed(cells: Sequence[int]) -> Histogram:
    """Without the zeros at the end."""
    used = len(cells)
    while used and not cells[used - 1]:
        used -= 1
    return tuple(cells[:used])


def merged(histograms: Iterable[Histogram]) -> Histogram:
    return tuple(map(sum, zip_longest(*histograms, fillvalue=0)))


def below(histogram: Histogram) -> tuple[int, ...]:
    """How many took at most as long as each of the bounds."""
    return tuple(accumulate((*histogram, *(0,) * (CELLS - len(histogram)))))[:-1]


def percentile(histogram: Histogram, percent: int) -> float | None:
    """The seconds in which this share of the requests was done, as if those of a cell were spread evenly between its
    bounds; the last bound, if they took longer than all. None without requests."""
    rank, before = sum(histogram) * percent / 100, 0
    if not rank:
        return None
    for cell, count in enumerate(histogram):
        if before + count >= rank:
            if cell >= len(BOUNDS):
                break
            low, high = (0.0, *BOUNDS)[cell : cell + 2]
            return low + (high - low) * (rank - before) / count
        before += count
    return MOST
