"""A client of HTTP/2 that sends exactly the headers that it is told to, which no library would."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable

DATA, HEADERS, RESET, SETTINGS = 0, 1, 3, 4
END_STREAM, END_HEADERS = 1, 4
MAGIC = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
STATUS = {8: 200, 9: 204, 12: 400, 13: 404, 14: 500}  # by their place in the table of HPACK
RESET_BY_THEM = 0


def status_of(
    address: tuple[str, int],
    host: str,
    target: str,
    headers: Iterable[tuple[bytes, bytes]] = (),
    patience: float = 20.0,
) -> int:
    """Of the answer to a GET without a body; RESET_BY_THEM if there is none."""
    unchecked = ssl.create_default_context()
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    unchecked.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(address, timeout=patience) as plain,
        unchecked.wrap_socket(plain, server_hostname=host) as wire,
    ):
        own = [
            (b":method", b"GET"),
            (b":scheme", b"https"),
            (b":authority", host.encode()),
            (b":path", target.encode()),
        ]
        block = b"".join(b"\0" + _text(name) + _text(value) for name, value in [*own, *headers])
        wire.sendall(MAGIC + _frame(SETTINGS, 0, 0, b"") + _frame(HEADERS, END_STREAM | END_HEADERS, 1, block))
        with wire.makefile("rb") as received:
            while head := received.read(9):
                kind, payload = head[3], received.read(int.from_bytes(head[:3], "big"))
                if kind == HEADERS:
                    return _status(payload)
                if kind == RESET:
                    return RESET_BY_THEM
        raise ConnectionError("the connection ended without an answer")


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def _text(text: bytes) -> bytes:
    """As it is, without Huffman's code."""
    length, size = len(text), b""
    if length >= 127:
        length, size = length - 127, b"\x7f"
        while length >= 128:
            length, size = length // 128, size + bytes((length % 128 + 128,))
    return size + bytes((length,)) + text


def _status(block: bytes) -> int:
    """Nginx sends it first: from the table, or in figures under that name."""
    if block[0] & 0x80:
        return STATUS[block[0] & 0x7F]
    assert block[:2] == b"H\x03", block[:8]
    return int(block[2:5])
