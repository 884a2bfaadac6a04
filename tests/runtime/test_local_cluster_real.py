"""This machine as a cluster of several hosts: each has an agent, and a task on several nodes runs on them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bench.measure import submit, task
from tests.harness.server import Server, processes_of, until
from tests.runtime.live import logs_of, run_of, wait_for


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    one = Server(tmp_path / "home", env={"DSTACK_AGENT_RUNTIME": "process"})
    one.home.mkdir()
    try:
        yield one
    finally:
        one.close()


def fleet(server: Server) -> dict[str, Any]:
    (found,) = server.call("/api/project/main/fleets/list", {})
    return dict(found)


def all_idle(server: Server, count: int) -> list[str]:
    """The names of the hosts, once there are so many and all are idle."""

    def idle_hosts() -> list[str]:
        hosts = fleet(server)["instances"]
        idle = [host["name"] for host in hosts if host["status"] == "idle"]
        return idle if len(idle) == len(hosts) == count else []

    found: list[str] = until(f"{count} idle hosts", idle_hosts)
    return found


def nodes(name: str, count: int, *commands: str) -> dict[str, Any]:
    spec = task(name, *commands)
    spec["configuration"]["nodes"] = count
    return spec


COMMAND = "echo $DSTACK_NODE_RANK of $DSTACK_NODES_NUM: $(echo $DSTACK_NODES_IPS) $(wc -l < $DSTACK_MPI_HOSTFILE)"


def test_it_is_a_cluster_of_as_many_hosts_as_a_start_said_last(server: Server) -> None:
    server.start("--local-hosts", "2")
    assert all_idle(server, 2) == ["local-0", "local-1"]
    assert fleet(server)["spec"]["configuration"]["placement"] == "cluster"
    submit(server, nodes("pair", 2, COMMAND))
    assert wait_for(server, "pair", "done", "failed")["status"] == "done"
    logs = [log.split() for log in logs_of(server, "pair")]
    address = logs[0][3]
    assert logs == [[rank, "of", "2:", address, address, "2"] for rank in "01"]
    hosts = [
        job["job_submissions"][0]["job_provisioning_data"]["instance_id"] for job in run_of(server, "pair")["jobs"]
    ]
    assert len(set(hosts)) == 2
    server.stop()
    until("all agents to end", lambda: not processes_of(server.home))
    server.start()
    assert all_idle(server, 2) == ["local-0", "local-1"]
    server.stop()
    server.start("--local-hosts", "3")
    assert all_idle(server, 3) == ["local-0", "local-1", "local-2"]
    assert len(fleet(server)["spec"]["configuration"]["ssh_config"]["hosts"]) == 3
    server.stop()
    server.start("--local-hosts", "1")
    assert any("has 3 hosts, more than --local-hosts 1" in line for line in server.lines)
    assert len(fleet(server)["instances"]) == 3
    server.call("/api/project/main/fleets/delete_instances", {"name": "local", "instance_nums": [1, 2]})
    all_idle(server, 1)


def test_jobs_of_all_its_hosts_end_with_the_server_if_it_is_told_so(server: Server) -> None:
    server.start("--local-hosts", "2", "--stop-jobs")
    all_idle(server, 2)
    submit(server, nodes("long", 2, "sleep 600"))
    until(
        "both to run",
        lambda: [job["job_submissions"][0]["status"] for job in run_of(server, "long")["jobs"]] == ["running"] * 2,
    )
    server.stop()
    until("all agents to end", lambda: not processes_of(server.home))
