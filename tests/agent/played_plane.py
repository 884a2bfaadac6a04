"""A control plane that is played: it gives the answers it was told, and keeps what it was asked."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Answer:
    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)
    length: int | None = None  # what the head says, where that isn't true
    hangs_up: bool = False  # after the answer, without a word


class Plane:
    """A server that gives the answers it was told, in turn, and keeps what it was asked on which connection."""

    def __init__(self) -> None:
        plane = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing."""

            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                plane.calls.append((self.client_address[1], self.command, self.path, dict(self.headers), data))
                answer = plane.answers.pop(0) if plane.answers else Answer()
                if answer.status == 0:
                    self.close_connection = True
                    return
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer.body) if answer.length is None else answer.length))
                self.end_headers()
                self.wfile.write(answer.body)
                self.close_connection = answer.hangs_up or answer.length is not None

            do_GET = do_POST

        self.calls: list[tuple[int, str, str, dict[str, str], bytes]] = []
        self.answers: list[Answer] = []
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    @contextmanager
    def serving(self) -> Iterator[Plane]:
        thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.server.shutdown()
            thread.join()
            self.server.server_close()

    @property
    def connections(self) -> int:
        return len({port for port, *_ in self.calls})
