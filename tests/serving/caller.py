"""A client that sends exactly the bytes that it is told to."""

from __future__ import annotations

import http.client
import io
import json
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

PATIENCE = 120.0  # seconds: two busy cores are slow


@dataclass(frozen=True)
class Answer:
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]

    def header(self, name: str) -> str | None:
        return next(iter(self.all(name)), None)

    def json(self) -> Any:
        return json.loads(self.body)


class _SharedReader(io.BufferedReader):
    """One reader for all responses of a connection, so that none takes the beginning of the next away with it."""

    def close(self) -> None:
        pass  # a response closes what it was read from

    def makefile(self, mode: str) -> _SharedReader:
        return self


class Caller:
    """One connection."""

    def __init__(self, address: tuple[str, int], patience: float = PATIENCE) -> None:
        self.socket = socket.create_connection(address, timeout=patience)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader: Any = _SharedReader(socket.SocketIO(self.socket, "r"))

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def head(
        self, method: str, target: str, host: str, headers: Iterable[tuple[str, str]] = (), version: str = "1.1"
    ) -> None:
        lines = [f"{method} {target} HTTP/{version}", f"Host: {host}", *(f"{name}: {value}" for name, value in headers)]
        self.send("\r\n".join([*lines, "", ""]).encode("latin-1"))

    def begin(self, method: str = "GET") -> http.client.HTTPResponse:
        """The response, whose body the test reads itself."""
        response = http.client.HTTPResponse(self._reader, method=method)
        response.begin()
        return response

    def answer(self, method: str = "GET") -> Answer:
        response = self.begin(method)
        headers = [(name.lower(), value) for name, value in response.getheaders()]
        return Answer(response.status, headers, response.read())

    def ended(self) -> bool:
        """The other side closes the connection, and sends nothing before it does."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True
