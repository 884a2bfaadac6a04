"""One address before a deployment on the emulator, known before there is one.

The emulator serves an API and a Function URL under paths with ids that it makes up, and AWS's own names don't resolve
here. People and agents call this front instead, as they would a domain of the owner's. It knows no paths of its own:
what begins with `/agent/` goes to the Function URL, everything else to the API's stage.
"""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

_OWN = ("host", "content-length", "connection", "transfer-encoding", "keep-alive")


class Front(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, emulator: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.emulator = urlsplit(emulator)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.api = self.agents = ""  # paths at the emulator; empty: nothing is deployed

    def leads_to(self, api_url: str, agent_url: str) -> None:
        """To these addresses in AWS."""
        stage = urlsplit(api_url)
        self.api = f"/_aws/execute-api/{(stage.hostname or '').split('.')[0]}{stage.path}"
        self.agents = f"/_aws/lambda-url/{(urlsplit(agent_url).hostname or '').split('.')[0]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Front

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        prefix = self.server.agents if self.path.startswith("/agent/") else self.server.api
        status, headers, content = self._asked(prefix, body) if prefix else (503, [], b"nothing is deployed yet")
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("content-length", str(len(content)))
        with contextlib.suppress(ConnectionError):  # whoever called has gone
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

    def _asked(self, prefix: str, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        target = self.server.emulator
        connection = http.client.HTTPConnection(target.hostname or "", target.port or 80, timeout=60)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _OWN}
            connection.request(self.command, prefix + self.path, body, headers)
            reply = connection.getresponse()
            kept = [
                (name, value) for name, value in reply.getheaders() if name.lower() not in (*_OWN, "date", "server")
            ]
            return reply.status, kept, reply.read()
        except (OSError, http.client.HTTPException) as error:  # as API Gateway says it
            return 502, [], f"the emulator gave no answer: {error}".encode()
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
