"""Requests that don't come whole, in time or in measure, at uvicorn itself."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvicorn.server import ServerState

from chalicelib.api.dispatch import Reply, RequestHead
from chalicelib.runtime.asgi import AsgiBridge, Polls, Receive, Scope, Send
from chalicelib.runtime.connection import HEAD_BYTES, HttpConnection
from chalicelib.runtime.lanes import Lane
from chalicelib.runtime.streams import StreamEnd
from tests.harness.server import PATIENCE, until

LIMIT = 100_000
HEAD = b"POST /api/runs/list HTTP/1.1\r\nHost: a\r\n"


class Hasty(HttpConnection):
    head_seconds = 2.0
    body_seconds = 2.0
    refuse_seconds = PATIENCE


class Patient(HttpConnection):
    head_seconds = 10 * PATIENCE
    body_seconds = 10 * PATIENCE


@dataclass
class Listening:
    """A gateway before an app that notes what it is given."""

    port: int = 0
    bodies: list[str] = field(default_factory=list)
    server: uvicorn.Server | None = None

    def answer(self, head: RequestHead) -> Reply:
        self.bodies.append(head.request.body.decode())
        return Reply(200, {"content-type": "application/json"}, b"{}")

    def serve(self, connection: type[HttpConnection], listener: socket.socket) -> None:
        lane = Lane(ThreadPoolExecutor(1), 1, body=LIMIT, memory=2 * LIMIT)
        gateway = AsgiBridge(
            self.answer, lambda head, size: None, lane, lane, Polls(), has_news=lambda answer: True, linger=0.01
        )
        config = uvicorn.Config(gateway, http=connection, ws="none", log_level="critical", timeout_graceful_shutdown=30)
        self.server = uvicorn.Server(config)
        asyncio.run(self.server.serve(sockets=[listener]))

    def ask(self, data: bytes, *, end: bool = False) -> bytes:
        """All that is answered until the server closes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as client:
            client.sendall(data)
            if end:
                client.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: client.recv(65_536), b""))


def listening(connection: type[HttpConnection]) -> Iterator[Listening]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = Listening(listener.getsockname()[1])
        thread = threading.Thread(target=one.serve, args=(connection, listener))
        thread.start()
        until("uvicorn to start", lambda: one.server is not None and one.server.started)
        yield one
        assert one.server is not None
        one.server.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive(), "a request that never came whole holds the server up"


@pytest.fixture
def hasty() -> Iterator[Listening]:
    yield from listening(Hasty)


@pytest.fixture
def patient() -> Iterator[Listening]:
    yield from listening(Patient)


def problem(answer: bytes, status: int = 400) -> str:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode()) and b"application/json" in head, answer
    (entry,) = json.loads(body)["detail"]
    assert entry["code"] == "error"
    return str(entry["msg"])


def test_a_head_that_never_ends_is_refused_by_time(hasty: Listening) -> None:
    assert "headers didn't arrive within" in problem(hasty.ask(HEAD))


def test_a_head_that_comes_byte_by_byte_gets_no_more_time(hasty: Listening) -> None:
    with socket.create_connection(("127.0.0.1", hasty.port), timeout=0.05) as client:
        client.sendall(HEAD)
        for _ in range(int(PATIENCE / 0.05)):
            client.send(b"X")
            with suppress(TimeoutError):
                assert "headers didn't arrive within" in problem(client.recv(65_536))
                return
    raise AssertionError("it is waited for as long as something comes")


def test_a_connection_that_says_nothing_is_closed(hasty: Listening) -> None:
    assert hasty.ask(b"") == b""


def test_a_body_that_never_ends_is_dropped_and_not_executed(hasty: Listening) -> None:
    assert hasty.ask(HEAD + b"Content-Length: 10\r\n\r\n{}") == b""
    assert hasty.bodies == []


