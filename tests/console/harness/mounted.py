"""The console as behind the stage of an API in AWS: below a path, with nothing beside it."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from tests.harness.server import PATIENCE

OWN = ("connection", "content-length", "transfer-encoding")


class Server(ThreadingHTTPServer):
    daemon_threads = True  # a browser's connections stay open


@contextmanager
def mounted(server: str, path: str) -> Iterator[tuple[str, list[str]]]:
    """The address of a gateway that has the server below `path` (`/api`), with and without a slash; and the paths
    asked of it so far that it doesn't have."""
    strays: list[str] = []
    target = urlsplit(server)

    class Gateway(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            below = self.path.removeprefix(path)
            if below == self.path or (not below.startswith(("/", "?")) and below):
                strays.append(self.path)
                return self.say(
                    403, [("content-type", "application/json")], b'{"message": "Missing Authentication Token"}'
                )
            there = http.client.HTTPConnection(target.hostname or "", target.port, timeout=PATIENCE)
            there.request(self.command, below or "/", body, dict(self.headers))
            reply = there.getresponse()
            self.say(reply.status, [each for each in reply.getheaders() if each[0].lower() not in OWN], reply.read())
            there.close()

        def say(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
            self.send_response_only(status)
            for name, value in (*headers, ("content-length", str(len(body)))):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = answer

        def log_message(self, format: str, *args: object) -> None:
            """Quiet: a test looks at `strays`."""

    gateway = Server(("127.0.0.1", 0), Gateway)
    thread = threading.Thread(target=gateway.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{gateway.server_address[1]}", strays
    finally:
        gateway.shutdown()
        thread.join(PATIENCE)
        gateway.server_close()
