"""The engine is started once a session, when the first test asks for it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.engines import docker


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[docker.DockerEngine]:
    with docker.or_skipped() as engine:
        yield engine


@pytest.fixture(autouse=True)
def _nothing_of_mine_leaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a task must never see of its agent's environment."""
    monkeypatch.setenv("SECRET_OF_THE_AGENT", "leaked")
    assert os.environ["SECRET_OF_THE_AGENT"] == "leaked"
