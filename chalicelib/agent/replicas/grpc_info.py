"""The description of a model server by gRPC: one call, with the little of HTTP/2 and protobuf that it needs.

The call is the only one on its connection: the request is constant, and only the message of the response matters, so no
header is ever decoded. A server that doesn't know the call answers without a message.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any, Dict, Iterator, List, Optional, Tuple

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS, PADDED = 1, 1, 4, 8
STREAM = 1
WINDOW = 1 << 20  # bytes: more than any response may have
LARGEST_FRAME = 1 << 14  # HTTP/2's default, which isn't changed here
VLLM, SGLANG = "/vllm.grpc.engine.VllmEngine/GetServerInfo", "/sglang.grpc.scheduler.SglangScheduler/GetServerInfo"
KV_ROLE = 7  # a field of vLLM's response
SERVER_ARGS = 1  # a field of SGLang's response
ROLES = {"kv_producer": "prefill", "kv_consumer": "decode"}


async def call(sock: socket.socket, path: str, most: int) -> Optional[bytes]:
    """The response to an empty message; None if the server doesn't know the call. Raises OSError or ValueError."""
    reader, writer = await asyncio.open_connection(sock=sock, limit=1 << 16)
    try:
        writer.write(PREFACE + _frame(SETTINGS, 0, 0, struct.pack(">HI", 4, WINDOW)))
        writer.write(_frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", WINDOW)))
        writer.write(_frame(HEADERS, END_HEADERS, STREAM, _head(path)))
        writer.write(_frame(DATA, END_STREAM, STREAM, struct.pack(">BI", 0, 0)))
        return _message(await _body(reader, writer, most + 5))
    except asyncio.IncompleteReadError:
        raise ValueError("the answer broke off") from None
    finally:
        writer.close()


async def _body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, most: int) -> bytes:
    found = b""
    while True:
        kind, flags, stream, payload = await _read(reader)
        if kind == SETTINGS and not flags & ACK:
            writer.write(_frame(SETTINGS, ACK, 0, b""))
        elif kind == PING and not flags & ACK:
            writer.write(_frame(PING, ACK, 0, payload))
        elif kind in (RST_STREAM, GOAWAY):
            raise ValueError("the server gave up the call")
        elif stream == STREAM and kind == DATA:
            found += payload[1 : len(payload) - payload[0]] if flags & PADDED and payload else payload
            if len(found) > most:
                raise ValueError("the answer has more than %d bytes" % most)
        if stream == STREAM and kind in (DATA, HEADERS) and flags & END_STREAM:
            return found


async def _read(reader: asyncio.StreamReader) -> Tuple[int, int, int, bytes]:
    head = await reader.readexactly(9)
    length, kind, flags, stream = int.from_bytes(head[:3], "big"), head[3], head[4], int.from_bytes(head[5:], "big")
    if length > LARGEST_FRAME:
        raise ValueError("it doesn't speak HTTP/2")
    return kind, flags, stream & 0x7FFFFFFF, await reader.readexactly(length)


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _head(path: str) -> bytes:
    """The request's headers as literals, without a table or compression."""
    headers = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "dstack")]
    headers += [("te", "trailers"), ("content-type", "application/grpc"), ("user-agent", "dstack")]
    return b"".join(b"\0" + _text(name) + _text(value) for name, value in headers)


def _text(text: str) -> bytes:
    data = text.encode("ascii")
    assert len(data) < 127, "longer ones have another form"
    return bytes([len(data)]) + data


def _message(body: bytes) -> Optional[bytes]:
    if not body:
        return None
    if len(body) < 5 or body[0] or int.from_bytes(body[1:5], "big") != len(body) - 5:
        raise ValueError("the answer isn't a single plain message")
    return body[5:]


# --- its messages ----------------------------------------------------------------------------------------------------


def of_vllm(message: bytes) -> Dict[str, Any]:
    """vLLM's response in the form of SGLang's HTTP response. Raises ValueError."""
    role = b"".join(value for number, value in fields(message) if number == KV_ROLE and isinstance(value, bytes))
    return {"disaggregation_mode": ROLES.get(role.decode("utf-8", "replace"), "null")}


def of_sglang(message: bytes) -> Dict[str, Any]:
    """The arguments that SGLang was started with. Raises ValueError."""
    arguments: Dict[str, Any] = {}
    for number, value in fields(message):
        if number == SERVER_ARGS and isinstance(value, bytes):
            arguments.update(_struct(value))
    return arguments


def _struct(message: bytes) -> Iterator[Tuple[str, Any]]:
    """The entries of a `google.protobuf.Struct` that are numbers or texts."""
    for _, entry in fields(message):
        if not isinstance(entry, bytes):
            raise ValueError("an entry isn't a message")
        parts = dict(fields(entry))
        key, value = parts.get(1), parts.get(2)
        if isinstance(key, bytes) and isinstance(value, bytes):
            for number, found in fields(value):
                if number == 2 and isinstance(found, float):
                    yield key.decode("utf-8", "replace"), int(found) if found.is_integer() else found
                elif number == 3 and isinstance(found, bytes):
                    yield key.decode("utf-8", "replace"), found.decode("utf-8", "replace")


def fields(message: bytes) -> List[Tuple[int, Any]]:
    """The fields of a protobuf message in order: numbers, and bytes for fields with a length. Raises ValueError."""
    found: List[Tuple[int, Any]] = []
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(message, at)
            found.append((tag >> 3, value))
            continue
        size = {1: 8, 5: 4}.get(kind)
        if kind == 2:
            size, at = _varint(message, at)
        if size is None or at + size > len(message):
            raise ValueError("no protobuf message")
        part = message[at : at + size]
        found.append((tag >> 3, struct.unpack("<d", part)[0] if kind == 1 else part))
        at += size
    return found


def _varint(message: bytes, at: int) -> Tuple[int, int]:
    value = shift = 0
    while at < len(message) and shift < 64:
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
    raise ValueError("no protobuf message")
