"""Probes: their schedule in virtual time, and their requests to real servers on loopback."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.agent.replicas import http_request
from chalicelib.agent.replicas.probes import Probe

# --- the schedule -----------------------------------------------------------------------------------------------------


class Enough(Exception):
    """The story is over."""


class Replica:
    """Answers by the script: a status, an error, or seconds that it takes."""

    def __init__(self, script: list[Any]) -> None:
        self.script, self.at, self.calls, self.reported = list(script), 0.0, [], []  # type: ignore[var-annotated]

    async def answer(self, request: bytes) -> int:
        if not self.script:
            raise Enough
        self.calls.append(self.at)
        result = self.script.pop(0)
        if isinstance(result, Exception):
            raise result
        if isinstance(result, tuple):
            self.at += result[0]
            result = result[1]
        return int(result)

    async def pause(self, seconds: float) -> None:
        self.at += seconds

    def probe(self, **spec: Any) -> Probe:
        made = Probe(spec, self.answer, lambda: self.reported.append(made.streak), self.pause)
        return made


def played(replica: Replica, **spec: Any) -> Probe:
    probe = replica.probe(**spec)
    try:
        asyncio.run(probe.run())
    except Enough:
        return probe
    return probe


def test_the_interval_counts_from_the_end_of_one_to_the_start_of_the_next() -> None:
    replica = Replica([(2.0, 200), (0.5, 200), 200])
    played(replica, interval=5)
    assert replica.calls == [0.0, 7.0, 12.5]


def test_unless_it_says_otherwise_it_asks_every_fifteen_seconds() -> None:
    replica = Replica([200, 200])
    played(replica)
    assert replica.calls == [0.0, 15.0]


def test_successes_in_a_row_are_counted_no_further_than_needed_and_told_only_when_new() -> None:
    replica = Replica([200, 204, 299, 200, 500, 200])
    played(replica, ready_after=3)
    assert replica.reported == [1, 2, 3, 0, 1]


@pytest.mark.parametrize("result", [199, 300, 301, 404, 500, 503, OSError("refused"), ValueError("no HTTP")])
def test_anything_but_2xx_is_a_failure_and_told_even_the_first_time(result: Any) -> None:
    replica = Replica([result, result])
    assert played(replica).streak == 0 and replica.reported == [0]


def test_until_ready_means_that_it_ends_there() -> None:
    replica = Replica([500, 200, 200, 500])
    assert played(replica, ready_after=2, until_ready=True).streak == 2
    assert replica.reported == [0, 1, 2] and replica.script == [500]


@given(st.lists(st.booleans(), max_size=30), st.integers(1, 5), st.booleans())
def test_the_streak_is_that_of_the_last_responses(script: list[bool], enough: int, until_ready: bool) -> None:
    replica = Replica([200 if good else 503 for good in script])
    probe = played(replica, ready_after=enough, until_ready=until_ready)
    had = script[: len(script) - len(replica.script)]
    trailing = next((n for n, good in enumerate(reversed(had)) if not good), len(had))
    assert (probe.streak or 0) == min(enough, trailing)
    assert len(replica.reported) == len(
        [1 for a, b in zip([None, *replica.reported], replica.reported, strict=False) if a != b]
    )
    assert bool(replica.script) <= (until_ready and probe.streak == enough), "else it goes on"


# --- the request ------------------------------------------------------------------------------------------------------


class Server:
    """Answers each connection as its test says; keeps what was asked."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.calls: list[bytes] = []
        self.respond: Callable[[socket.socket], None] = lambda sock: None
        self.release = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            with sock:
                self.calls.append(sock.recv(65_536))
                self.respond(sock)

    def answers(self, data: bytes, hold: bool = False) -> None:
        def respond(sock: socket.socket) -> None:
            sock.sendall(data)
            if hold:
                self.release.wait(120)

        self.respond = respond

    def ask(self, work: Callable[[socket.socket], Awaitable[Any]]) -> Any:
        async def request() -> Any:
            sock = socket.create_connection(("127.0.0.1", self.port))
            sock.setblocking(False)
            return await asyncio.wait_for(work(sock), 120)

        return asyncio.run(request())

    def status(self, request: bytes = b"GET / HTTP/1.1\r\n\r\n") -> int:
        found: int = self.ask(lambda sock: http_request.status_of(sock, request))
        return found

    def answer(self, most: int = 1000) -> http_request.HttpResponse:
        found: http_request.HttpResponse = self.ask(
            lambda sock: http_request.fetch(sock, http_request.request("get", "/metrics"), most)
        )
        return found


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.release.set()
    made.listener.close()


def test_a_request_says_host_dstack_its_own_headers_and_its_body(server: Server) -> None:
    server.answers(b"HTTP/1.1 204 No Content\r\n\r\n")
    request = http_request.request("post", "/a b?c=d%20e&ü#f", [("X-One", "1"), ("X-One", "2")], "grüße")
    assert server.status(request) == 204
    head, _, body = server.calls[0].partition(b"\r\n\r\n")
    assert body.decode() == "grüße"
    first, *lines = head.decode().split("\r\n")
    assert first == "POST /a%20b?c=d%20e&%C3%BC HTTP/1.1"
    assert sorted(lines) == [
        "X-One: 1",
        "X-One: 2",
        "accept: */*",
        "connection: close",
        "content-length: 7",
        "host: dstack",
        "user-agent: dstack",
    ]


def test_the_users_headers_come_before_ours_and_add_no_lines(server: Server) -> None:
    request = http_request.request(
        "get", "/", [("Host", "app.local"), ("X", "a\r\nY: b"), ("Connection", "keep-alive")]
    )
    head = b"GET / HTTP/1.1\r\nconnection: close\r\nuser-agent: dstack\r\naccept: */*\r\n"
    assert request == head + b"Host: app.local\r\nX: a  Y: b\r\n\r\n"


def test_an_answer_may_begin_with_hints_and_hold_its_connection(server: Server) -> None:
    server.answers(
        b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", hold=True
    )
    assert server.status() == 200


@pytest.mark.parametrize(
    "response", [b"", b"HTTP/1.1 200", b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", b"X" * 200_000]
)
def test_what_isnt_http_is_a_failure(server: Server, response: bytes) -> None:
    server.answers(response)
    with pytest.raises((ValueError, OSError)):
        server.status()


@pytest.mark.parametrize(
    ("response", "hold"),
    [
        (b"Content-Length: 5\r\n\r\nhello", True),
        (b"Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", False),
        (b"\r\nhello", False),
    ],
)
def test_a_body_is_read_however_it_is_sent(server: Server, response: bytes, hold: bool) -> None:
    server.answers(b"HTTP/1.1 200 OK\r\n" + response, hold)
    assert server.answer() == (200, b"hello")


@pytest.mark.parametrize(
    "response", [b"\r\n" + b"x" * 2000, b"Content-Length: 9\r\n\r\nhello", b"Content-Length: 2000\r\n\r\nx"]
)
def test_a_body_that_is_too_large_or_breaks_off_is_no_answer(server: Server, response: bytes) -> None:
    server.answers(b"HTTP/1.1 200 OK\r\n" + response)
    with pytest.raises(ValueError):
        server.answer()
