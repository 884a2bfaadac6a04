"""Ways to a fake: HTTP on loopback, for a provider's own SDK or command line, and two inside the test's process."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPResponse

from chalicelib.backends.kit.rest import NoAnswer, RestAnswer, RestCall, Sender
from tests.backends.fakes.script import Answer, Cut
from tests.backends.fakes.server import Fake, Request


class Answers(Protocol):
    def answer(self, request: Request) -> Answer:
        """Raises Cut if there is none."""


@contextmanager
def serving(fake: Answers, port: int = 0) -> Iterator[str]:
    """Its address. An error of the fake's own is a 599, and raised at the end."""
    wrong: list[Exception] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _any(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            try:
                answer = fake.answer(Request(self.command, self.path, headers, body))
            except Cut:
                self.close_connection = True
                return
            except Exception as error:
                wrong.append(error)
                answer = Answer(599, {"wrong": str(error)})
            content = _content(answer)
            self.send_response(answer.status)
            for name, value in {"content-type": "application/json", **answer.headers}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _any

        def log_message(self, format: str, *args: Any) -> None:
            """Tests read `fake.calls`."""

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
    if wrong:
        raise wrong[0]


class InProcess(HTTPAdapter):
    """For a session of `requests`: `session.mount("https://", InProcess(fake))`."""

    def __init__(self, fake: Fake) -> None:
        super().__init__()
        self._fake = fake

    def send(self, request: requests.PreparedRequest, *args: Any, **named: Any) -> requests.Response:
        headers = {name.lower(): _text(value) for name, value in request.headers.items()}
        assert request.body is None or isinstance(request.body, str | bytes), "no stream is sent"
        sent = request.body.encode() if isinstance(request.body, str) else request.body or b""
        try:
            answer = self._fake.answer(Request(str(request.method), request.path_url, headers, sent))
        except Cut as cut:
            raise requests.ConnectionError("the connection was cut", request=request) from cut
        raw = HTTPResponse(
            io.BytesIO(_content(answer)),
            {"content-type": "application/json", **answer.headers},
            answer.status,
            preload_content=False,
        )
        return self.build_response(request, raw)


def sender(fake: Fake) -> Sender:
    """For a client of the kit."""

    def send(call: RestCall, deadline: float) -> RestAnswer:
        url = urlsplit(call.url)
        target = f"{url.path}?{url.query}" if url.query else url.path
        headers = {name.lower(): value for name, value in call.headers.items()}
        try:
            answer = fake.answer(Request(call.method, target, headers, call.body))
        except Cut:
            raise NoAnswer("the connection was cut") from None
        return RestAnswer(
            answer.status, {name.lower(): value for name, value in answer.headers.items()}, _content(answer)
        )

    return send


def _content(answer: Answer) -> bytes:
    if answer.headers.get("content-type", "").startswith("text/"):
        return str(answer.body).encode()
    return b"" if answer.body is None else json.dumps(answer.body).encode()


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
