"""How much code each provider's package has."""

from __future__ import annotations

import runpy

import pytest

from tests.harness.server import ROOT

LINES = runpy.run_path(str(ROOT / ".ci" / "lines.py"))


@pytest.mark.slow
def test_each_package_keeps_within_its_limit() -> None:
    found, limits = LINES["counted"](), LINES["LIMITS"]
    assert found.keys() == limits.keys(), "a package has a limit in .ci/lines.py"
    assert {name: lines for name, lines in found.items() if lines > limits[name]} == {}


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("", 0),
        ("# only a comment\n\n", 0),
        ('"""A module."""\n\nvalue = 1  # one\n', 1),
        ('def call():\n    """Two lines\n    of text."""\n    return 1\n', 2),
        ('text = """\nno docstring\n"""\n', 3),
        ("made = (\n    # why\n    1,\n\n    2,\n)\n", 4),
    ],
)
def test_code_alone_is_counted(source: str, lines: int) -> None:
    assert LINES["code_lines"](source) == lines
