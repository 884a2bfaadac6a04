"""Streams: bytes to and from a job, carried by the control plane over a WebSocket (RFC 6455, client side).

A stream is bytes in binary messages, whose boundaries mean nothing, so what has arrived of a message is passed on at
once. Reading and writing may happen in two threads.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import io
import json
import os
import select
import socket
import ssl
import threading
from collections.abc import Mapping
from urllib.parse import SplitResult

from chalicelib.errors import Refused

OPENING_TIMEOUT = 30.0  # seconds; the server waits for the job's machine for half of that
MOST_HEAD = 65_536
MOST_ANSWER = 1 << 20
CHUNK = 65_536
GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
CONTINUED, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
NORMAL, LOST = 1000, 1006


class NoStream(Exception):
    """The server's response isn't a stream."""

    def __init__(self, status: int, answer: object) -> None:
        super().__init__(status)
        self.status, self.answer = status, answer


class Stream:
    """An open stream. After its end, `code` and `reason` say how it ended: NORMAL is an orderly end by the other
    side."""

    def __init__(self, connection: socket.socket, received: bytes = b"") -> None:
        self._socket, self._buffer = connection, bytearray(received)
        self._left = 0  # bytes of the current frame's payload still to come
        self._sending = threading.Lock()
        self.code, self.reason = 0, ""

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def pending(self) -> bool:
        """Is something buffered that doesn't make `fileno` readable: bytes after the server's response, or in TLS?"""
        return bool(self._buffer) or (isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0)

    def receive(self, timeout: float | None = None) -> bytes | None:
        """What arrives within `timeout` seconds: b"" if nothing does, None once the stream has ended."""
        while not self.code:
            if data := self._unpacked():
                return data
            if self.code:
                break
            if not self._readable(timeout):
                return b""
            try:
                arrived = self._socket.recv(CHUNK)
            except (OSError, ValueError) as error:
                self._end(LOST, str(error))
                break
            if not arrived:
                self._end(LOST, "the connection was cut")
            self._buffer += arrived
        return None

    def send(self, data: bytes) -> None:
        """Raises OSError if the stream has ended."""
        for start in range(0, len(data), CHUNK):
            self._send_frame(BINARY, data[start : start + CHUNK])

    def end(self) -> None:
        """Ends the stream in order; another thread that reads it sees the end, too."""
        self._end(NORMAL, "")
        with contextlib.suppress(OSError):  # the connection may be gone already
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Ends the stream from the reading thread, and closes the connection."""
        self.end()
        self._socket.close()

    def _readable(self, timeout: float | None) -> bool:
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0:
            return True
        return bool(select.select([self._socket], [], [], timeout)[0])

    def _unpacked(self) -> bytes:
        """The payload that has arrived. Control frames on the way are obeyed."""
        found = bytearray()
        while self._buffer and not self.code:
            if self._left:
                part = self._buffer[: self._left]
                del self._buffer[: len(part)]
                self._left -= len(part)
                found += part
            elif not self._begin_frame():
                break
        return bytes(found)

    def _begin_frame(self) -> bool:
        """Takes a frame's head off the buffer, or a whole control frame; False if it isn't complete yet."""
        if len(self._buffer) < 2:
            return False
        kind, size, head = self._buffer[0] & 0xF, self._buffer[1] & 0x7F, 2
        if size >= 126:
            head = 4 if size == 126 else 10
            if len(self._buffer) < head:
                return False
            size = int.from_bytes(self._buffer[2:head], "big")
        carries = kind in (CONTINUED, TEXT, BINARY)
        if self._buffer[1] & 0x80 or not (carries or (kind in (CLOSE, PING, PONG) and size < 126)):
            self._end(1002, "the server doesn't speak WebSocket")
            return False
        if carries:
            del self._buffer[:head]
            self._left = size
            return True
        if len(self._buffer) < head + size:
            return False
        payload = bytes(self._buffer[head : head + size])
        del self._buffer[: head + size]
        self._obey(kind, payload)
        return True

    def _obey(self, kind: int, payload: bytes) -> None:
        if kind == PING:
            self._answer(PONG, payload)
        elif kind == CLOSE:
            code = int.from_bytes(payload[:2], "big") if len(payload) >= 2 else NORMAL
            self._end(code, payload[2:].decode(errors="replace"))

    def _answer(self, kind: int, payload: bytes) -> None:
        try:
            self._send_frame(kind, payload)
        except OSError as error:
            self._end(LOST, str(error))

    def _end(self, code: int, reason: str) -> None:
        if self.code:
            return
        self.code, self.reason = code, reason
        if code != LOST:
            self._answer(CLOSE, NORMAL.to_bytes(2, "big"))

    def _send_frame(self, kind: int, payload: bytes) -> None:
        size = len(payload)
        if size < 126:
            length = bytes([0x80 | size])
        else:
            length = b"\xfe" + size.to_bytes(2, "big") if size <= 0xFFFF else b"\xff" + size.to_bytes(8, "big")
        mask = os.urandom(4)
        with self._sending:
            self._socket.sendall(bytes([0x80 | kind]) + length + mask + _masked(payload, mask))


