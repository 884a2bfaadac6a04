"""Problems of a configuration as a person reads them."""

from __future__ import annotations

from pathlib import Path

from chalicelib.errors import Invalid, Problem
from cli.problems import render_problems


def test_place_sentence_line_and_caret(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text("type: task\n\tnmae: x\n")
    error = Invalid([Problem("isn't a known key", "nmae", "a.yml", 2, 2, "did you mean `name`?")])
    assert render_problems(error, tmp_path) == (
        "a.yml:2:2: nmae: isn't a known key (did you mean `name`?)\n  2 |     nmae: x\n    |     ^"
    )


def test_all_of_them_with_their_number(tmp_path: Path) -> None:
    text = render_problems(Invalid([Problem("one"), Problem("two", "b")]), tmp_path)
    assert text.splitlines() == ["one", "b: two", "2 problems; nothing was sent."]


def test_a_file_that_cant_be_read_again_shows_the_place(tmp_path: Path) -> None:
    error = Invalid([Problem("bad", "a", "-", 1, 1)])
    assert render_problems(error, tmp_path) == "-:1:1: a: bad"


def test_a_line_beyond_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text("x: 1\n")
    assert render_problems(Invalid([Problem("bad", "", "a.yml", 9, 1)]), tmp_path) == "a.yml:9:1: bad"
