from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _nothing_of_mine_leaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a task must never see of its agent's environment."""
    monkeypatch.setenv("SECRET_OF_THE_AGENT", "leaked")
    assert os.environ["SECRET_OF_THE_AGENT"] == "leaked"


@pytest.fixture
def code(tmp_path: Path) -> Any:
    """Uploaded code, as a task's spec names it."""

    def made(content: bytes) -> dict[str, str]:
        (tmp_path / "code").write_bytes(content)
        return {"id": "c", "url": str(tmp_path / "code")}

    return made
