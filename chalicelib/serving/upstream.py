"""Connections to replicas: a request goes out, and a parser reads its answer straight from the connection.

Nearly all requests are here as a whole when they go on, and are one write. The body of any other follows as it comes,
while its answer may be coming back already. Where a body ends is our own word, never the client's, and a connection
whose request wasn't sent to its end is never used again. Nothing here repeats, follows, unpacks or keeps anything: an
answer goes on as it came.
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
from chalicelib.serving.problems import ClientGone, HttpProblem, Unanswered
from chalicelib.serving.turns import PacedReader

KEPT_SECONDS = 30.0  # that a connection to a replica is kept for the next request
BUFFER = 64 * 1024  # bytes of an answer that wait for the client
MOST_HEAD = 4 * MOST_LINE  # bytes of an answer's headers, those of early hints included, and of its trailers
MOST_PLACES = 1000  # for which connections were kept

_FRAMING = (b"content-length", b"transfer-encoding")

Place = str | tuple[str, int]  # a unix socket, or an address and a port


class AnswerCutShort(Exception):
    """The answer ended before its end."""


class Upstream(asyncio.Protocol):
    """One connection. It carries one request after the other, and holds the answer to the last of them."""

    transport: asyncio.Transport
    status: int
    raw_headers: list[tuple[bytes, bytes]]

    def __init__(self, loop: asyncio.AbstractEventLoop, kept: list[Upstream]) -> None:
        """`kept`: where it waits for its next request."""
        self._loop, self._kept = loop, kept
        self._parser: httptools.HttpResponseParser | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._heard = loop.time()  # when something last happened
        self._held = self._gone = self._moves = False
        self._failure: Exception | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._sending: asyncio.Task[None] | None = None  # of a body that is still on its way
        self._turns = PacedReader(loop, self._feed, self._hold)

    # --- one request and its answer -----------------------------------------------------------------------------------

    async def ask(self, method: str, request: bytes, body: AsyncIterator[bytes] | None = None) -> None:
        """Returns once the answer's head is here; `body` may be on its way for longer. Raises Unanswered or Problem, or
        what stopped the body."""
        self._bodiless = method == "HEAD"  # which its answer doesn't tell
        self.status, self.raw_headers = 0, []
        self._headed = self._whole = self._keeps = False
        self._head_bytes = self._size = 0  # since its beginning, or since the last of its body; of the body, here
        self._parts: list[bytes] = []
        self._failure = None
        self._parser, self._heard = httptools.HttpResponseParser(self), self._loop.time()
        self.transport.write(request)
        self._sending = None if body is None else self._loop.create_task(self._send(body))
        while not self._headed:
            if self._failure is not None:
                raise self._failure
            await self._news()

    async def _send(self, body: AsyncIterator[bytes]) -> None:
        try:
            async for part in body:
                await self._writable.wait()
                if self._gone:
                    return
                self._heard = self._loop.time()
                self.transport.write(part)
        except (HttpProblem, ClientGone, TimeoutError) as problem:  # the client's fault: whoever asked gets it
            self._fail(problem)
            self.transport.abort()

    @property
    def follows(self) -> bool:
        """Is some of the body, or its end, here already?"""
        return self._whole or bool(self._parts)

    @property
    def ended(self) -> bool:
        """Has all of the body been handed out?"""
        return self._whole and not self._parts

    async def part(self) -> bytes:
        """The next bytes of the body; none at its end. Raises AnswerCutShort."""
        while not self._parts:
            if self._whole:
                return b""
            if self._failure is not None:
                raise AnswerCutShort from self._failure
            await self._news()
        found = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts, self._size = [], 0
        if self._held:
            self._held, self._heard = False, self._loop.time()
            self._hold(False)
        return found

    def release(self) -> None:
        """The request is over, one way or the other."""
        self._parser, self._heard = None, self._loop.time()
        sent = self._sending is None or self._sending.done()
        if self.ended and self._keeps and sent and not self._gone and not self._turns.waiting:
            self._kept.append(self)
            return
        self._turns.drop()
        self.transport.abort()
        if self._sending is not None:
            self._sending.cancel()

    async def stopped(self) -> None:
        """Nothing more is taken of the body, so that another attempt may begin with it anew."""
        if self._sending is not None:
            await asyncio.wait((self._sending,))

    async def _news(self) -> None:
        self._waiter = self._loop.create_future()
        await self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, failure: Exception) -> None:
        self._keeps = False
        if not self._whole and self._failure is None:
            self._failure = failure
        self._wake()

    def _look(self) -> None:
        """One timer for as long as the connection is there."""
        if self._held:  # it is the client who doesn't read, which others watch
            self._heard = self._loop.time()
        left = self._heard + (KEPT_SECONDS if self._parser is None else IDLE) - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(min(left, KEPT_SECONDS), self._look)
            return
        if self._parser is not None:
            self._fail(problems.too_slow(IDLE))
        self.transport.abort()

    # --- what the event loop calls ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        self._timer = self._loop.call_later(KEPT_SECONDS, self._look)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        self._turns.received(data)

    def _hold(self, hold: bool) -> None:
        """Read nothing more for now, or go on, unless something else is in the way."""
        if hold:
            self.transport.pause_reading()
        elif not (self._held or self._turns.waiting or self._gone or self.transport.is_closing()):
            self.transport.resume_reading()

    def _feed(self, data: bytes) -> bool:
        if self._parser is None or self._failure is not None:  # nobody has asked for anything, or wants it any more
            self.transport.abort()
            return False
        self._heard, self._moves = self._loop.time(), False
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
        self._gone = True
        self._writable.set()
        self._turns.afterwards(lambda: self._lost(exc))

    def _lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self in self._kept:
            self._kept.remove(self)
        if self._parser is None:
            return
        if exc is None and self._headed and self._failure is None and not self._sized():
            self._whole = True  # its end is the connection's
        self._fail(Unanswered(problems.unanswered()))

    def _sized(self) -> bool:
        """Does the answer's head say where its body ends?"""
        return any(name.lower() in (b"content-length", b"transfer-encoding") for name, _ in self.raw_headers)

    # --- what the parser calls ----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._whole:
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
            self.raw_headers = []  # hints: the answer is yet to come
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
            self._whole, self._keeps = True, self._parser.should_keep_alive()


