"""Replicas in containers: what listens in their own network is found, probed and reached by streams there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.replicas.replicas import WatchedReplicas
from chalicelib.agent.runtimes.docker import DockerRuntime
from chalicelib.agent.runtimes.docker_client import container_name
from chalicelib.agent.streams.streams import port_opener
from tests.agent.runtime_conformance import Workshop
from tests.harness.docker import DockerEngine
from tests.harness.images import PYTHON
from tests.harness.server import PATIENCE

PORT = 8080
SERVE = "exec python3 -m http.server -b 127.0.0.1 $DSTACK_SERVICE_PORT"
PROBES = [{"url": "/", "interval": 1, "ready_after": 2}, {"url": "/nothing", "interval": 1}]


class Watched:
    def __init__(self, workshop: Workshop) -> None:
        self.changed, self.log = threading.Condition(), []  # type: ignore[var-annotated]
        self.replicas = WatchedReplicas(workshop.roster.runtime, self._change, self.log.append)

    def _change(self, _: str) -> None:
        with self.changed:
            self.changed.notify_all()

    def until(self, task: str, **report: Any) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: report.items() <= self.replicas.report(task).items(), PATIENCE), (
                self.log
            )


@pytest.fixture
def workshop(tmp_path: Path, docker_engine: DockerEngine) -> Iterator[Workshop]:
    made = Workshop(tmp_path, DockerRuntime(str(tmp_path), docker_engine.socket), docker_engine.socket, {})
    yield made
    made.end()


@pytest.fixture
def watched(workshop: Workshop) -> Iterator[Watched]:
    made = Watched(workshop)
    yield made
    made.replicas.close()


def test_a_container_is_looked_after_in_its_own_network(
    workshop: Workshop, watched: Watched, docker_engine: DockerEngine
) -> None:
    spec = {"service_port": PORT, "env": {"DSTACK_SERVICE_PORT": str(PORT)}, "probes": PROBES, "image": PYTHON}
    tasks = [workshop.start(SERVE, **spec) for _ in range(2)]
    for task in tasks:
        workshop.running(task)
        watched.replicas.watch(task, workshop.roster.folder(task).launch)
    for task in tasks:
        watched.until(task, listens=True, probes=[2, 0])
        assert "host_port" not in watched.replicas.report(task), "each has port 8080 for itself"
        assert "address" not in watched.replicas.report(task), "it listens on its own loopback only"
        runtime, folder = workshop.roster.runtime(task)
        attached = docker_engine.api.container(container_name(task))["NetworkSettings"]["Networks"]
        assert runtime.address(folder) == attached["bridge"]["IPAddress"] != ""
    port = watched.replicas.port(tasks[0], PORT)
    assert port is not None
    with port.connect() as made:
        made.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert made.recv(100).startswith(b"HTTP/1.0 200")
    order = {"id": "s", "ticket": "t", "task": tasks[0], "target": f"port:{PORT}"}
    found = port_opener(workshop.roster.runtime, watched.replicas.port)(tasks[0], order)
    assert hasattr(found, "close"), "at once, unless it is asked for lazily"
    found.close()  # type: ignore[union-attr]
    workshop.roster.abort(tasks[0])
    workshop.exited(tasks[0])
    watched.replicas.forget(tasks[0])
    with pytest.raises(OSError, match="has ended"):
        port.connect()
