"""What a command's calls to the emulator pass, and where the command is killed: at the first call of each kind in each
phase, in attempt after attempt, until one comes through. A call that writes is made, and its answer is lost; one that
reads isn't made. The phase is what the command has said so far."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from chalicelib.domain.keys import FENCE
from tests.harness.forks import Fork

Point = tuple[str, str]  # a phase, and a kind of call

FENCED = "doesn't decide any more"  # what the command says between the two halves of its way
WRITES = ("the fence is written", "records are written", "an object is written", "a function is changed")
_OWN = ("host", "content-length", "connection", "transfer-encoding", "keep-alive")


class Toll(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, emulator: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.emulator, self.url = urlsplit(emulator), f"http://127.0.0.1:{self.server_address[1]}"
        self.killed_at: list[Point] = []
        self.command: Fork | None = None  # the one on its way
        self.said = ""
        self._lock = threading.Lock()

    def follow(self, command: Fork) -> None:
        os.set_blocking(command.stdout.fileno(), False)
        self.command, self.said = command, ""

    def heard(self) -> str:
        """What the command has said so far. It says everything before its next call."""
        assert self.command is not None
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self.command.stdout.fileno(), 65_536):
                self.said += data.decode()
        return self.said

    def kills(self, kind: str) -> bool:
        """Is the command to be killed at this call?"""
        with self._lock:
            if self.command is None:
                return False
            point = (_phase(self.heard()), kind)
            if point in self.killed_at:
                return False
            self.killed_at.append(point)
            return True

    def kill(self) -> None:
        assert self.command is not None
        self.command.kill()

    def handle_error(self, request: object, client_address: object) -> None:
        """Silent: whoever called was killed."""


def _phase(said: str) -> str:
    lines = said.splitlines() or [""]
    return f"{'after' if FENCED in said else 'before'} the fence: {' '.join(lines[-1].split()[:1])}"


def _kind(method: str, path: str, target: str, body: bytes) -> str:
    if operation := target.rpartition(".")[2]:
        if operation in ("PutItem", "DeleteItem", "TransactWriteItems", "BatchWriteItem"):
            item = json.loads(body).get("Item")
            fence = item is not None and (item["pk"]["S"], item["sk"]["S"]) == FENCE
            return "the fence is written" if fence else "records are written"
        return f"{operation} reads"
    if "/functions" in path:
        return "a function is changed" if method == "PUT" else "a function is read"
    return "an object is written" if method == "PUT" else "objects are read"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Toll

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        kind = _kind(self.command, urlsplit(self.path).path, self.headers.get("X-Amz-Target", ""), body)
        ends = self.server.kills(kind)
        if ends and kind not in WRITES:
            self.server.kill()
            return
        status, headers, content = self._forwarded(body)
        if ends:
            self.server.kill()
            return
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("content-length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _forwarded(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        target = self.server.emulator
        connection = http.client.HTTPConnection(target.hostname or "", target.port or 80, timeout=120)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _OWN}
            connection.request(self.command, self.path, body, headers)
            reply = connection.getresponse()
            dropped = _OWN if self.command != "HEAD" else tuple(name for name in _OWN if name != "content-length")
            return reply.status, [each for each in reply.getheaders() if each[0].lower() not in dropped], reply.read()
        finally:
            connection.close()

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = answer

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: errors are in the response."""


@contextmanager
def before(emulator: str) -> Iterator[Toll]:
    toll = Toll(emulator)
    thread = threading.Thread(target=toll.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield toll
    finally:
        toll.shutdown()
        toll.server_close()
        thread.join()
