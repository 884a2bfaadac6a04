"""One HTTP request over an open connection, reading no more of the response than necessary.

The standard library's client would need a thread for each request; these share one event loop.
"""

from __future__ import annotations

import asyncio
import http.client
import io
import socket
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple, cast
from urllib.parse import quote

HOST = "dstack"
HEAD_BYTES = 64 * 1024
SAFE = "/?#[]@!$&'()*+,;=:%~"  # characters of an address that aren't quoted


class HttpResponse(NamedTuple):
    status: int
    body: bytes


def request(method: str, url: str, headers: Iterable[Tuple[str, str]] = (), body: Optional[str] = None) -> bytes:
    """The bytes of a request. Its own headers replace the defaults of the same name."""
    data = (body or "").encode("utf-8")
    defaults = {"host": HOST, "user-agent": "dstack", "accept": "*/*"}
    if body is not None:
        defaults["content-length"] = str(len(data))
    fields = [(_line(name), _line(value)) for name, value in headers]
    fields = [(name, value) for name, value in fields if name.lower() not in ("connection", "content-length")]
    names = {name.lower() for name, _ in fields}
    lines = ["%s %s HTTP/1.1" % (method.upper(), quote(url.partition("#")[0], safe=SAFE)), "connection: close"]
    lines += ["%s: %s" % item for item in defaults.items() if item[0] not in names]
    lines += ["%s: %s" % item for item in fields]
    return "\r\n".join(lines).encode("utf-8") + b"\r\n\r\n" + data


async def status_of(sock: socket.socket, data: bytes) -> int:
    """Send a request and return the response's status. Its body is read for a moment, because some servers log clients
    that disconnect early. Raises OSError or ValueError."""
    reader, writer = await asyncio.open_connection(sock=sock, limit=HEAD_BYTES)
    try:
        writer.write(data)
        status, _ = await _head(reader)
        try:
            await asyncio.wait_for(_read_most(reader, HEAD_BYTES), 1.0)
        except (asyncio.TimeoutError, OSError):
            return status
        return status
    finally:
        writer.close()


async def fetch(sock: socket.socket, data: bytes, most: int) -> HttpResponse:
    """Send a request and return the response. Raises OSError, or ValueError also for more than `most` bytes."""
    reader, writer = await asyncio.open_connection(sock=sock, limit=HEAD_BYTES)
    try:
        writer.write(data)
        status, head = await _head(reader)
        length = _length(head)
        body = await (
            reader.readexactly(length) if length is not None and length <= most else _read_most(reader, most + 1)
        )
        if len(body) > most:
            raise ValueError("the response has more than %d bytes" % most)
        return HttpResponse(status, _decoded(head + body))
    except (asyncio.IncompleteReadError, http.client.HTTPException) as problem:
        raise ValueError("the response broke off: %s" % problem) from None
    finally:
        writer.close()


async def _head(reader: asyncio.StreamReader) -> Tuple[int, bytes]:
    """The final status, and the head with it."""
    while True:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            raise ValueError("the response has no head") from None
        parts = head.split(None, 2)
        if len(parts) < 2 or not parts[0].startswith(b"HTTP/1.") or not parts[1].isdigit():
            raise ValueError("the response isn't HTTP")
        if not 100 <= int(parts[1]) < 200:
            return int(parts[1]), head


async def _read_most(reader: asyncio.StreamReader, most: int) -> bytes:
    parts: List[bytes] = []
    size = 0
    while size < most:
        part = await reader.read(most - size)
        if not part:
            break
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def _length(head: bytes) -> Optional[int]:
    found: Dict[bytes, bytes] = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in head.split(b"\r\n"))
    }
    length = found.get(b"content-length", b"")
    return int(length) if length.isdigit() and b"transfer-encoding" not in found else None


class _ReceivedData:
    """Received bytes in the form of a socket, for the standard library's parser."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, *_: Any) -> io.BytesIO:
        return io.BytesIO(self._data)


def _decoded(data: bytes) -> bytes:
    response = http.client.HTTPResponse(cast(socket.socket, _ReceivedData(data)))
    response.begin()
    return response.read()


def _line(text: str) -> str:
    return " ".join(text.split("\r")).replace("\n", " ").strip()
