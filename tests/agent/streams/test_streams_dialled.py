"""The agent's ends of a stream: what it says to a server and which responses it takes, and what it opens in a job."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.kernel.task_runtime import TaskRuntime
from chalicelib.agent.kernel.tasks import TaskFolder
from chalicelib.agent.sessions import logins
from chalicelib.agent.streams import websocket
from chalicelib.agent.streams.streams import (
    HEAD_BYTES,
    AgentStreams,
    Unreachable,
    dial_websocket,
    port_opener,
    ssh_opener,
)
from tests.agent.desk import Runtime

PATIENCE = 120.0


class Plane:
    """A server that answers as it is told, with the proof of the key that it was asked with in place of `KEY`."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(PATIENCE)
        self.url = f"http://user@127.0.0.1:{self.listener.getsockname()[1]}"
        self.request = b""

    def answers(self, answer: bytes) -> socket.socket:
        call, _ = self.listener.accept()
        call.settimeout(PATIENCE)
        while b"\r\n\r\n" not in self.request:
            self.request += call.recv(4096)
        _, headers = websocket.parse_head(self.request)
        call.sendall(answer.replace(b"KEY", websocket.accept_of(headers["sec-websocket-key"]).encode()))
        return call


@pytest.fixture
def plane() -> Iterator[Plane]:
    plane = Plane()
    yield plane
    plane.listener.close()


def dial(plane: Plane, answer: bytes, base: str = "", end: bool = True) -> tuple[socket.socket, bytes]:
    with ThreadPoolExecutor(1) as thread:
        made = thread.submit(dial_websocket, plane.url + base, "/agent/streams/7", "a ticket")
        call = plane.answers(answer)
        if end:
            call.shutdown(socket.SHUT_WR)
        try:
            return made.result(PATIENCE)
        finally:
            call.close()


def test_what_a_server_is_asked_and_what_came_behind_its_response(plane: Plane) -> None:
    made, early = dial(
        plane, b"HTTP/1.1 101 Switching\r\nSec-WebSocket-Accept: KEY\r\n\r\nearly\r\n\r\n", "/base/", False
    )
    with made:
        assert early == b"early\r\n\r\n"
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    first, headers = websocket.parse_head(plane.request)
    assert first == "GET /base/agent/streams/7 HTTP/1.1"
    assert (headers["host"], headers["authorization"]) == (plane.url.partition("@")[2], "Bearer a ticket")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (
            b"HTTP/1.1 404 Not Found\r\nSec-WebSocket-Accept: KEY\r\n\r\nno such stream",
            "HTTP/1.1 404 Not Found no such",
        ),
        (b"HTTP/1.1 1010\r\nSec-WebSocket-Accept: KEY\r\n\r\n", "HTTP/1.1 1010 $"),
        (b"HTTP/1.1 101 S\r\nSec-WebSocket-Accept: another\r\n\r\n", "isn't that of a WebSocket"),
        (b"HTTP/1.1 101 S\r\n\r\n", "isn't that of a WebSocket"),
        (b"HTTP/1.1 101 S\r\nSec-WebSocket-Accept: KEY\r\n", "isn't HTTP, or it broke off"),
        (b"", "isn't HTTP, or it broke off"),
        (b"x" * (HEAD_BYTES + 1) + b"y" * 4096, "isn't HTTP, or it broke off"),
    ],
)
def test_responses_that_are_no_stream(plane: Plane, answer: bytes, problem: str) -> None:
    with pytest.raises(ConnectionError, match=problem):
        dial(plane, answer)


def test_a_long_head_is_taken(plane: Plane) -> None:
    head = b"HTTP/1.1 101\r\nSec-WebSocket-Accept: KEY\r\nX: "
    made, early = dial(plane, head + b"x" * (HEAD_BYTES - 200) + b"\r\n\r\n")
    with made:
        assert early == b""


def test_a_stream_that_has_ended_may_be_asked_for_again(plane: Plane) -> None:
    streams = AgentStreams(lambda: plane.url, print)
    for _ in range(2):
        plane.request = b""
        streams.dial({"id": "7", "ticket": "a ticket", "task": "t", "target": "port:1"})
        with plane.answers(b"HTTP/1.1 101 S\r\nSec-WebSocket-Accept: KEY\r\n\r\n") as call:
            assert call.recv(4096), "why it can't be opened"
        begun = threading.Event()
        streams.loop.call(begun.set)
        assert begun.wait(PATIENCE)
    streams._threads.shutdown()
    streams.loop.close()


@pytest.fixture
def folder(tmp_path: Path) -> TaskFolder:
    folder = TaskFolder(str(tmp_path), "t")
    folder.create({})
    return folder


