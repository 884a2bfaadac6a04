"""The README's picture shows what happens: the session is played again, and its screen compared."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.terminal import PICTURE, draw, play
from tests.scenarios.script import normalise
from tests.test_picture import shown

# What is seen only if one looks in time: a busy machine may show the end of a short job before its beginning.
PASSING = re.compile(
    r"(?m)^(submitted|(provisioning|pulling|running|terminating) on .*|(Attached to|Not attached:|The connection to) .*"
    r"|  ssh .*|In the console: .*)\n"
)


@pytest.mark.slow
def test_it_is_what_happens(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    drawn = draw(play(home))
    assert lasting(drawn, home) == lasting(PICTURE.read_text(encoding="utf-8"), home)


def lasting(drawing: str, home: Path) -> str:
    """Its text without times, durations and costs."""
    text = normalise(PASSING.sub("", "\n".join(shown(drawing))), home)
    return re.sub(r"idle for \d+ s", "idle for <n> s", text)
