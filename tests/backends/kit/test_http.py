"""The sender, over real connections of the loopback."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from chalicelib.backends.kit.rest import HttpSender, NoAnswer, RestAnswer, RestCall
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.errors import Gone, InvalidCredentials
from tests.backends.conformance.requests import request_for
from tests.backends.kit.backend import CirrusBackend
from tests.backends.kit.cirrus import KEY, SECRET, Cirrus

Serve = Callable[[Callable[[RestCall], RestAnswer]], str]
SHORT = 0.2  # seconds that a call may take which can't succeed


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    answer: Callable[[RestCall], RestAnswer]
    connections: list[Any]

    def setup(self) -> None:
        super().setup()
        self.connections.append(self.client_address)

    def _any(self) -> None:
        link = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        call = RestCall(self.command, "", link.path, tuple(parse_qsl(link.query)), dict(self.headers), body)
        found = type(self).answer(call)
        self.send_response(found.status)
        for name, value in {**found.headers, "Content-Length": str(len(found.body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(found.body)

    do_GET = do_POST = do_DELETE = _any

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing to say."""


@pytest.fixture
def connections() -> list[Any]:
    return []


@pytest.fixture
def serve(connections: list[Any]) -> Iterator[Serve]:
    servers: list[ThreadingHTTPServer] = []

    def serve(answer: Callable[[RestCall], RestAnswer]) -> str:
        kind = type("Handler", (Handler,), {"answer": staticmethod(answer), "connections": connections})
        server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield serve
    for server in servers:
        server.shutdown(), server.server_close()


@pytest.fixture
def send() -> Iterator[HttpSender]:
    sender = HttpSender()
    yield sender
    sender.close()


@pytest.fixture
def raw() -> Iterator[Callable[[bytes, bool], str]]:
    """A server that says what it is told to, and then says a little again and again, or nothing more."""
    listener = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def raw(first: bytes, goes_on: bool) -> str:
        def talk() -> None:
            connection, _ = listener.accept()
            with connection, suppress(OSError):  # the caller hangs up
                connection.recv(65_536)
                connection.sendall(first)
                while not over.wait(0.01):
                    connection.sendall(b" " if goes_on else b"")

        threading.Thread(target=talk, daemon=True).start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield raw
    over.set()
    listener.close()


def test_a_backend_works_over_http(serve: Serve, connections: list[Any]) -> None:
    """From a key to the end of a machine, on one connection until it is closed."""
    at = [1_795_000_000 * SECOND]
    cloud = Cirrus(lambda: at[0])
    home = serve(lambda call: cloud.send(call, 1.0))
    backend = CirrusBackend(KEY, SECRET, cloud.now, base=f"{home}/v1")
    backend.check()
    request = request_for(next(o for o in cloud_offers(cloud) if o.instance.name == "h100x8"))
    handles = list(backend.create(request))
    at[0] += MINUTE
    assert backend.describe(handles).state == "running"
    assert [each.handle for each in backend.list_owned(request.instance_id, request.offer.region)] == handles
    backend.terminate(handles[0])
    at[0] += MINUTE
    with pytest.raises(Gone):
        backend.terminate(handles[0])
    assert len(connections) == 1
    backend.close()
    backend.check()
    backend.close()
    assert len(connections) == 2


def cloud_offers(cloud: Cirrus) -> Any:
    return CirrusBackend(KEY, SECRET, cloud.now, send=cloud.send).offers()


def test_a_wrong_key_is_refused_over_http(serve: Serve) -> None:
    cloud = Cirrus(lambda: 0)
    backend = CirrusBackend(KEY, "another-secret", cloud.now, base=serve(lambda call: cloud.send(call, 1.0)) + "/v1")
    with pytest.raises(InvalidCredentials):
        backend.check()
    backend.close()


def test_no_redirect_is_followed(serve: Serve, send: HttpSender) -> None:
    calls: list[RestCall] = []

    def answer(call: RestCall) -> RestAnswer:
        calls.append(call)
        return RestAnswer(302, {"Location": "/elsewhere"})

    home = serve(answer)
    found = send(RestCall("GET", home, "/", headers={"Authorization": "key"}), 120.0)
    assert (found.status, found.headers["location"]) == (302, "/elsewhere") and len(calls) == 1


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    ("first", "goes_on"),
    [(b"", False), (HEAD, False), (HEAD + b"Content-Length: 9\r\n\r\n{", False), (HEAD + b"\r\n", True),
     (HEAD + b"Content-Length: 999999\r\n\r\n", True)],
    ids=["silent", "no end of headers", "cut", "a stream without end", "a slow stream"],
)  # fmt: skip
def test_a_call_ends_at_its_deadline(
    raw: Callable[[bytes, bool], str], send: HttpSender, first: bytes, goes_on: bool
) -> None:
    with pytest.raises(NoAnswer):
        send(RestCall("GET", raw(first, goes_on), "/"), SHORT)


def test_a_call_that_is_cut_off_is_made_once(send: HttpSender) -> None:
    """It may have been carried out, and only the engine knows how to repeat it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made: list[bytes] = []

        def hang_up() -> None:
            with suppress(OSError):  # until the listener is closed
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        made.append(connection.recv(65_536))

        threading.Thread(target=hang_up, daemon=True).start()
        home = f"http://127.0.0.1:{listener.getsockname()[1]}"
        for method in ("GET", "POST", "DELETE"):
            with pytest.raises(NoAnswer):
                send(RestCall(method, home, "/"), 120.0)
        assert [text.split()[0] for text in made] == [b"GET", b"POST", b"DELETE"]


def test_an_answer_without_measure_is_no_answer(serve: Serve) -> None:
    sender = HttpSender(largest=1000)
    sizes = iter((1000, 1001))
    home = serve(lambda call: RestAnswer(200, {}, b"x" * next(sizes)))
    assert len(sender(RestCall("GET", home, "/"), 120.0).body) == 1000
    with pytest.raises(NoAnswer, match="larger than 1000 bytes"):
        sender(RestCall("GET", home, "/"), 120.0)
    sender.close()


def test_a_provider_that_isnt_there_gives_no_answer(send: HttpSender) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        home = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(NoAnswer):
        send(RestCall("GET", home, "/"), 120.0)


def test_an_answer_that_was_cut_is_no_answer_and_spoils_no_other(serve: Serve, send: HttpSender) -> None:
    """What is said is shorter than what was announced."""
    home = serve(lambda call: RestAnswer(200, {"X": "1"}, call.path.encode()))
    assert send(RestCall("GET", home, "/one"), 120.0).body == b"/one"
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def cut() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(HEAD + b"Content-Length: 99\r\n\r\n{}")

        threading.Thread(target=cut, daemon=True).start()
        with pytest.raises(NoAnswer):
            send(RestCall("GET", f"http://127.0.0.1:{listener.getsockname()[1]}", "/"), 120.0)
    assert send(RestCall("GET", home, "/two"), 120.0).body == b"/two"
