"""What others wrote can be read and can do nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.printable import printable, printable_lines


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("plain, with ümläuts and 漢字 …", "plain, with ümläuts and 漢字 …"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[Hgone", "gone"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPq\x1b\\after", "after"),
        ("\x1bcreset", "reset"),
        ("\x1b(0lines", "lines"),
        ("cut \x1b", "cut "),
        ("cut \x1b[", "cut ["),
        ("a\rb\x08c\x7fd\x9be\0f", "a b c d e f"),
        ("left\u202eright\u2066", "left right "),
        ("two\r\nlines\nor\tthree", "two lines or three"),
    ],
)
def test_what_is_left_of_a_text(text: str, want: str) -> None:
    assert printable(text) == want


def test_lines_may_stay() -> None:
    assert printable_lines("one\r\n\ttwo\n\x1b[1mthree") == "one\n\ttwo\nthree"


@given(st.text(alphabet=st.characters() | st.sampled_from("\x1b[];m\x07\\P\x9b\x9c\n"), max_size=60))
@pytest.mark.slow
def test_nothing_that_acts_is_left(text: str) -> None:
    shown = printable(text)
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 or c in "\u2028\u202a\u202e" for c in shown)
    assert printable(shown) == shown
