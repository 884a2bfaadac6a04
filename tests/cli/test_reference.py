"""The pages about the command line are up to date."""

from __future__ import annotations

from pathlib import Path

import pytest

from chalicelib.configuration.parse import parse
from cli.main import GROUPS
from cli.reference import reference

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.dstack.yml"))


def test_the_reference_is_up_to_date() -> None:
    written = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    assert written == reference(), "run: python -m cli.reference > docs/reference/cli.md"


def test_every_command_is_in_it() -> None:
    text = reference()
    assert all(f"# dstack {name}\n" in text for name in GROUPS)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_right(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "# " in text, "an example says what it shows"
    assert parse(text, filename=path.name).name


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 5
