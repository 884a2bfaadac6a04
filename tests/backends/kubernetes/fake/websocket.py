"""The server's side of a WebSocket. The messages of exec, and of a port-forward without SPDY, begin with the number of
a channel."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping

from chalicelib.agent.streams.websocket import BINARY, CLOSE, PING, PONG, ProtocolError, accept_of, frame, key_of, xor

CLOSING = 255  # a channel of v5: the other byte names the one that ends


class Gone(Exception):
    """The client has left."""


def handshake(headers: Mapping[str, str], offered: tuple[str, ...]) -> tuple[str, bytes] | None:
    """The protocol that both sides speak and the head of the answer; None if the client asks for no WebSocket, or in
    protocols that the server hasn't."""
    try:
        key = key_of(headers)
    except ProtocolError:
        return None
    requested = [each.strip() for each in headers.get("sec-websocket-protocol", "").split(",")]
    protocol = next((each for each in requested if each in offered), None)
    if protocol is None:
        return None
    lines = ("HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade")
    own = (f"Sec-WebSocket-Accept: {accept_of(key)}", f"Sec-WebSocket-Protocol: {protocol}")
    return protocol, "\r\n".join([*lines, *own, "", ""]).encode()


class Messages:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._buffer = self._message = b""

    def write(self, message: bytes) -> None:
        try:
            self.sock.sendall(frame(BINARY, message, masked=False))
        except OSError as problem:
            raise Gone from problem

    def close(self) -> None:
        try:
            self.sock.sendall(frame(CLOSE, struct.pack("!H", 1000), masked=False))
        except OSError as problem:
            raise Gone from problem

    def read(self) -> list[bytes]:
        """Those in what has arrived, but for empty ones. Raises Gone."""
        try:
            part = self.sock.recv(65536)
            while part and getattr(self.sock, "pending", lambda: 0)():
                part += self.sock.recv(65536)
        except OSError as problem:
            raise Gone from problem
        if not part:
            raise Gone
        self._buffer += part
        found = []
        while (one := self._frame()) is not None:
            last, opcode, payload = one
            if opcode == CLOSE:
                raise Gone
            if opcode == PING:
                self.sock.sendall(frame(PONG, payload, masked=False))
            elif opcode < CLOSE:
                self._message += payload
                if last and self._message:
                    found.append(self._message)
                self._message = b"" if last else self._message
        return found

    def _frame(self) -> tuple[bool, int, bytes] | None:
        """The next whole frame: is it the last of its message, its opcode and its payload."""
        data = self._buffer
        if len(data) < 2:
            return None
        first, size, at = data[0], data[1] & 0x7F, 2
        if not data[1] & 0x80:
            raise Gone  # a client masks its frames
        if size > 125:
            at += 2 if size == 126 else 8
            size = int.from_bytes(data[2:at], "big")
        if len(data) < at + 4 + size:
            return None
        payload = xor(data[at + 4 : at + 4 + size], data[at : at + 4])
        self._buffer = data[at + 4 + size :]
        return bool(first & 0x80), first & 0x0F, payload


class Channels(Messages):
    def send(self, channel: int, data: bytes) -> None:
        self.write(bytes([channel]) + data)

    def receive(self) -> list[tuple[int, bytes]]:
        """The messages in what has arrived. Raises Gone."""
        return [(each[0], each[1:]) for each in self.read()]
