from __future__ import annotations

import pytest

from chalicelib.api.v1.preferences import LONGEST, applied, wait_of


@pytest.mark.parametrize(
    ("prefer", "seconds"),
    [("wait=10", 10), ('Wait = "7"', 7), ("respond-async, wait=3; x=y", 3), ("wait=3, wait=9", 3),
     ("wait=999999", LONGEST), ("", 0), ("wait", 0), ("wait=-1", 0), ("wait=1.5", 0), ("await=3", 0),
     ("wait=9999999", 0)],
)  # fmt: skip
def test_what_a_caller_prefers(prefer: str, seconds: int) -> None:
    assert wait_of(prefer) == seconds


def test_the_answer_says_how_long_it_waited_at_most() -> None:
    assert applied(10) == {"Preference-Applied": "wait=10"} and applied(0) == {}
