"""Sessions in containers of an image that nobody prepared: busybox, no sshd, no SFTP server, no bash."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chalicelib.agent.runtimes.docker import DockerRuntime
from tests.agent.runtime_conformance import Workshop
from tests.agent.session_conformance import SessionConformance
from tests.harness.debian import ssh_server
from tests.harness.docker import DockerEngine
from tests.harness.images import BUSYBOX


class TestContainerSessions(SessionConformance):
    @pytest.fixture
    def workshop(self, tmp_path: Path, docker_engine: DockerEngine) -> Iterator[Workshop]:
        ssh_server()
        runtime = DockerRuntime(str(tmp_path), docker_engine.socket)
        workshop = Workshop(tmp_path / "data", runtime, docker_engine.socket, {"image": BUSYBOX})
        yield workshop
        workshop.end()

    def listener(self, port: int) -> str:
        return f"exec nc -ll -p {port} -e cat"
