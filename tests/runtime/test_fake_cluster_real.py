"""Machines of the simulated cloud as the nodes of a task: local processes, each with an address of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.measure import submit, task
from tests.harness.debian import ssh_server
from tests.harness.server import Server
from tests.runtime.live import logs_of, wait_for


@pytest.fixture(scope="module", autouse=True)
def _sshd() -> None:
    ssh_server()


# The first node looks around; the other is there until that is done.
COMMAND = 'echo $DSTACK_NODES_IPS; for ip in $DSTACK_NODES_IPS; do ssh $ip "echo node \\$DSTACK_NODE_RANK"; done'


def test_the_nodes_reach_each_other_at_addresses_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    server = Server(tmp_path / "home", ("--no-local-fleet", "--fake-cloud"), {"DSTACK_AGENT_RUNTIME": "process"})
    try:
        server.start()
        fleet = {"type": "fleet", "name": "rack", "nodes": "0..2", "placement": "cluster", "resources": {"cpu": "2.."}}
        server.call("/api/project/main/fleets/apply", {"plan": {"spec": {"configuration": fleet}}, "force": False})
        spec = task("pair", f"[ $DSTACK_NODE_RANK = 1 ] && exec sleep 600; {COMMAND}")
        spec["configuration"].update(nodes=2, stop_criteria="master-done")
        submit(server, spec)
        assert wait_for(server, "pair", "done", "failed")["status"] == "done"
        addresses, *lines = logs_of(server, "pair")[0].splitlines()
        assert lines == ["node 0", "node 1"]
        assert len(set(addresses.split())) == 2 and all(one.startswith("127.") for one in addresses.split())
    finally:
        server.close()
