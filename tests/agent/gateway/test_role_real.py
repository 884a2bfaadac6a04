"""A real agent that is told to carry a gateway, with real nginx, and kill -9 at will."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.gateway.nginx import Listens, Nginx
from chalicelib.agent.gateway.role import folder_of, running
from tests.agent.program.test_agent import Agent
from tests.agent.server import Plane
from tests.harness.ports import free_port
from tests.harness.server import until
from tests.serving.nginx_door import installed

pytestmark = pytest.mark.slow


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    installed()
    made = Agent(tmp_path, Plane())
    made.start()
    yield made
    program, master = running(str(folder(made))), nginx(made)
    made.end()  # its instance has ended
    assert not alive(program) and not alive(master)
    assert not folder(made).exists() and not (made.data / "gateway.json").exists()


def folder(agent: Agent) -> Path:
    return Path(folder_of(str(agent.data)))


def answers(port: int) -> bool:
    """nginx alone answers so: it knows no service."""
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60).close()
    except urllib.error.HTTPError as error:
        with error:
            return error.code == 403 and b"If a service is served here" in error.read()
    except OSError:
        return False
    return False


def nginx(agent: Agent) -> int:
    try:
        return int((folder(agent) / "nginx.pid").read_text())
    except FileNotFoundError:
        return 0


def awaited_report(agent: Agent, **wanted: Any) -> dict[str, Any]:
    def as_wanted() -> Any:
        carried = agent.plane.carried
        return carried if carried and all(carried[name] == value for name, value in wanted.items()) else None

    return agent.plane.until(as_wanted)


def carries(agent: Agent) -> int:
    port = free_port()
    agent.plane.carry(port)
    awaited_report(agent, state="running", http=port)
    assert answers(port)
    return port


def test_a_machine_carries_a_gateway_until_it_shouldnt(agent: Agent) -> None:
    port = carries(agent)
    program, master = running(str(folder(agent))), nginx(agent)
    agent.plane.carry(None)
    agent.plane.until(lambda: agent.plane.carried is None)
    assert not folder(agent).exists() and not answers(port)
    assert not alive(program) and not alive(master)
    carries(agent)  # and another one


def test_it_outlives_its_agent_and_the_next_one_goes_on_with_it(agent: Agent) -> None:
    port = carries(agent)
    program, master = running(str(folder(agent))), nginx(agent)
    agent.kill()
    assert answers(port)
    agent.plane.carried, agent.plane.unsaid = None, 0
    agent.start()
    first = agent.plane.until(lambda: agent.plane.carried)
    assert (first["state"], first["http"]) == ("running", port), "it has never stopped"
    assert agent.plane.unsaid == 0, "which would mean that nothing is left of it"
    assert (running(str(folder(agent))), nginx(agent)) == (program, master)


def test_without_a_server_the_next_agent_starts_what_was_wanted(agent: Agent) -> None:
    port = carries(agent)
    program, master = running(str(folder(agent))), nginx(agent)
    agent.kill()
    agent.plane.refuse = True
    workers = Nginx(str(folder(agent)), Listens([])).pids()[1:]
    for pid in (program, master):
        os.kill(pid, signal.SIGKILL)
    assert all(map(alive, workers)), "they have the port, and serve what nobody changes any more"
    agent.start()
    until("another nginx", lambda: nginx(agent) not in (0, master))
    until("the end of the earlier one's workers", lambda: not any(map(alive, workers)))
    assert answers(port)
    agent.plane.refuse = False


def test_a_program_that_is_killed_is_started_again(agent: Agent) -> None:
    port = carries(agent)
    program, master = running(str(folder(agent))), nginx(agent)
    os.kill(program, signal.SIGKILL)
    until("another program", lambda: running(str(folder(agent))) not in (0, program))
    assert answers(port) and nginx(agent) == master


def test_another_port_needs_another_program(agent: Agent) -> None:
    before = carries(agent)
    after = carries(agent)
    assert not answers(before) and answers(after)


def test_a_port_that_somebody_has_is_said_and_tried_again(agent: Agent) -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        agent.plane.carry(port)
        report = awaited_report(agent, state="failed")
        assert f"something else on this machine listens at 0.0.0.0:{port}" in report["message"]
    awaited_report(agent, state="running", http=port)


def test_clearing_a_machine_ends_its_gateway(agent: Agent) -> None:
    port = carries(agent)
    agent.kill()
    assert answers(port)
    command = [sys.executable, "-I", str(agent.program), "clear", "--data", str(agent.data), "--runtime", "process"]
    subprocess.run(command, check=True)
    assert not answers(port) and not folder(agent).exists() and not list(agent.data.iterdir())
    agent.plane.gateway = None


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes() != b""
