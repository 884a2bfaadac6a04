"""Eight nodes on one machine sum their vectors with nothing but the variables that a job gets; both clients show it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.multinode.journey import Cluster, cluster, wanted
from tests.e2e.peer import joined

NODES = 8


@pytest.fixture(scope="module")
def eight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(Path(tmp_path_factory.mktemp("multinode")) / "home", NODES) as found:
        yield found


def nodes_of(screen: str) -> list[tuple[str, str]]:
    """Each node's line in `ps`, and its status."""
    return re.findall(r"(?m)^ +job=(\d+) .*?(exited \(\d+\)|running|done)", screen)


def test_eight_nodes_sum_their_vectors_over_tcp(eight: Cluster, tmp_path: Path) -> None:
    output = eight.server.cli("apply", "-y", "-f", str(eight.task(tmp_path, "sum")))
    assert "task (nodes=8)" in output and wanted(NODES)[0] in output and "sum done" in output
    assert eight.outputs_of("sum") == wanted(NODES)
    assert wanted(NODES)[5] in eight.server.cli("logs", "sum", "--job", "5")
    ended = [(str(rank), "exited (0)") for rank in range(NODES)]
    assert nodes_of(eight.server.cli("ps", "-n", "1")) == ended


def test_the_genuine_client_submits_and_shows_the_same(eight: Cluster, tmp_path: Path) -> None:
    peer = joined(eight.server, tmp_path / "peer")
    spec = eight.task(peer.home, "peer-sum")
    output = peer.run("apply", "-y", "-d", "-f", spec.name).text
    assert "task (nodes=8)" in output and "Run peer-sum submitted" in output
    assert eight.ended("peer-sum")["status"] == "done"
    assert nodes_of(peer.run("ps", "-n", "1").text) == [(str(rank), "exited (0)") for rank in range(NODES)]
    for rank in (0, 7):
        assert wanted(NODES)[rank] in peer.run("logs", "peer-sum", "--job", str(rank)).text
