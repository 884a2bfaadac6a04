"""A table in one test shows every row that fails, as a test each would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.harness.rows import each


@each("number, expected", [(1, 1), (2, 4), (3, 9)], ids=lambda row: f"the square of {row[0]}")
def squares(number: int, expected: int, tmp_path: Path) -> None:
    assert tmp_path.exists()
    if number == 3:
        pytest.fail("too large")
    assert number == expected


def test_every_row_that_fails_is_shown(tmp_path: Path) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        squares(tmp_path=tmp_path)
    assert "2 of 3 rows failed" in str(caught.value)
    assert [(str(one).partition("\n")[0], one.__notes__) for one in caught.value.exceptions] == [
        ("assert 2 == 4", ["row: the square of 2"]),
        ("too large", ["row: the square of 3"]),
    ]


seen: list[Any] = []


@each("name", ["a", "b"])
def test_fixtures_are_given_to_each_row(name: str, tmp_path: Path) -> None:
    assert tmp_path.exists()
    seen.append(name)


def test_each_row_was_run() -> None:
    assert seen == ["a", "b"]


def test_a_table_without_rows_is_refused() -> None:
    with pytest.raises(AssertionError, match="proves nothing"):
        each("name", [])(squares)
