"""This machine in the fleet `local`: what it has is detected, and what its user did to the fleet is minded."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.program.inventory import Inventory
from tests.bench.measure import submit, task, wait_local_host
from tests.harness.server import Server, processes_of, until
from tests.runtime.live import agent_pid, log_of, run_of, wait_for


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    one = Server(tmp_path / "home", env={"DSTACK_AGENT_RUNTIME": "process"})
    one.home.mkdir()
    try:
        yield one
    finally:
        one.close()


def fleets(server: Server) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.call("/api/project/main/fleets/list", {})
    return found


def alone(server: Server) -> bool:
    """Nothing runs but the server."""
    assert server.process is not None
    return set(processes_of(server.home)) == {server.process.pid}


def run(server: Server, name: str) -> None:
    submit(server, task(name, f"echo {name}"))
    assert wait_for(server, name, "done", "failed")["status"] == "done"
    assert log_of(server, name).split() == [name]


def test_what_it_has_is_what_this_machine_has(server: Server) -> None:
    wait_local_host(server.start())
    (fleet,) = fleets(server)
    (instance,) = fleet["instances"]
    assert (fleet["name"], instance["backend"], instance["name"]) == ("local", "remote", "local-0")
    has, disk = instance["instance_type"]["resources"], os.statvfs(server.data)
    assert 1 <= has["cpus"] <= (os.cpu_count() or 1)
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    assert pages / 2 < has["memory_mib"] <= pages
    assert 0 < has["disk"]["size_mib"] <= disk.f_blocks * disk.f_frsize >> 20
    assert isinstance(has["gpus"], list)


def test_without_the_local_fleet_there_is_none(server: Server) -> None:
    server.start("--no-local-fleet")
    assert fleets(server) == [] and alone(server)


def test_a_deleted_fleet_is_gone_until_the_next_start(server: Server) -> None:
    wait_local_host(server.start())
    server.call("/api/project/main/fleets/delete", {"names": ["local"]})
    until("the fleet to go", lambda: fleets(server) == [])
    until("its agent to end for good", lambda: alone(server) and any("was deleted" in line for line in server.lines))
    server.stop()
    wait_local_host(server.start())
    run(server, "again")
    server.stop()
    wait_local_host(server.start())
    assert [[one["name"] for one in fleet["instances"]] for fleet in fleets(server)] == [["local-0"]]


def test_a_deleted_instance_is_gone_until_the_next_start(server: Server) -> None:
    wait_local_host(server.start())
    server.call("/api/project/main/fleets/delete_instances", {"name": "local", "instance_nums": [0]})
    until("the instance to go", lambda: fleets(server)[0]["instances"] == [])
    until("its agent to end for good", lambda: alone(server))
    server.stop()
    wait_local_host(server.start())
    run(server, "again")
    assert [one["name"] for one in fleets(server)[0]["instances"]] == ["local-1"]


def test_the_machine_is_cut_as_the_start_says_it_unless_jobs_hold_a_place(server: Server) -> None:
    def cut() -> int:
        (instance,) = fleets(server)[0]["instances"]
        return int(instance["total_blocks"])

    wait_local_host(server.start())
    assert cut() == 1
    server.stop()
    server.start("--local-blocks", "auto")
    assert cut() == fleets(server)[0]["instances"][0]["instance_type"]["resources"]["cpus"]
    submit(server, task("waits", "echo on; sleep 600"))
    until("it to run", lambda: "on" in log_of(server, "waits"))
    server.stop()
    server.start("--local-blocks", "1")
    assert any("keeps auto blocks, not 1" in line for line in server.lines)
    assert run_of(server, "waits")["status"] == "running"
    server.call("/api/project/main/runs/stop", {"runs_names": ["waits"], "abort": True})
    wait_for(server, "waits", "terminated")
    until("the place to be free", lambda: fleets(server)[0]["instances"][0]["status"] == "idle")
    server.stop()
    server.start("--local-blocks", "1")
    assert cut() == 1
    run(server, "whole")
    cpus = fleets(server)[0]["instances"][0]["instance_type"]["resources"]["cpus"]
    server.stop()
    server.start("--local-blocks", str(cpus + 1))
    assert (
        any(f"has {cpus} CPUs, which can't be split into {cpus + 1} equal blocks" in line for line in server.lines)
        and cut() == 1
    )


def test_a_first_start_says_that_the_machine_cant_be_split_so(server: Server) -> None:
    cpus = Inventory(str(server.home)).cpus()
    server.start("--local-blocks", str(cpus + 1))
    warning = f"has {cpus} CPUs, which can't be split into {cpus + 1} equal blocks, so it stays whole"
    assert any(warning in line for line in server.lines), server.lines


def test_another_fleet_of_that_name_is_told(server: Server) -> None:
    server.start("--no-local-fleet", "--fake-cloud")
    spec = {"configuration": {"type": "fleet", "name": "local", "nodes": "0..1"}}
    server.call("/api/project/main/fleets/apply", {"plan": {"spec": spec}, "force": False})
    server.stop()
    with pytest.raises(AssertionError, match="the server ended") as ended:
        server.start()
    assert "--no-local-fleet" in str(ended.value) and "Traceback" not in str(ended.value)


def test_a_key_that_is_no_key_is_told_and_left_alone(server: Server) -> None:
    server.start("--no-local-fleet")
    server.stop()
    for name in ("install.key", "master.key"):
        path = server.data / name
        before = path.read_text()
        path.write_text("")
        with pytest.raises(AssertionError, match="the server ended") as ended:
            server.start("--no-local-fleet")
        assert str(path) in str(ended.value) and "Traceback" not in str(ended.value)
        assert path.read_text() == ""
        path.write_text(before)
    server.start("--no-local-fleet")


def test_a_killed_agent_of_an_idle_machine_comes_back(server: Server) -> None:
    wait_local_host(server.start())
    before = agent_pid(server)
    os.kill(before, signal.SIGKILL)
    until("another agent", lambda: agent_pid(server) != before)
    run(server, "after")