class Upstreams:
    """The connections to all replicas. On the event loop."""

    def __init__(self) -> None:
        self._kept: dict[Place, list[Upstream]] = {}

    async def ask(
        self,
        place: Place,
        method: str,
        request: bytes,
        body: AsyncIterator[bytes] | None = None,
        *,
        afresh: bool = False,
        patience: float = CONNECT_SECONDS,
    ) -> Upstream:
        """The answer, of which only the head is sure to be here. `afresh`: over no connection that may just be closing.
        `patience`: seconds for a connection. Raises Unanswered or Problem, or what stopped the body."""
        kept = self._kept.setdefault(place, [])
        upstream = kept.pop() if kept and not afresh else await self._connected(place, kept, patience)
        try:
            await upstream.ask(method, request, body)
        except BaseException:
            upstream.release()
            await upstream.stopped()
            raise
        return upstream

    async def _connected(self, place: Place, kept: list[Upstream], patience: float) -> Upstream:
        if len(self._kept) > MOST_PLACES:
            self._kept = {each: waiting for each, waiting in self._kept.items() if waiting or waiting is kept}
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(patience):
                if isinstance(place, str):
                    _, upstream = await loop.create_unix_connection(lambda: Upstream(loop, kept), place)
                else:
                    _, upstream = await loop.create_connection(lambda: Upstream(loop, kept), *place)
        except (OSError, TimeoutError) as error:
            raise Unanswered(problems.unreachable()) from error
        return upstream

    def close(self) -> None:
        for kept in self._kept.values():
            for upstream in tuple(kept):
                upstream.transport.abort()


def written(method: str, target: bytes, headers: Raw, body: bytes) -> bytes:
    """A request as it is sent, with a body that is here."""
    said = any(name == b"content-length" for name, _ in headers)
    return _head(method, target, headers, b"content-length: %d" % len(body) if body or said else b"") + body


def begun(method: str, target: bytes, headers: Raw, announced: int | None) -> bytes:
    """The beginning of a request whose body follows: so many bytes, or in chunks."""
    frame = b"transfer-encoding: chunked" if announced is None else b"content-length: %d" % announced
    return _head(method, target, headers, frame)


def _head(method: str, target: bytes, headers: Raw, frame: bytes) -> bytes:
    """With our own word on where the body ends: another reader must not find another end."""
    lines = [b"%b %b HTTP/1.1" % (method.encode(), target)]
    lines += [name + b": " + value for name, value in headers if name not in _FRAMING]
    if frame:
        lines.append(frame)
    return b"\r\n".join((*lines, b"", b""))


async def framed(pieces: AsyncIterator[bytes], announced: int | None) -> AsyncIterator[bytes]:
    """A body as it is sent behind `begun`. Raises ClientGone if it isn't as long as was announced."""
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
