"""The local port to which a browser returns after its user has signed on."""

from __future__ import annotations

import html
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs, urlsplit

from chalicelib.errors import Refused

PATH = "/auth/callback"
PATIENCE = 600.0  # seconds for the user to sign on
SILENCE = 2.0  # seconds for a request: browsers open connections ahead, and may never use them
_PAGE = "<!doctype html><meta charset=utf-8><title>dstack</title><p>{text}</p>"


class Callback:
    def __init__(self) -> None:
        self._given: dict[str, str] = {}
        self._server = HTTPServer(("127.0.0.1", 0), _handler(self))

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def __enter__(self) -> Callback:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.server_close()

    def code(self, state: str, patience: float = PATIENCE) -> str:
        """The code that the provider gave the browser. Requests without our state are ignored."""
        until = time.monotonic() + patience
        while self._given.get("state") != state:
            self._server.timeout = until - time.monotonic()
            if self._server.timeout <= 0:
                raise Refused("The sign-on wasn't completed in time.", hint="Try again, or add --device.")
            self._server.handle_request()
        if "code" not in self._given:
            given = (self._given.get(name) for name in ("error", "error_description"))
            reason = ": ".join(text for text in given if text) or "it gave no reason"
            raise Refused(f"The provider didn't let you sign on: {reason}.")
        return self._given["code"]

    def visited(self, path: str) -> tuple[int, str]:
        """The response to a request: its status and text."""
        parts = urlsplit(path)
        if parts.path != PATH:
            return 404, "There is nothing here."
        self._given = {name: values[0] for name, values in parse_qs(parts.query).items()}
        return 200, "You can close this window: the terminal says how it went."


def _handler(callback: Callback) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = SILENCE

        def do_GET(self) -> None:
            status, text = callback.visited(self.path)
            body = _PAGE.format(text=html.escape(text)).encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Logs nothing, because the address contains the code."""

    return Handler
