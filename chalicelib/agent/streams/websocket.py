"""WebSocket (RFC 6455) without I/O: bytes in, bytes out. Both ends of every stream use it.

A stream is a sequence of bytes, so the limits of binary messages mean nothing: the payload of a frame is passed on as
it arrives, and a frame is never buffered entirely, however long it claims to be. Text messages are refused.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import os
import struct
from typing import Dict, List, Mapping, NamedTuple, Optional, Tuple

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
CONTROL_MOST = 125  # bytes of a control frame
EMPTY_MOST = 1000  # empty frames of messages in a row
NORMAL, LEAVING, BROKEN, NOT_BYTES, NOT_UTF8, POLICY, FAILED = 1000, 1001, 1002, 1003, 1007, 1008, 1011
_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class ProtocolError(Exception):
    """The other side violates the protocol."""

    def __init__(self, reason: str, code: int = BROKEN) -> None:
        super().__init__(reason)
        self.code = code


class Closed(NamedTuple):
    code: int
    reason: str = ""


# --- the handshake ----------------------------------------------------------------------------------------------------


def new_key() -> str:
    return base64.b64encode(os.urandom(16)).decode("ascii")


def accept_of(key: str) -> str:
    """The `Sec-WebSocket-Accept` for a client's key."""
    return base64.b64encode(hashlib.sha1((key + _GUID).encode("ascii")).digest()).decode("ascii")


def key_of(headers: Mapping[str, str]) -> str:
    """The key of a request for a WebSocket. `headers` by name in lower case. Raises ProtocolError."""
    if "upgrade" not in _tokens(headers, "connection") or "websocket" not in _tokens(headers, "upgrade"):
        raise ProtocolError("this address speaks WebSocket only: send `Connection: Upgrade` and `Upgrade: websocket`")
    if headers.get("sec-websocket-version", "").strip() != "13":
        raise ProtocolError("only version 13 of WebSocket is spoken here: send `Sec-WebSocket-Version: 13`")
    key = headers.get("sec-websocket-key", "").strip()
    try:
        if len(base64.b64decode(key.encode("ascii"), validate=True)) == 16:
            return key
    except ValueError:
        pass
    raise ProtocolError("`Sec-WebSocket-Key` should be 16 bytes as base64")


def request(path: str, key: str, headers: Mapping[str, str]) -> bytes:
    """A client's request for a WebSocket."""
    fixed = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": key}
    lines = ["%s: %s" % item for item in {**headers, **fixed}.items()]
    return ("GET %s HTTP/1.1\r\n%s\r\n\r\n" % (path, "\r\n".join(lines))).encode("latin-1")


def parse_head(head: bytes) -> Tuple[str, Dict[str, str]]:
    """The first line of a request or a response, and its headers by name in lower case."""
    first, *lines = head.decode("latin-1").split("\r\n")
    found = (line.partition(":") for line in lines)
    return first, {name.strip().lower(): value.strip() for name, _, value in found}


def handshake_response(key: str) -> bytes:
    """The response that turns a connection into a WebSocket."""
    head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    return (head + "Sec-WebSocket-Accept: %s\r\n\r\n" % accept_of(key)).encode("ascii")


def _tokens(headers: Mapping[str, str], name: str) -> List[str]:
    return [token.strip().lower() for token in headers.get(name, "").split(",")]


# --- frames -----------------------------------------------------------------------------------------------------------


def xor(data: bytes, key: bytes, offset: int = 0) -> bytes:
    """`data`, which begins at this offset of its frame, masked or unmasked: as one big number, which is the fastest in
    Python without extensions."""
    size = len(data)
    if not size or key == b"\0\0\0\0":
        return data
    shift = offset % 4
    mask, count = int.from_bytes(key[shift:] + key[:shift], "little"), (size + 3) // 4
    plain = (int.from_bytes(data, "little") ^ mask * _ones(count)).to_bytes(4 * count, "little")
    return plain[:size]


@functools.lru_cache(maxsize=8)  # frames in bulk have one size, and each number is as large as its frame
def _ones(count: int) -> int:
    """A number whose 32-bit words are all 1, so that its product with a 32-bit mask repeats the mask."""
    return int.from_bytes(b"\1\0\0\0" * count, "little")


def frame(opcode: int, payload: bytes, masked: bool) -> bytes:
    size, bit = len(payload), 0x80 if masked else 0
    if size < 126:
        head = struct.pack("!BB", 0x80 | opcode, bit | size)
    elif size < 1 << 16:
        head = struct.pack("!BBH", 0x80 | opcode, bit | 126, size)
    else:
        head = struct.pack("!BBQ", 0x80 | opcode, bit | 127, size)
    if not masked:
        return head + payload
    key = os.urandom(4)
    return b"".join((head, key, xor(payload, key)))


