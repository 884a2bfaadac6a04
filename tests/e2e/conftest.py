from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.harness.server import Server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A fresh server with the local fleet, running processes."""
    one = Server(tmp_path / "home", env={"DSTACK_AGENT_RUNTIME": "process"})
    one.home.mkdir()
    try:
        yield one.start()
    finally:
        one.close()
