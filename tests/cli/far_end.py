"""The other end of a stream: a server that speaks just enough WebSocket for tests of the client."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import threading
from collections.abc import Callable
from typing import Any

from cli.connection.streams import GUID


class Far:
    """One connection of a client, after the handshake."""

    def __init__(self, connection: socket.socket, requests: str) -> None:
        self.connection, self.requests = connection, requests
        self.file = connection.makefile("rb")

    def frame(self, payload: bytes, kind: int = 2, *, final: bool = True) -> bytes:
        size = len(payload)
        head = bytes([(0x80 if final else 0) | kind])
        if size < 126:
            return head + bytes([size]) + payload
        if size <= 0xFFFF:
            return head + b"\x7e" + size.to_bytes(2, "big") + payload
        return head + b"\x7f" + size.to_bytes(8, "big") + payload

    def send(self, payload: bytes, kind: int = 2) -> None:
        self.connection.sendall(self.frame(payload, kind))

    def close(self, code: int = 1000, reason: str = "") -> None:
        """In order: an end with bytes of the client unread would be a reset, which loses what was sent."""
        self.send(code.to_bytes(2, "big") + reason.encode(), 8)
        while self.receive()[0] not in (0, 8):
            pass

    def cut(self) -> None:
        self.connection.shutdown(socket.SHUT_WR)
        while self.receive()[0]:
            pass

    def receive(self) -> tuple[int, bytes]:
        """One frame: kind and payload. Kind 0 is the end of the connection."""
        head = self.file.read(2)
        if len(head) < 2:
            return 0, b""
        assert head[1] & 0x80, "a client masks what it sends"
        size = head[1] & 0x7F
        if size >= 126:
            size = int.from_bytes(self.file.read(2 if size == 126 else 8), "big")
        mask, data = self.file.read(4), self.file.read(size)
        return head[0] & 0xF, bytes(byte ^ mask[place % 4] for place, byte in enumerate(data))


class FarEnd:
    """Listens; each connection is answered with 101 and given to `play`, or with `refuse`: a status and a body."""

    def __init__(self, play: Callable[[Far], None] = lambda far: None, refuse: tuple[int, Any] | None = None) -> None:
        self.play, self.refuse = play, refuse
        self.requests: list[str] = []
        self.failures: list[BaseException] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._serve, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> FarEnd:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        if kind is not None:
            return
        for thread in self._threads:
            thread.join(120)
        if self.failures:
            raise self.failures[0]

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._one, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _one(self, connection: socket.socket) -> None:
        with connection:
            head = b""
            while b"\r\n\r\n" not in head:
                head += connection.recv(65536)
            text = head.decode()
            self.requests.append(text)
            if self.refuse:
                status, body = self.refuse
                data = json.dumps(body).encode()
                connection.sendall(f"HTTP/1.1 {status} No\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
                return
            (key,) = (line.partition(": ")[2] for line in text.split("\r\n") if line.startswith("Sec-WebSocket-Key"))
            accept = base64.b64encode(hashlib.sha1((key + GUID).encode()).digest()).decode()
            far = Far(connection, text)
            answer = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            # The first bytes come in one piece with the answer, as they do from a fast server.
            connection.sendall(f"{answer}Sec-WebSocket-Accept: {accept}\r\n\r\n".encode() + far.frame(b"", 9))
            try:
                self.play(far)
            except BaseException as failure:
                self.failures.append(failure)
                raise
            finally:
                far.file.close()
