"""SPDY/3.1, as far as port-forward needs it: kubectl speaks it inside a WebSocket, without its flow control."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

VERSION, FIN = 3, 1
SYN_STREAM, SYN_REPLY, RST_STREAM, PING = 1, 2, 3, 6

# What every block of headers may refer to, from the specification: words with their lengths, then plain text.
_WORDS = (
    "options, head, post, put, delete, trace, accept, accept-charset, accept-encoding, accept-language, "
    "accept-ranges, age, allow, authorization, cache-control, connection, content-base, content-encoding, "
    "content-language, content-length, content-location, content-md5, content-range, content-type, date, etag, "
    "expect, expires, from, host, if-match, if-modified-since, if-none-match, if-range, if-unmodified-since, "
    "last-modified, location, max-forwards, pragma, proxy-authenticate, proxy-authorization, range, referer, "
    "retry-after, server, te, trailer, transfer-encoding, upgrade, user-agent, vary, via, warning, "
    "www-authenticate, method, get, status, 200 OK, version, HTTP/1.1, url, public, set-cookie, keep-alive, "
    "origin"
)
_TEXT = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden"
    "404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable"
    "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT"
    "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,"
    "publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
DICTIONARY = b"".join(struct.pack("!I", len(each)) + each.encode() for each in _WORDS.split(", ")) + _TEXT.encode()


class WrongFrame(Exception):
    """The other side doesn't speak this."""


class Opened(NamedTuple):
    stream: int
    headers: Mapping[str, str]
    last: bool  # nothing more comes in it


class Data(NamedTuple):
    stream: int
    content: bytes
    last: bool


class Reset(NamedTuple):
    stream: int


class Session:
    """The server's side of a connection. `send`: what is to be sent."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send, self._buffer = send, b""
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._deflate = zlib.compressobj(zdict=DICTIONARY)

    def take(self, part: bytes) -> Iterator[Opened | Data | Reset]:
        """What has come. Raises WrongFrame."""
        self._buffer += part
        while len(self._buffer) >= 8:
            first, second = struct.unpack_from("!II", self._buffer)
            flags, size = second >> 24, second & 0xFFFFFF
            if len(self._buffer) < 8 + size:
                return
            content, self._buffer = self._buffer[8 : 8 + size], self._buffer[8 + size :]
            if not first >> 31:
                yield Data(first, content, bool(flags & FIN))
            elif first >> 16 & 0x7FFF != VERSION:
                raise WrongFrame(f"version {first >> 16 & 0x7FFF}")
            else:
                yield from self._control(first & 0xFFFF, flags, content)

    def _control(self, kind: int, flags: int, content: bytes) -> Iterator[Opened | Reset]:
        if kind == SYN_STREAM:
            (stream,) = struct.unpack_from("!I", content)
            headers = _headers(self._inflate.decompress(content[10:]))
            self._send(_control(SYN_REPLY, struct.pack("!I", stream) + self._block({})))
            yield Opened(stream, headers, bool(flags & FIN))
        elif kind == RST_STREAM:
            yield Reset(struct.unpack_from("!I", content)[0])
        elif kind == PING:
            self._send(_control(PING, content))

    def _block(self, headers: Mapping[str, str]) -> bytes:
        texts = [text.encode() for pair in headers.items() for text in pair]
        plain = struct.pack("!I", len(headers)) + b"".join(struct.pack("!I", len(each)) + each for each in texts)
        return self._deflate.compress(plain) + self._deflate.flush(zlib.Z_SYNC_FLUSH)

    def write(self, stream: int, content: bytes, *, last: bool = False) -> None:
        self._send(struct.pack("!II", stream, last << 24 | len(content)) + content)


def _control(kind: int, content: bytes) -> bytes:
    return struct.pack("!HHI", 1 << 15 | VERSION, kind, len(content)) + content


def _headers(block: bytes) -> dict[str, str]:
    (number,), at, texts = struct.unpack_from("!I", block), 4, list[str]()
    for _ in range(2 * number):
        (size,) = struct.unpack_from("!I", block, at)
        texts.append(block[at + 4 : at + 4 + size].decode())
        at += 4 + size
    return dict(zip(texts[::2], texts[1::2], strict=True))
