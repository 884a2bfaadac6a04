"""Requests of nginx's workers to this program: lines of JSON over a unix socket, each answered by one.

{"ask": "rights", "token": …, "project": …, "run": …}   → {"status": 200 or 403}; 503 without a verdict; with
                                                            "ends_in", seconds, if the token expires
{"ask": "wake", "run": …}                               → {}
"""

from __future__ import annotations

import contextlib
import json
import os
import socketserver
import threading
from typing import Any, Callable, Dict, NamedTuple, Optional


class TokenVerdict(NamedTuple):
    """Whether a token may call a project's service, or all of them."""

    status: int  # an HTTP status
    ends_in: Optional[float] = None  # seconds until the token expires; None if it doesn't


Rights = Callable[[str, str, str], TokenVerdict]
Wake = Callable[[str], None]
LONGEST = 64 * 1024  # bytes of a line


class WorkerRequests:
    def __init__(self, path: str, rights: Rights, wake: Wake, log: Callable[[str], None], group: int = -1) -> None:
        """`group`: that of nginx's workers."""
        self._path, self._rights, self._wake, self._log, self._group = path, rights, wake, log, group
        self._server: Any = None

    def start(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        requests = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                while True:
                    line = self.rfile.readline(LONGEST)
                    if not line.endswith(b"\n"):
                        return
                    self.wfile.write(json.dumps(requests.answer(line)).encode("ascii") + b"\n")

        class Server(socketserver.ThreadingUnixStreamServer):
            daemon_threads = True
            request_queue_size = 1024

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # a worker of nginx that ended

        self._server = Server(self._path, Handler)
        os.chmod(self._path, 0o660)
        if self._group >= 0:
            os.chown(self._path, -1, self._group)
        threading.Thread(target=self._server.serve_forever, name="worker-requests", daemon=True).start()

    def answer(self, line: bytes) -> Dict[str, Any]:
        try:
            request = json.loads(line)
            if request["ask"] == "wake":
                self._wake(str(request["run"]))
                return {}
            verdict = self._rights(str(request["token"]), str(request["project"]), str(request["run"]))
            return {name: value for name, value in verdict._asdict().items() if value is not None}
        except Exception as problem:  # it would be lost in this thread otherwise
            self._log("nginx's request %r failed: %r" % (line[:80].split(b'"token"')[0], problem))
            return {"status": 503}

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
