"""Durations in words."""

from __future__ import annotations

import pytest

from chalicelib.domain.instants import DAY, HOUR, MINUTE, SECOND, every, spoken


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (SECOND, "1 second"),
        (90 * SECOND, "90 seconds"),
        (MINUTE, "1 minute"),
        (20 * MINUTE, "20 minutes"),
        (HOUR, "1 hour"),
        (3 * DAY, "3 days"),
    ],
)
def test_a_duration_is_spoken_in_its_largest_whole_unit(duration: int, text: str) -> None:
    assert spoken(duration) == text


def test_what_comes_again_and_again() -> None:
    assert (every(MINUTE), every(20 * MINUTE), every(10 * SECOND)) == (
        "every minute",
        "every 20 minutes",
        "every 10 seconds",
    )