def test_a_jobs_ssh_server(folder: TaskFolder) -> None:
    runtime: TaskRuntime = Runtime("played")
    opened = ssh_opener(lambda task: (runtime, folder))
    with pytest.raises(Unreachable, match="no public key was given for this job"):
        opened("t", {})
    login_report = logins.LoginReport(folder)
    login_report.update(ssh={"problem": "no sshd"})
    with pytest.raises(Unreachable, match="no sshd"):
        opened("t", {})
    with socket.create_server(("127.0.0.1", 0)) as server:
        login_report.update(ssh={"port": server.getsockname()[1]})
        near = opened("t", {})
        assert isinstance(near, socket.socket)
        with near:
            assert near.getpeername() == server.getsockname()
    with pytest.raises(Unreachable, match="the job's SSH server has ended"):
        opened("t", {})


class Here(Runtime):
    """A job in the machine's own network, or in that of this process, which is the same."""

    def __init__(self, pid: int | None) -> None:
        super().__init__("played")
        self.pid = pid

    def network(self, folder: TaskFolder) -> int | None:
        return self.pid


@pytest.mark.parametrize("pid", [None, os.getpid()], ids=["the machine's", "ours"])  # the same in every process
def test_a_port_of_a_job(folder: TaskFolder, pid: int | None) -> None:
    runtime: TaskRuntime = Here(pid)
    opened = port_opener(lambda task: (runtime, folder))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        near = opened("t", {"target": f"port:{port}"})
        assert isinstance(near, socket.socket)
        with near:
            assert near.getpeername()[1] == port
    with pytest.raises(Unreachable, match=f"nothing listens on port {port} of the job"):
        opened("t", {"target": f"port:{port}"})


def unreachable(task: str, order: dict[str, Any]) -> socket.socket:
    raise Unreachable("the words")


def wordless(task: str, order: dict[str, Any]) -> socket.socket:
    raise OSError("the job doesn't run")


def slow(task: str, order: dict[str, Any]) -> socket.socket:
    raise TimeoutError(110, "Connection timed out")


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("card:1", "this host's agent serves no card"),
        ("known", "the words"),
        ("known:2", "the words"),
        ("wordless:3", "wordless:3 can't be reached in the job: the job doesn't run"),
        ("slow:3", "slow:3 can't be reached in the job: Connection timed out"),
    ],
)
def test_a_target_out_of_reach_is_told_to_whoever_asked(plane: Plane, target: str, reason: str) -> None:
    notes: list[str] = []
    streams = AgentStreams(lambda: plane.url, notes.append)
    for kind, opener in (("known", unreachable), ("wordless", wordless), ("slow", slow)):
        streams.serve(kind, opener)
    streams.dial({"id": 7, "ticket": "t", "task": "t", "target": target})
    with plane.answers(b"HTTP/1.1 101 S\r\nSec-WebSocket-Accept: KEY\r\n\r\n") as call:
        peer = websocket.Peer(client=False)
        while peer.closed is None:
            peer.receive(call.recv(4096))
        assert (peer.closed.reason, notes) == (reason, [])
    streams.loop.close()


def test_an_order_of_a_gateway_leads_there_and_past_the_head_node(plane: Plane) -> None:
    streams = AgentStreams(lambda: "http://127.0.0.1:1", print, via=lambda: "127.0.0.1:1")
    order = {"id": "7", "ticket": "t", "task": "job", "target": "none:1", "gateway": plane.url}
    try:
        streams.dial(order)
        with plane.answers(b"HTTP/1.1 101 Switching\r\nSec-WebSocket-Accept: KEY\r\n\r\n"):
            assert plane.request.startswith(b"GET /agent/streams/7 HTTP/1.1\r\n")
    finally:
        streams.loop.close()


def test_a_server_that_cant_be_dialled_is_noted_and_the_target_let_go(plane: Plane) -> None:
    noted, notes = threading.Event(), list[str]()
    near, far = socket.socketpair()
    streams = AgentStreams(lambda: "ftp://nowhere", lambda text: (notes.append(text), noted.set())[0])
    streams.serve("port", lambda task, order: near)
    far.settimeout(PATIENCE)
    streams.dial({"id": 7, "ticket": "t", "task": "t", "target": "port:1"})
    assert noted.wait(PATIENCE) and far.recv(1) == b""
    (note,) = notes
    assert note.startswith("stream 7 to port:1: the server's address must look like https://host:port")
    streams.loop.close()
    far.close()


def test_a_stream_that_comes_when_the_agent_leaves_is_closed(plane: Plane) -> None:
    streams = AgentStreams(lambda: plane.url, lambda line: None)
    near, jobs = socket.socketpair()
    with jobs:
        streams.serve("port", lambda task, order: near)
        streams.dial({"id": "s", "ticket": "t", "task": "a", "target": "port:80"})
        streams.loop.close()
        with plane.answers(b"HTTP/1.1 101 S\r\nSec-WebSocket-Accept: KEY\r\n\r\n") as call:
            assert call.recv(1) == b""
        jobs.settimeout(PATIENCE)
        assert jobs.recv(1) == b""