class Decoder:
    """Splits what arrives into (opcode, payload): complete control frames, and binary messages part by part."""

    def __init__(self, masked: bool) -> None:
        """`masked`: whether the other side has to mask its frames, as a client must and a server mustn't."""
        self._masked = masked
        self._head = b""  # an incomplete head of a frame, or an incomplete control frame
        self._opcode = -1  # of the current frame; -1 between frames
        self._remaining = self._offset = 0  # bytes of its payload to come, and so far
        self._key = b""
        self._in_message = False  # the next data frame continues a message
        self._empty = 0  # consecutive frames of messages without a byte

    def feed(self, data: bytes) -> List[Tuple[int, bytes]]:
        """The events in `data`. Raises ProtocolError, with which earlier events in `data` are lost."""
        events: List[Tuple[int, bytes]] = []
        data, self._head = (self._head + data if self._head else data), b""
        at = 0
        while at < len(data) or (self._opcode >= 0 and not self._remaining):
            if self._opcode < 0:
                size = self._read_head(data, at)
                if not size:
                    self._head = data[at:]
                    break
                at += size
            elif self._opcode >= CLOSE and len(data) - at < self._remaining:
                self._head = data[at:]
                break
            else:
                part = data[at : at + self._remaining]
                at += len(part)
                self._take(part, events)
        return events

    def _take(self, part: bytes, events: List[Tuple[int, bytes]]) -> None:
        plain = xor(part, self._key, self._offset) if self._masked else part
        self._remaining -= len(part)
        self._offset += len(part)
        if plain or self._opcode >= CLOSE:
            events.append((self._opcode if self._opcode >= CLOSE else BINARY, plain))
        if not self._remaining:
            self._opcode = -1

    def _read_head(self, data: bytes, at: int) -> int:
        """Read the head of a frame at `at`; returns its size, 0 if it is incomplete."""
        if len(data) - at < 2:
            return 0
        first, second = data[at], data[at + 1]
        length, extended = second & 0x7F, {126: 2, 127: 8}.get(second & 0x7F, 0)
        size = 2 + extended + (4 if second & 0x80 else 0)
        self._check(first, second)
        if len(data) - at < size:
            return 0
        if extended:
            length = int.from_bytes(data[at + 2 : at + 2 + extended], "big")
            if length >> 63:
                raise ProtocolError("a frame claims more than 2^63 bytes")
        self._opcode, self._remaining, self._offset = first & 0x0F, length, 0
        self._key = data[at + size - 4 : at + size] if self._masked else b""
        if self._opcode < CLOSE:
            self._in_message = not first & 0x80
            self._empty = 0 if length else self._empty + 1
            if self._empty > EMPTY_MOST:
                raise ProtocolError("more than %d frames in a row carry nothing" % EMPTY_MOST, POLICY)
        return size

    def _check(self, first: int, second: int) -> None:
        opcode = first & 0x0F
        if first & 0x70:
            raise ProtocolError("a reserved bit is set, for an extension that wasn't agreed on")
        if bool(second & 0x80) is not self._masked:
            raise ProtocolError(
                "a client must mask its frames" if self._masked else "a server must not mask its frames"
            )
        if opcode >= CLOSE:
            if opcode > PONG:
                raise ProtocolError("there is no opcode %d" % opcode)
            if not first & 0x80 or second & 0x7F > CONTROL_MOST:
                raise ProtocolError("a control frame is short and in one piece")
        elif opcode == TEXT:
            raise ProtocolError("a stream carries bytes: send binary messages, not text", NOT_BYTES)
        elif opcode > BINARY:
            raise ProtocolError("there is no opcode %d" % opcode)
        elif (opcode == CONTINUATION) is not self._in_message:
            raise ProtocolError("a continuation comes after a beginning, and a new message after the end of the last")


def close_payload(code: int, reason: str = "") -> bytes:
    """The payload of a close frame, whose reason is cut to the size of a control frame, at a character's end."""
    text = reason.encode("utf-8", "replace")[: CONTROL_MOST - 2].decode("utf-8", "ignore")
    return struct.pack("!H", code) + text.encode("utf-8")


def read_close(payload: bytes) -> Closed:
    if not payload:
        return Closed(1005)
    code = int.from_bytes(payload[:2], "big")
    if len(payload) == 1 or not (1000 <= code < 1004 or 1007 <= code < 1015 or 3000 <= code < 5000):
        raise ProtocolError("the connection was closed with a code that doesn't exist")
    try:
        return Closed(code, payload[2:].decode("utf-8"))
    except UnicodeDecodeError:
        raise ProtocolError("the connection was closed with a reason that isn't UTF-8", NOT_UTF8) from None


class Peer:
    """The agent's side of a connection after the handshake."""

    def __init__(self, client: bool) -> None:
        self._client, self._decoder = client, Decoder(masked=not client)
        self.closing = False  # this side has sent a close frame
        self.closed: Optional[Closed] = None  # the other side's close frame, or this side's after a violation
        self.violated = False  # the other side violated the protocol

    def message(self, data: bytes) -> bytes:
        return frame(BINARY, data, self._client)

    def ping(self) -> bytes:
        return frame(PING, b"", self._client)

    def close(self, code: int = NORMAL, reason: str = "") -> bytes:
        """A close frame; empty if this side has sent one before."""
        if self.closing:
            return b""
        self.closing = True
        payload = b"" if code == 1005 else close_payload(code, reason)
        return frame(CLOSE, payload, self._client)

    def receive(self, data: bytes) -> Tuple[List[bytes], bytes]:
        """The payload in `data`, and bytes to send back at once. Those may be dropped unless this is the end: a pong
        that the other side doesn't read isn't worth memory. After `closed` nothing is read any more."""
        if self.closed is not None:
            return [], b""
        parts: List[bytes] = []
        back = b""
        try:
            for opcode, payload in self._decoder.feed(data):
                if opcode == BINARY:
                    parts.append(payload)
                elif opcode == PING and not self.closing:
                    back = frame(PONG, payload, self._client)  # only for the last ping, as the RFC allows
                elif opcode == CLOSE:
                    self.closed = read_close(payload)
                    return parts, self.close(self.closed.code)
        except ProtocolError as problem:
            self.closed, self.violated = Closed(problem.code, str(problem)), True
            back = self.close(problem.code, str(problem))
        return parts, back