def _masked(payload: bytes, mask: bytes) -> bytes:
    """XOR with the repeated mask, as one big number: a loop over bytes would be 100 times slower."""
    size = len(payload)
    key = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
    return (int.from_bytes(payload, "big") ^ key).to_bytes(size, "big")


def open_stream(parts: SplitResult, path: str, headers: Mapping[str, str]) -> Stream:
    """Requests a stream. Raises OSError without a connection, NoStream if the response is something else."""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    connection = socket.create_connection((parts.hostname or "", port), timeout=OPENING_TIMEOUT)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # so that an idle stream notices a lost server
        if parts.scheme == "https":
            connection = ssl.create_default_context().wrap_socket(connection, server_hostname=parts.hostname)
        received = _upgrade(connection, parts.netloc.rpartition("@")[2], path, headers)
        connection.settimeout(None)
    except BaseException:
        connection.close()
        raise
    return Stream(connection, received)


def _upgrade(connection: socket.socket, host: str, path: str, headers: Mapping[str, str]) -> bytes:
    """Makes the connection a WebSocket; returns the bytes that came after the server's response."""
    key = base64.b64encode(os.urandom(16)).decode()
    wanted = {
        "Host": host,
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": key,
        **headers,
    }
    lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in wanted.items()), "", ""]
    connection.sendall("\r\n".join(lines).encode("latin-1"))
    received = b""
    while b"\r\n\r\n" not in received:
        received = _more(connection, received, MOST_HEAD)
    head, _, remainder = received.partition(b"\r\n\r\n")
    first, _, fields = head.partition(b"\r\n")
    parts = first.split(None, 2)
    if len(parts) < 2 or not parts[0].startswith(b"HTTP/1.") or not parts[1].isdigit():
        raise Refused("The server's answer is not HTTP.")
    answered = http.client.parse_headers(io.BytesIO(fields + b"\r\n\r\n"))
    if int(parts[1]) != 101:
        raise NoStream(int(parts[1]), _json(connection, remainder, answered))
    expected = base64.b64encode(hashlib.sha1((key + GUID).encode()).digest()).decode()  # noqa: S324 - what RFC 6455 asks
    if answered.get("Sec-WebSocket-Accept", "") != expected:
        raise Refused("The server's answer is not that of a WebSocket.", hint="Is there a proxy in between?")
    return remainder


def _json(connection: socket.socket, received: bytes, headers: http.client.HTTPMessage) -> object:
    size = headers.get("Content-Length", "")
    while not size.isdigit() or len(received) < min(int(size), MOST_ANSWER):
        try:
            received = _more(connection, received, MOST_ANSWER)
        except ConnectionError:  # without a length, the response ends with the connection
            break
    try:
        return json.loads(received)
    except ValueError:
        return None


def _more(connection: socket.socket, received: bytes, most: int) -> bytes:
    data = connection.recv(CHUNK)
    if not data or len(received) > most:
        raise ConnectionResetError("the connection was cut before the server had answered")
    return received + data
