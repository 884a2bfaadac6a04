from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module", autouse=True)
def _agent_environment_has_a_secret() -> Iterator[None]:
    """What a task must never see of its agent's environment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SECRET_OF_THE_AGENT", "leaked")
        yield


@pytest.fixture(autouse=True)
def _my_umask_stays() -> Iterator[None]:
    """The agent's own start sets one, and some tests call it in this process."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def code(tmp_path: Path) -> Any:
    """Uploaded code, as a task's spec names it."""

    def made(content: bytes) -> dict[str, str]:
        (tmp_path / "code").write_bytes(content)
        return {"id": "c", "url": str(tmp_path / "code")}

    return made
