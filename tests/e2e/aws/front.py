"""One address before a deployment on the emulator, known before there is one.

The emulator serves an API and a Function URL under paths with ids that it makes up, and AWS's own names don't resolve
here. People and agents call this front instead, as they would a domain of the owner's. It knows no paths of its own:
what begins with `/agent/` goes to the Function URL, or to the API that takes its place, everything else to the API's
stage.

It lets few calls through at once. The emulator starts a process for each call that finds none free, and ends one whose
time ran out: after an upgrade, callers who don't wait for each other would keep two cores busy with nothing but starts.
A question that got no answer so is asked again.
"""

from __future__ import annotations

import contextlib
import http.client
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

AT_ONCE = 2  # calls to each of the two
HELD = 60.0  # seconds that a call waits for the end of an upgrade
NO_ANSWER = 502  # as API Gateway says it
QUESTIONS = ("get", "get_cost", "get_info", "get_my_user", "get_plan", "get_user", "list", "poll")  # ends of paths
TRIES = 4  # of each
_OWN = ("host", "content-length", "connection", "transfer-encoding", "keep-alive")


class Front(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, emulator: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.emulator = urlsplit(emulator)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.api = self.agents = ""  # paths at the emulator; empty: nothing is deployed
        self.turns = {door: threading.BoundedSemaphore(AT_ONCE) for door in ("api", "agents")}
        self.open = threading.Event()
        self.open.set()

    def leads_to(self, api_url: str, agent_url: str) -> None:
        """To these addresses in AWS."""
        stage = urlsplit(api_url)
        self.api = f"/_aws/execute-api/{(stage.hostname or '').split('.')[0]}{stage.path}"
        id_, _, kind = (urlsplit(agent_url).hostname or "").partition(".")
        self.agents = (
            f"/_aws/execute-api/{id_}/$default" if kind.startswith("execute-api") else f"/_aws/lambda-url/{id_}"
        )

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Calls wait meanwhile."""
        self.open.clear()
        try:
            yield
        finally:
            self.open.set()

    def handle_error(self, request: object, client_address: object) -> None:
        """Silent about callers that are gone, as those are whose work was stopped."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Front

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        status, headers, content = self._answered("agents" if self.path.startswith("/agent/") else "api", body)
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("content-length", str(len(content)))
        with contextlib.suppress(ConnectionError):  # whoever called has gone
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

    def _answered(self, door: str, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        prefix = {"agents": self.server.agents, "api": self.server.api}[door]
        if not prefix or not self.server.open.wait(HELD):
            return 503, [], b"being deployed"
        asks = urlsplit(self.path).path.rpartition("/")[2] in QUESTIONS
        with self.server.turns[door]:
            for _ in range(TRIES - 1 if asks else 0):
                found = self._forwarded(prefix, body)
                if found[0] != NO_ANSWER:
                    return found
            return self._forwarded(prefix, body)

    def _forwarded(self, prefix: str, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        target = self.server.emulator
        connection = http.client.HTTPConnection(target.hostname or "", target.port or 80, timeout=120)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _OWN}
            connection.request(self.command, prefix + self.path, body, headers)
            reply = connection.getresponse()
            reply_headers = [
                (name, value) for name, value in reply.getheaders() if name.lower() not in (*_OWN, "date", "server")
            ]
            return reply.status, reply_headers, reply.read()
        except (OSError, http.client.HTTPException) as error:
            return NO_ANSWER, [], f"the emulator gave no answer: {error}".encode()
        finally:
            connection.close()

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = answer

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: errors are in the response."""


@contextmanager
def before(emulator: str) -> Iterator[Front]:
    front = Front(emulator)
    thread = threading.Thread(target=front.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield front
    finally:
        front.shutdown()
        front.server_close()
        thread.join()
