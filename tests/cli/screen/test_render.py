"""Tables as text: a pure function of cells and a width."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib import contract
from cli.screen.render import Cell, Table, as_json, cell_width, facts, render, wrap
from cli.screen.terminal import Terminal
from cli.tables.events import event_line
from tests.harness.whole import whole


def table(*rows: tuple[str, ...]) -> Table:
    found = Table(("NAME", "WHAT"))
    for row in rows:
        found.add(*row)
    return found


def test_piped_is_never_cut() -> None:
    long = "word " * 100 + "end"
    assert long in render(table(("a", long)))


def test_no_rows_are_headings_alone() -> None:
    assert render(table(), 80) == "NAME  WHAT"


def test_wraps_at_spaces_before_it_folds_words() -> None:
    assert render(table(("short", "one two three")), 14) == "NAME   WHAT\nshort  one two\n       three"


def test_an_indent_stays() -> None:
    assert render(table(("  job=1", "x")), 80).splitlines()[1] == "  job=1  x"


def test_a_word_is_folded_only_when_it_must_be() -> None:
    lines = render(table(("x" * 30, "y")), 20).splitlines()
    assert max(map(len, lines)) <= 20 and "".join(line.split()[0] for line in lines[1:]).startswith("x" * 20)


def test_numbers_stand_right() -> None:
    found = Table(("#", "A"), right=frozenset({0}))
    for number in (9, 10):
        found.add(str(number), "a")
    assert render(found).splitlines() == [" #  A", " 9  a", "10  a"]


def test_colour_only_when_asked() -> None:
    found = Table(("A",))
    found.add(Cell("bad", "bad"))
    assert "\x1b" not in render(found, 80)
    assert render(found, 80, True).splitlines()[1] == "\x1b[31mbad\x1b[0m"


def test_wide_characters_take_two_columns() -> None:
    assert cell_width("日本") == 4
    assert render(table(("日本", "x"), ("ab", "y")), 80).splitlines()[1:] == ["日本  x", "ab    y"]


def test_a_narrow_screen_is_kept_for_wide_characters_too() -> None:
    lines = render(table(("日" * 20, "本" * 20)), 14).splitlines()
    assert max(map(cell_width, lines)) <= 14


def test_facts_stand_in_a_column() -> None:
    assert facts([("A", "1"), ("Long", "two words")], 11) == "A     1\nLong  two\n      words"


UNSHOWN = "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
shown = st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zs", "Zl", "Zp"), exclude_characters=UNSHOWN)
texts = st.text(shown, max_size=20)
cells = st.lists(texts, max_size=6).map(" ".join)


@given(st.lists(st.tuples(cells, cells, cells), max_size=5), st.integers(30, 200))
@pytest.mark.slow
def test_whatever_the_cells_nothing_is_lost(rows: list[tuple[str, str, str]], width: int) -> None:
    found = Table(("ONE", "TWO", "THREE"))
    for row in rows:
        found.add(*row)
    text = "".join(render(found, width).split())
    assert sorted(text) == sorted("".join("".join(("ONE", "TWO", "THREE", *(c for row in rows for c in row))).split()))


@given(st.lists(st.tuples(cells, cells, cells), max_size=5), st.integers(30, 200))
@pytest.mark.slow
def test_it_fits_the_screen(rows: list[tuple[str, str, str]], width: int) -> None:
    found = Table(("ONE", "TWO", "THREE"))
    for row in rows:
        found.add(*row)
    assert all(cell_width(line) <= width for line in render(found, width).splitlines())


@given(cells, st.integers(2, 40))
def test_wrapped_lines_fit(text: str, width: int) -> None:
    assert all(cell_width(line) <= width for line in wrap(text, width))


HOSTILE = "\x1b]0;owned\x07\x1b[2J\x1b[1;31mgone\x1b[0m\rover\x9b31m\u202e"


@pytest.mark.parametrize("width", [None, 40])
def test_what_others_wrote_does_nothing_to_a_terminal(width: int | None) -> None:
    """Names, states and reasons come from jobs, machines and clouds: from anybody."""
    event = {
        "targets": [{"type": "job", "name": HOSTILE}],
        "actor_user": HOSTILE,
        "recorded_at": "2026-11-21T05:11:20+00:00",
        "message": f"{HOSTILE}\nfeigned line",
    }
    event = whole(contract.Event, event)
    for shown in (
        render(table((HOSTILE, HOSTILE)), width),
        facts([("why", HOSTILE)], width),
        event_line(event, width),
        as_json({"message": HOSTILE}),
    ):
        assert not {c for c in shown if ord(c) < 32 or 127 <= ord(c) < 160 or c == "\u202e"} - {"\n"}
        assert "gone" in shown
    assert "\nfeigned" not in event_line(event)
    assert json.loads(as_json(HOSTILE)) == HOSTILE, "for programs it is what it was"


def test_only_our_own_colours_reach_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal(watched=True, env={})
    terminal.print(f"\x1b[32mgood\x1b[0m {HOSTILE} \x1b[8mhidden")
    terminal.warn(HOSTILE)
    printed = capsys.readouterr()
    assert printed.out.startswith("\x1b[32mgood\x1b[0m gone") and printed.out.count("\x1b") == 3
    assert "\x1b[2J" not in printed.err and "owned" not in printed.out + printed.err
    terminal.write(HOSTILE.encode())
    assert capsys.readouterr().out == HOSTILE, "a log is what the job wrote"