@pytest.mark.parametrize("line", [b"X: " + b"a" * HEAD_BYTES, b"X: a\r\n" * (HEAD_BYTES // 6)], ids=["one", "many"])
def test_a_head_that_is_too_large_is_refused_by_size(patient: Listening, line: bytes) -> None:
    assert "more than 16 KB of headers, or more than 128" in problem(patient.ask(HEAD + line), 431)


@pytest.mark.parametrize("long", ["target", "header"])
def test_under_api_v1_it_is_refused_as_a_problem(patient: Listening, long: str) -> None:
    """Found by `python -m tests.fuzz.schema`."""
    query, header = (b"a" * 20_000, b"") if long == "target" else (b"", b"X: " + b"a" * 20_000 + b"\r\n")
    answer = patient.ask(b"GET /api/v1/runs?" + query + b" HTTP/1.1\r\nHost: here\r\n" + header + b"\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 431 ") and b"content-type: application/problem+json" in head, answer
    found = json.loads(body)
    assert (found["status"], found["code"]) == (431, "malformed") and "16 KB of headers" in found["detail"]


def test_most_heads_are_refused_at_a_quarter_of_what_is_read(patient: Listening) -> None:
    fits = HEAD + b"X: a\r\n" * 120 + b"Content-Length: 0\r\nConnection: close\r\n"
    assert patient.ask(fits + b"X: " + b"a" * 14_000 + b"\r\n\r\n").startswith(b"HTTP/1.1 200 ")
    for more in (b"X: " + b"a" * 16_000, b"X: a\r\n" * 10 + b"X: a"):
        assert "headers" in problem(patient.ask(fits + more + b"\r\n\r\n"), 431)
    assert patient.bodies == [""]


@pytest.mark.parametrize("remainder", [b"0\r\nX: ", b"0\r\n" + b"X: a\r\n" * 300, b"5;x="])
def test_nothing_without_end_is_collected_beside_a_body(patient: Listening, remainder: bytes) -> None:
    """The parser joins what it has of a header with each piece that comes."""
    head = HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
    assert "headers" in problem(patient.ask(head + remainder + b"a" * 2 * HEAD_BYTES), 431)
    assert patient.bodies == []


def test_a_refusal_comes_after_the_answers_to_what_was_asked_before(patient: Listening) -> None:
    first = HEAD + b"Content-Length: 2\r\n\r\nab"
    answers = patient.ask(first + b"POST / HTTP/1.1\r\nX Y: z\r\n\r\n" + first)
    assert re.findall(rb"HTTP/1.1 (\d+) ", answers) == [b"200", b"400"]
    assert patient.bodies == ["ab"]


def test_what_follows_the_last_request_is_none(patient: Listening) -> None:
    last = HEAD + b"Connection: close\r\nContent-Length: 2\r\n\r\nab"
    assert patient.ask(last + HEAD + b"Content-Length: 2\r\n\r\ncd").count(b"HTTP/1.1 ") == 1
    assert patient.bodies == ["ab"]


@pytest.mark.parametrize("upgrade", ["h2c", "other"])
def test_a_body_stays_one_where_another_protocol_is_asked_for(patient: Listening, upgrade: str) -> None:
    head = HEAD + f"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: {upgrade}\r\nHTTP2-Settings: AA\r\n".encode()
    sent = head + b"Content-Length: 4\r\n\r\nbody" + head + b"Transfer-Encoding: chunked\r\n\r\n2\r\nof\r\n0\r\n\r\n"
    assert patient.ask(sent + HEAD + b"Connection: close\r\nContent-Length: 0\r\n\r\n").count(b"HTTP/1.1 200 ") == 3
    assert patient.bodies == ["body", "of", ""]


@pytest.mark.parametrize(
    "wrong",
    [
        b"POST http://b/x HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST /x HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        b"POST /x HTTP/1.1\r\nX: a\r\n\r\n",
        b"POST /x\r\n\r\n",
    ],
)
def test_what_leads_two_ways_leads_nowhere(patient: Listening, wrong: bytes) -> None:
    assert problem(patient.ask(wrong))
    assert patient.bodies == []


def test_another_code_than_chunks_isnt_understood(patient: Listening) -> None:
    assert "chunked" in problem(patient.ask(HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"), 501)


def test_half_a_request_is_not_executed(patient: Listening) -> None:
    assert patient.ask(HEAD + b"Content-Length: 10\r\n\r\n{}", end=True) == b""
    assert patient.bodies == []


def test_what_is_no_http_is_answered_as_every_error(patient: Listening) -> None:
    assert "Invalid HTTP" in problem(patient.ask(b"\x16\x03\x01 what is this\r\n\r\n"))


def test_a_request_in_pieces_is_one_request(patient: Listening) -> None:
    with socket.create_connection(("127.0.0.1", patient.port), timeout=PATIENCE) as client:
        for piece in (
            b"POST /api/server/get_info HT",
            b"TP/1.1\r\nHo",
            b"st: a\r\nContent-Length: 4\r\nConnection: close\r\n\r\n",
            b"ab",
        ):
            client.sendall(piece)
        client.sendall(b"cd")
        assert client.recv(15) == b"HTTP/1.1 200 OK"
    assert patient.bodies == ["abcd"]


def test_a_body_without_end_is_answered_and_cut(patient: Listening) -> None:
    chunk = b"8000\r\n" + b"x" * 0x8000 + b"\r\n"
    with (
        socket.create_connection(("127.0.0.1", patient.port), timeout=PATIENCE) as client,
        pytest.raises(ConnectionError),
    ):
        client.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(1_000_000):
            client.sendall(chunk)
    assert patient.bodies == []


def test_leaving_doesnt_wait_for_what_never_comes(patient: Listening) -> None:
    """The fixture's end fails where it does."""
    held = [socket.create_connection(("127.0.0.1", patient.port), timeout=PATIENCE) for _ in range(3)]
    for client, data in zip(held, (b"", HEAD, HEAD + b"Content-Length: 10\r\n\r\n{}"), strict=True):
        client.sendall(data)
    assert patient.server is not None
    patient.server.should_exit = True
    for client in held:
        assert client.recv(100) == b""
        client.close()


def test_what_was_read_and_not_wanted_is_forgotten_with_its_connection(patient: Listening) -> None:
    gc.collect()
    gc.disable()
    try:
        before = bytes_of_bodies()
        for _ in range(50):
            with suppress(ConnectionError):  # not all of it is drained
                patient.ask(b"POST /api/none HTTP/1.1\r\nHost: a\r\nContent-Length: 900000\r\n\r\n" + b"x" * 900_000)
        assert bytes_of_bodies() - before < 1_000_000
    finally:
        gc.enable()


def bytes_of_bodies() -> int:
    return sum(len(one.body) for one in gc.get_objects() if isinstance(one, RequestResponseCycle))


def test_a_client_that_has_left_becomes_no_stream_and_the_other_end_hears_so() -> None:
    asyncio.run(asyncio.wait_for(_left_before_its_upgrade(), PATIENCE))


async def _left_before_its_upgrade() -> None:
    requested, gone = asyncio.Event(), asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        requested.set()
        while (await receive())["type"] != "http.disconnect":
            pass
        gone.set()

    near, far = socket.socketpair()
    config = uvicorn.Config(app, http=HttpConnection, ws="none")
    config.load()
    connection = HttpConnection(config, ServerState(), {})
    await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, near)
    far.sendall(b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
    await requested.wait()
    far.close()
    await gone.wait()
    other = asyncio.Event()
    connection.upgrade(b"HTTP/1.1 101 Switching Protocols\r\n\r\n", cast(StreamEnd, SimpleNamespace(lost=other.set)))
    await other.wait()


class Strict(HttpConnection):
    read_seconds = 0.2


class Paused(asyncio.SelectorEventLoop):
    """Its time goes on when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.at = 0.0

    def time(self) -> float:
        return self.at


@pytest.mark.parametrize("reads", [False, True])
def test_a_client_that_doesnt_read_what_it_gets_is_cut_off(reads: bool) -> None:
    with asyncio.Runner(loop_factory=Paused) as runner:
        runner.run(_sent_more_than_buffers_hold(reads, cast(Paused, runner.get_loop())))


async def _sent_more_than_buffers_hold(reads: bool, loop: Paused) -> None:
    complete, lost, size = asyncio.Event(), asyncio.Event(), 4 * 2**20

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        length = str(size).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        for left in range(size, 0, -65536):
            await send({"type": "http.response.body", "body": bytes(65536), "more_body": left > 65536})
        complete.set()

    near, far = socket.socketpair()
    far.setblocking(False)
    config = uvicorn.Config(app, http=Strict, ws="none")
    config.load()
    connection = Strict(config, ServerState(), {})
    connection.lost = lost.set
    await loop.connect_accepted_socket(lambda: connection, near)
    far.sendall(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
    if not reads:
        while not lost.is_set():
            loop.at += Strict.read_seconds / 100
            await asyncio.sleep(0)
        assert not complete.is_set()
    else:
        got = 0
        while got < size:
            part = await loop.sock_recv(far, 65536)
            assert part, "it was cut off"
            got += len(part)
        await complete.wait()
        loop.at += 2 * Strict.read_seconds
        for _ in range(100):
            await asyncio.sleep(0)
        assert not lost.is_set(), "a client that has read everything was cut off"
        connection.leave()
    far.close()


@pytest.mark.parametrize(
    "method, accept",
    [(b"HEAD", b"text/event-stream"), (b"GET", b"application/json, text/event-stream;q=0")],
    ids=["only the head", "anything but a stream"],
)
def test_who_wants_no_stream_gets_an_answer_that_ends(patient: Listening, method: bytes, accept: bytes) -> None:
    head, _, body = patient.ask(
        method + b" /api/v1/changes HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer t\r\n"
        b"Connection: close\r\nAccept: " + accept + b"\r\n\r\n"
    ).partition(b"\r\n\r\n")
    assert b" 200 " in head and b"application/json" in head and b"event-stream" not in head
    assert body == (b"{}" if method == b"GET" else b"")
