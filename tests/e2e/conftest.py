from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.measure import wait_local_host
from tests.e2e.peer import Peer, joined
from tests.harness.server import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the local fleet and the simulated cloud, running processes."""
    one = Server(
        tmp_path_factory.mktemp("server") / "home", flags=("--fake-cloud",), env={"DSTACK_AGENT_RUNTIME": "process"}
    )
    one.home.mkdir()
    try:
        one.start()
        wait_local_host(one)
        yield one
    finally:
        one.close()


@pytest.fixture(scope="module")
def peer(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Peer:
    return joined(server, Path(tmp_path_factory.mktemp("peer")) / "home")
