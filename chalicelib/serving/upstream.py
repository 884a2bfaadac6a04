"""Connections to replicas: sending a request, and parsing its response straight from the connection.

Nearly all requests have arrived completely when they are passed on, and are sent in one write. Other bodies are
streamed, while the response may already arrive. The door frames each body itself, whatever the client declared, and a
connection whose request wasn't sent to its end is never used again. Responses are passed on unchanged: nothing here
retries, follows redirects, decompresses or caches.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import httptools

from chalicelib.serving import problems
from chalicelib.serving.exchange import CONNECT_SECONDS, IDLE
from chalicelib.serving.headers import MOST as MOST_LINE
from chalicelib.serving.headers import Raw
from chalicelib.serving.paced_reading import PacedReader
from chalicelib.serving.problems import ClientGone, HttpProblem, Unanswered

IDLE_SECONDS = 30.0  # for which an idle connection to a replica stays open for the next request
BUFFER = 64 * 1024  # bytes of a response that are buffered for the client
MOST_HEAD = 4 * MOST_LINE  # bytes of a response's headers, including those of early hints, and of its trailers
MOST_PLACES = 1000  # addresses with a list of idle connections

_FRAMING = (b"content-length", b"transfer-encoding")

Place = str | tuple[str, int]  # a unix socket, or an address and a port


class AnswerCutShort(Exception):
    """The response broke off."""


class Upstream(asyncio.Protocol):
    """One connection. It carries one request after the other, and holds the response to the latest."""

    transport: asyncio.Transport
    status: int
    raw_headers: list[tuple[bytes, bytes]]

    def __init__(self, loop: asyncio.AbstractEventLoop, idle: list[Upstream]) -> None:
        """`idle`: the list of connections that wait for their next request."""
        self._loop, self._idle = loop, idle
        self._parser: httptools.HttpResponseParser | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._last_activity = loop.time()  # when something was last sent or received
        self._held = self._lost_connection = self._moves = False
        self._failure: Exception | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._sending: asyncio.Task[None] | None = None  # sends a streamed body
        self._reader = PacedReader(loop, self._feed, self._hold)

    # --- one request and its answer -----------------------------------------------------------------------------------

    async def send_request(self, method: str, request: bytes, body: AsyncIterator[bytes] | None = None) -> None:
        """Send a request and wait for the response's head; sending `body` may take longer. Raises Unanswered,
        HttpProblem, or the error that stopped the body."""
        self._bodiless = method == "HEAD"  # the response itself doesn't show that
        self.status, self.raw_headers = 0, []
        self._headed = self._complete = self._keep_alive = False
        self._head_bytes = self._size = 0  # bytes of headers since the last part of a body; buffered bytes of the body
        self._parts: list[bytes] = []
        self._failure = None
        self._parser, self._last_activity = httptools.HttpResponseParser(self), self._loop.time()
        self.transport.write(request)
        self._sending = None if body is None else self._loop.create_task(self._send(body))
        while not self._headed:
            if self._failure is not None:
                raise self._failure
            await self._wait_for_data()

    async def _send(self, body: AsyncIterator[bytes]) -> None:
        try:
            async for part in body:
                await self._writable.wait()
                if self._lost_connection:
                    return
                self._last_activity = self._loop.time()
                self.transport.write(part)
        except (HttpProblem, ClientGone, TimeoutError) as problem:  # the client's fault: raised to the caller
            self._fail(problem)
            self.transport.abort()

    @property
    def has_body(self) -> bool:
        """Whether some of the body, or its end, has arrived."""
        return self._complete or bool(self._parts)

    @property
    def ended(self) -> bool:
        """Whether the whole body has been returned by `part`."""
        return self._complete and not self._parts

    async def part(self) -> bytes:
        """The next bytes of the body; none at its end. Raises AnswerCutShort."""
        while not self._parts:
            if self._complete:
                return b""
            if self._failure is not None:
                raise AnswerCutShort from self._failure
            await self._wait_for_data()
        found = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts, self._size = [], 0
        if self._held:
            self._held, self._last_activity = False, self._loop.time()
            self._hold(False)
        return found

    def release(self) -> None:
        """The request is over: make the connection available for the next one, or close it."""
        self._parser, self._last_activity = None, self._loop.time()
        sent = self._sending is None or self._sending.done()
        if self.ended and self._keep_alive and sent and not self._lost_connection and not self._reader.waiting:
            self._idle.append(self)
            return
        self._reader.drop()
        self.transport.abort()
        if self._sending is not None:
            self._sending.cancel()

    async def stopped(self) -> None:
        """Wait until nothing more is read from the body, so that another attempt may start it again."""
        if self._sending is not None:
            await asyncio.wait((self._sending,))

    async def _wait_for_data(self) -> None:
        self._waiter = self._loop.create_future()
        await self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, failure: Exception) -> None:
        self._keep_alive = False
        if not self._complete and self._failure is None:
            self._failure = failure
        self._wake()

    def _check_idle(self) -> None:
        """Close the connection if nothing has happened for too long. One timer for its whole lifetime."""
        if self._held:  # the client doesn't read, which its own connection watches
            self._last_activity = self._loop.time()
        left = self._last_activity + (IDLE_SECONDS if self._parser is None else IDLE) - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(min(left, IDLE_SECONDS), self._check_idle)
            return
        if self._parser is not None:
            self._fail(problems.too_slow(IDLE))
        self.transport.abort()

    # --- what the event loop calls ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's doesn't inherit from it
        self._timer = self._loop.call_later(IDLE_SECONDS, self._check_idle)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        self._reader.received(data)

    def _hold(self, hold: bool) -> None:
        """Pause reading, or resume it unless there is another reason to pause."""
        if hold:
            self.transport.pause_reading()
        elif not (self._held or self._reader.waiting or self._lost_connection or self.transport.is_closing()):
            self.transport.resume_reading()

    def _feed(self, data: bytes) -> bool:
        if self._parser is None or self._failure is not None:  # no response is expected, or none any more
            self.transport.abort()
            return False
        self._last_activity, self._moves = self._loop.time(), False
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._fail(problems.no_answer())
        self._head_bytes = 0 if self._moves else self._head_bytes + len(data)
        if self._head_bytes > MOST_HEAD:  # or the parser would collect it without end
            self._fail(problems.no_answer())
        if self._size > BUFFER and not self._held:
            self._held = True
            self._hold(True)
        self._wake()
        return self._failure is None

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost_connection = True
        self._writable.set()
        self._reader.afterwards(lambda: self._lost(exc))

    def _lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self in self._idle:
            self._idle.remove(self)
        if self._parser is None:
            return
        if exc is None and self._headed and self._failure is None and not self._sized():
            self._complete = True  # the end of the connection is the end of the body
        self._fail(Unanswered(problems.unanswered()))

    def _sized(self) -> bool:
        """Whether the response's head declares where its body ends."""
        return any(name.lower() in (b"content-length", b"transfer-encoding") for name, _ in self.raw_headers)

    # --- what the parser calls ----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._complete:
            raise ValueError("more than was asked for")

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(name) + len(value) > MOST_LINE:
            raise ValueError("too long")
        if not self._headed:  # or it is a trailer
            self.raw_headers.append((name, value))

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        self.status = self._parser.get_status_code()
        if 100 <= self.status < 200 and self.status != 101:
            self.raw_headers = []  # early hints: the response is yet to come
            return
        self._headed = self._moves = True
        if self._bodiless:
            self.on_message_complete()

    def on_body(self, body: bytes) -> None:
        if self._bodiless:
            raise ValueError("more than was asked for")
        self._moves = True
        self._parts.append(body)
        self._size += len(body)

    def on_message_complete(self) -> None:
        assert self._parser is not None
        if self._headed:
            self._complete, self._keep_alive = True, self._parser.should_keep_alive()


