"""One HTTP request over an open connection, reading no more of the response than is wanted.

The standard library's client would need a thread for each; these share one event loop.
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
SAFE = "/?#[]@!$&'()*+,;=:%~"  # what may stand in an address as it is


class HttpAnswer(NamedTuple):
    status: int
    body: bytes


def request(method: str, url: str, headers: Iterable[Tuple[str, str]] = (), body: Optional[str] = None) -> bytes:
    """With the headers of its user before ours, once each."""
    data = (body or "").encode("utf-8")
    own = {"host": HOST, "user-agent": "dstack", "accept": "*/*"}
    if body is not None:
        own["content-length"] = str(len(data))
    given = [(_line(name), _line(value)) for name, value in headers]
    given = [(name, value) for name, value in given if name.lower() not in ("connection", "content-length")]
    known = {name.lower() for name, _ in given}
    lines = ["%s %s HTTP/1.1" % (method.upper(), quote(url.partition("#")[0], safe=SAFE)), "connection: close"]
    lines += ["%s: %s" % item for item in own.items() if item[0] not in known]
    lines += ["%s: %s" % item for item in given]
    return "\r\n".join(lines).encode("utf-8") + b"\r\n\r\n" + data


async def status_of(sock: socket.socket, asked: bytes) -> int:
    """The status. What follows is read for a moment, because some servers complain about clients that leave early.
    Raises OSError or ValueError."""
    reader, writer = await asyncio.open_connection(sock=sock, limit=HEAD_BYTES)
    try:
        writer.write(asked)
        status, _ = await _head(reader)
        try:
            await asyncio.wait_for(_rest(reader, HEAD_BYTES), 1.0)
        except (asyncio.TimeoutError, OSError):
            return status  # which was said
        return status
    finally:
        writer.close()


async def answer(sock: socket.socket, asked: bytes, most: int) -> HttpAnswer:
    """The whole response. Raises OSError or ValueError, also for one that is larger."""
    reader, writer = await asyncio.open_connection(sock=sock, limit=HEAD_BYTES)
    try:
        writer.write(asked)
        status, head = await _head(reader)
        told = _length(head)
        rest = await (reader.readexactly(told) if told is not None and told <= most else _rest(reader, most + 1))
        if len(rest) > most:
            raise ValueError("the response has more than %d bytes" % most)
        return HttpAnswer(status, _decoded(head + rest))
    except (asyncio.IncompleteReadError, http.client.HTTPException) as problem:
        raise ValueError("the response broke off: %s" % problem) from None
    finally:
        writer.close()


async def _head(reader: asyncio.StreamReader) -> Tuple[int, bytes]:
    """The final status, and the head it came in."""
    while True:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            raise ValueError("the response has no head") from None
        words = head.split(None, 2)
        if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
            raise ValueError("the response isn't HTTP")
        if not 100 <= int(words[1]) < 200:
            return int(words[1]), head


async def _rest(reader: asyncio.StreamReader, most: int) -> bytes:
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
    told = found.get(b"content-length", b"")
    return int(told) if told.isdigit() and b"transfer-encoding" not in found else None


class _Had:
    """What was read, as the standard library's parser wants it."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, *_: Any) -> io.BytesIO:
        return io.BytesIO(self._data)


def _decoded(data: bytes) -> bytes:
    response = http.client.HTTPResponse(cast(socket.socket, _Had(data)))
    response.begin()
    return response.read()


def _line(text: str) -> str:
    return " ".join(text.split("\r")).replace("\n", " ").strip()
