"""Kill anything, restart, and nothing is lost: the server, the agent, both; and what SIGTERM leaves running."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.measure import submit, task, wait_local_host
from tests.harness.gates import Gate, gate
from tests.harness.server import Server, processes_of, until
from tests.runtime.live import agent_pid, log_of, run_of, wait_for

LINES = 40
HALF = LINES // 2
COUNTING = "for i in $(seq {} {}); do echo line $i; sleep 0.1; done"


def counting(gate: Gate) -> list[str]:
    """Its second half begins when the gate is opened."""
    return [COUNTING.format(1, HALF), gate.command, COUNTING.format(HALF + 1, LINES)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    one = Server(tmp_path / "home", env={"DSTACK_AGENT_RUNTIME": "process"})
    one.home.mkdir()
    try:
        wait_local_host(one.start())
        yield one
    finally:
        one.close()


def expected() -> list[str]:
    return [f"line {number}" for number in range(1, LINES + 1)]


@pytest.mark.parametrize("victims", [("server",), ("agent",), ("server", "agent"), ("agent", "server")], ids="+".join)
def test_kill_9_loses_neither_the_job_nor_a_line_of_its_log(server: Server, victims: tuple[str, ...]) -> None:
    with gate() as gone_on:
        submit(server, task("counting", *counting(gone_on)))
        until("some output", lambda: "line 5" in log_of(server, "counting"))
        before = run_of(server, "counting")["latest_job_submission"]["id"]
        for victim in victims:
            if victim == "server":
                server.kill()
            else:
                os.kill(agent_pid(server), signal.SIGKILL)
        gone_on.open()
        if "server" in victims:
            server.start()  # on another port: the agent must find it
        run = wait_for(server, "counting", "done", "failed", "terminated")
    assert run["status"] == "done", run
    assert run["latest_job_submission"]["id"] == before, "the job was started twice"
    assert (
        log_of(server, "counting").split("\n")[:-1] == [line + "\r" for line in expected()]
        or log_of(server, "counting").splitlines() == expected()
    )


def test_a_job_that_ends_while_everything_is_dead_is_reported_by_the_next_server(server: Server) -> None:
    submit(server, task("short", "echo begun; sleep 2; echo over; sh -c 'exit 3'"))
    until("some output", lambda: "begun" in log_of(server, "short"))
    server.kill()
    os.kill(agent_pid(server), signal.SIGKILL)
    server.start()
    run = wait_for(server, "short", "failed", "done")
    submission = run["latest_job_submission"]
    assert (run["status"], submission["exit_status"]) == ("failed", 3)
    assert submission["termination_reason"] == "container_exited_with_error"
    assert log_of(server, "short").split() == ["begun", "over"]


def test_sigterm_leaves_jobs_running_and_the_next_server_takes_them_up(server: Server) -> None:
    with gate() as gone_on:
        submit(server, task("counting", *counting(gone_on)))
        until("some output", lambda: "line 3" in log_of(server, "counting"))
        assert server.stop() == 0
        gone_on.open()
        server.start()
        assert wait_for(server, "counting", "done", "failed")["status"] == "done"
    assert log_of(server, "counting").splitlines() == expected()


def test_sigterm_with_stop_jobs_ends_them_and_leaves_no_process(server: Server) -> None:
    server.stop()
    server.start("--stop-jobs")
    wait_local_host(server)
    submit(server, task("counting", "sleep 600"))
    wait_for(server, "counting", "running")
    assert server.stop() == 0
    until("every process to end", lambda: not processes_of(server.home))


def test_an_idle_server_that_stops_leaves_no_process(server: Server) -> None:
    assert server.stop() == 0
    until("every process to end", lambda: not processes_of(server.home))
