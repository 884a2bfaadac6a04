"""A real server with few descriptors, and more clients than it has."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from chalicelib.runtime.connection_admission import most_connections
from tests.harness.server import PATIENCE, Server

DESCRIPTORS, CLIENTS = 256, 300
MANY = 8_000_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("flood") / "home"
    home.mkdir()
    made = Server(home, flags=("--no-local-fleet",), fork=False)  # as a user starts it, with the limits of this process
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, before[1]))  # the server inherits it
    try:
        made.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    yield made
    made.close()


def connected(server: Server, stack: ExitStack, data: bytes = b"") -> socket.socket:
    parts = urlsplit(server.url)
    client = stack.enter_context(socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE))
    client.sendall(data)
    return client


def response_to(server: Server, request: bytes) -> bytes:
    with ExitStack() as stack:
        client = connected(server, stack, request)
        return b"".join(iter(lambda: client.recv(65_536), b""))


def healthy(server: Server) -> bool:
    return response_to(server, b"GET /healthcheck HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").startswith(
        b"HTTP/1.1 200 "
    )


def descriptors_of(server: Server) -> int:
    assert server.process is not None
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


@pytest.mark.parametrize(
    "data",
    [b"", b"POST /api/runs/list HTTP/1.1\r\nHost: a\r\n", b"GET /healthcheck HTTP/1.1\r\nHost: a\r\n\r\n"],
    ids=["silent", "half a head", "answered and kept"],
)
def test_idle_connections_dont_keep_others_out(server: Server, data: bytes) -> None:
    lines_before = len(server.lines)
    with ExitStack() as stack:
        for number in range(CLIENTS):
            connected(server, stack, data)
            if number % 50 == 49:
                assert healthy(server), number
        assert server.call("/api/users/get_my_user")["username"] == "admin"
        assert descriptors_of(server) < DESCRIPTORS - 32, "too few are left for files"
    assert most_connections(DESCRIPTORS) < DESCRIPTORS - 32
    assert len(server.lines) <= lines_before + 2, server.lines[lines_before:]


def test_large_bodies_without_a_token_are_answered_unread(server: Server) -> None:
    head = f"POST /api/runs/list HTTP/1.1\r\nHost: a\r\nContent-Length: {MANY}\r\n\r\n".encode()
    with ExitStack() as stack:
        for _ in range(60):
            client = connected(server, stack, head + b"[" * 10_000)
            assert client.recv(13) == b"HTTP/1.1 403 "  # though the body hasn't come
        assert healthy(server)


def test_many_requests_at_once_on_one_connection_are_not_kept(server: Server) -> None:
    answer = response_to(server, b"POST /api/runs/list HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n" * 2000)
    assert answer.count(b"HTTP/1.1 ") < 100
    assert healthy(server)
