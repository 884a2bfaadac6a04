"""Sessions beside plain processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chalicelib.agent.runtimes.process import ProcessRuntime
from tests.agent.runtime_conformance import Workshop
from tests.agent.session_conformance import SessionConformance
from tests.harness.debian import ssh_server

ECHO = (
    "import socket; s = socket.create_server(('127.0.0.1', {port}))\n"
    "while 1:\n c = s.accept()[0]; c.sendall(c.recv(99)); c.close()"
)


@pytest.fixture(scope="session", autouse=True)
def _sshd() -> None:
    ssh_server()


class TestProcessSessions(SessionConformance):
    @pytest.fixture
    def workshop(self, tmp_path: Path) -> Iterator[Workshop]:
        workshop = Workshop(tmp_path / "data", ProcessRuntime())
        yield workshop
        workshop.end()

    def listener(self, port: int) -> str:
        return f'exec python3 -S -c "{ECHO.format(port=port)}"'
