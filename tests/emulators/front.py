"""A front before the emulator that loses replies, refuses and forgets, as told: the network between a client and AWS.

`plan` holds what happens to the next requests of an operation, one word a request; without a plan they pass.

| word             | what happens                                                                             |
|------------------|------------------------------------------------------------------------------------------|
| `pass`           | forwarded and answered                                                                   |
| `lose-reply`     | forwarded; the connection ends without an answer                                         |
| `lose-request`   | not forwarded; the connection ends without an answer                                     |
| `forget-token`   | forwarded under another client token, as if the first were forgotten                     |
| any other        | not forwarded; answered 400 with that error code, or 500 for an InternalServerError       |
"""

from __future__ import annotations

import http.client
import json
import threading
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


class Front:
    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self.host, self.port = parts.hostname or "", parts.port or 80
        self.plan: dict[str, deque[str]] = defaultdict(deque)
        self.seen: list[tuple[str, str]] = []  # (operation, client token) of every request, in order
        self.url = ""

    def decide(self, operation: str, token: str) -> str:
        self.seen.append((operation, token))
        waiting = self.plan[operation]
        return waiting.popleft() if waiting else "pass"

    def tokens(self, operation: str) -> list[str]:
        return [token for seen, token in self.seen if seen == operation]


@contextmanager
def running(target: str) -> Iterator[Front]:
    front = Front(target)

    class Handler(_Handler):
        pass

    Handler.front = front
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    front.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield front
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    front: Front

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        operation = self.headers.get("X-Amz-Target", "").rpartition(".")[2]
        message = json.loads(body or b"{}")
        fault = self.front.decide(operation, message.get("ClientRequestToken", ""))
        if fault == "forget-token":
            message["ClientRequestToken"] += "-forgotten"
            body = json.dumps(message).encode()
        if fault in ("pass", "lose-reply", "forget-token"):
            status, headers, answer = self._forward(body)
        elif fault != "lose-request":
            status, headers, answer = _refusal(fault, len(message.get("TransactItems", ())))
        if fault in ("lose-reply", "lose-request"):
            self.close_connection = True
            return
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(self.front.host, self.front.port, timeout=120)
        skipped = ("host", "content-length", "connection")
        headers = {name: value for name, value in self.headers.items() if name.lower() not in skipped}
        connection.request("POST", self.path, body, headers)
        reply = connection.getresponse()
        answer = reply.read()
        connection.close()
        wanted = ("content-type", "x-amzn-requestid")
        return reply.status, [item for item in reply.getheaders() if item[0].lower() in wanted], answer

    def log_message(self, format: str, *args: object) -> None:
        """Silent: a test that fails prints `seen`."""


def _refusal(code: str, items: int) -> tuple[int, list[tuple[str, str]], bytes]:
    status = 500 if code == "InternalServerError" else 400
    answer: dict[str, object] = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "as told"}
    if code == "TransactionConflict":
        answer["__type"] = "com.amazonaws.dynamodb.v20120810#TransactionCanceledException"
        reasons = [{"Code": "None"}] * (items - 1) + [{"Code": code, "Message": "as told"}]
        answer["CancellationReasons"] = reasons
    return status, [("Content-Type", "application/x-amz-json-1.0")], json.dumps(answer).encode()
