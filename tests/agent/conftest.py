from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _nothing_of_mine_leaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a task must never see of its agent's environment."""
    monkeypatch.setenv("SECRET_OF_THE_AGENT", "leaked")
    assert os.environ["SECRET_OF_THE_AGENT"] == "leaked"
