"""Replicas under a real agent: the port each is given, what is told of it, and a restart of its agent."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from chalicelib.agent.runtimes.users import TRUSTING
from tests.agent.program.test_agent import Agent
from tests.agent.server import Plane
from tests.harness.ports import free_port

OWN_USER = ("--users", TRUSTING)  # who may run this very Python
SERVE = f"exec {sys.executable} -m http.server -b 127.0.0.1 $DSTACK_SERVICE_PORT"


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    made = Agent(tmp_path, Plane())
    made.start(*OWN_USER)
    yield made
    made.end()


def test_two_replicas_on_one_machine_listen_on_ports_of_their_own(agent: Agent) -> None:
    port = free_port()
    probes = [{"url": "/", "interval": 1, "ready_after": 2}, {"url": "/nothing", "interval": 1}]
    tasks = [agent.run(SERVE, service_port=port, probes=probes) for _ in range(2)]

    def reported(name: str) -> list[object]:
        return [agent.plane.reports.get(task, {}).get(name) for task in tasks]

    agent.plane.until(lambda: reported("probes") == [[2, 0], [2, 0]])
    first, second = reported("host_port")
    assert first == port and isinstance(second, int) and second != port and reported("listens") == [True, True]
    before = agent.plane.messages
    agent.kill()
    for task in tasks:
        agent.plane.reports[task] = {}
    agent.start(*OWN_USER)
    agent.plane.until(lambda: reported("probes") == [[2, 0], [2, 0]] and reported("host_port") == [first, second])
    third = agent.run(SERVE, service_port=port)
    agent.plane.until(lambda: agent.plane.reports.get(third, {}).get("listens"))
    assert agent.plane.reports[third]["host_port"] not in (first, second)
    assert agent.plane.messages > before
    for task in (*tasks, third):
        agent.plane.want(task, "abort")
        assert "listens" not in agent.plane.exited(task)


def test_an_app_that_fails_before_it_listens_never_says_so(agent: Agent) -> None:
    task = agent.run("exit 3", service_port=1)
    assert agent.plane.exited(task)["exit_status"] == 3
    assert "listens" not in agent.plane.reports[task]