class Upstreams:
    """The connections to all replicas. Used on the event loop."""

    def __init__(self) -> None:
        self._idle: dict[Place, list[Upstream]] = {}

    async def send_request(
        self,
        place: Place,
        method: str,
        request: bytes,
        body: AsyncIterator[bytes] | None = None,
        *,
        afresh: bool = False,
        patience: float = CONNECT_SECONDS,
    ) -> Upstream:
        """The response, of which at least the head has arrived. `afresh`: over a new connection, because an idle one
        may just be closing. `patience`: seconds for connecting. Raises Unanswered, HttpProblem, or the error that
        stopped the body."""
        idle = self._idle.setdefault(place, [])
        upstream = idle.pop() if idle and not afresh else await self._connected(place, idle, patience)
        try:
            await upstream.send_request(method, request, body)
        except BaseException:
            upstream.release()
            await upstream.stopped()
            raise
        return upstream

    async def _connected(self, place: Place, idle: list[Upstream], patience: float) -> Upstream:
        if len(self._idle) > MOST_PLACES:
            self._idle = {each: waiting for each, waiting in self._idle.items() if waiting or waiting is idle}
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(patience):
                if isinstance(place, str):
                    _, upstream = await loop.create_unix_connection(lambda: Upstream(loop, idle), place)
                else:
                    _, upstream = await loop.create_connection(lambda: Upstream(loop, idle), *place)
        except (OSError, TimeoutError) as error:
            raise Unanswered(problems.unreachable()) from error
        return upstream

    def close(self) -> None:
        for idle in self._idle.values():
            for upstream in tuple(idle):
                upstream.transport.abort()


def written(method: str, target: bytes, headers: Raw, body: bytes) -> bytes:
    """A request with its whole body, as it is sent."""
    declared = any(name == b"content-length" for name, _ in headers)
    return _head(method, target, headers, b"content-length: %d" % len(body) if body or declared else b"") + body


def begun(method: str, target: bytes, headers: Raw, announced: int | None) -> bytes:
    """The head of a request whose body is streamed: `announced` bytes, or in chunks if None."""
    frame = b"transfer-encoding: chunked" if announced is None else b"content-length: %d" % announced
    return _head(method, target, headers, frame)


def _head(method: str, target: bytes, headers: Raw, frame: bytes) -> bytes:
    """A request's head, with framing headers of our own: no reader may find another end of the body."""
    lines = [b"%b %b HTTP/1.1" % (method.encode(), target)]
    lines += [name + b": " + value for name, value in headers if name not in _FRAMING]
    if frame:
        lines.append(frame)
    return b"\r\n".join((*lines, b"", b""))


async def framed(pieces: AsyncIterator[bytes], announced: int | None) -> AsyncIterator[bytes]:
    """A body as it is sent after `begun`. Raises ClientGone if its length differs from the announced one."""
    left = announced
    async for part in pieces:
        if left is None:
            yield b"%x\r\n%b\r\n" % (len(part), part)
        elif len(part) <= left:
            left -= len(part)
            yield part
        else:
            raise ClientGone
    if left:
        raise ClientGone
    if left is None:
        yield b"0\r\n\r\n"
