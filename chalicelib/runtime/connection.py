"""A client's connection to the embedded server: requests must be complete, in time and within limits.

Uvicorn waits for ever for the rest of a request and buffers whatever precedes a complete head, so a few idle sockets
would use up all descriptors, and one endless header the memory. Nor does it end for a client that never reads. Its own
refusals are plain text, which clients of this API don't read.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import httptools
import orjson
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from chalicelib.runtime.accept import Seats

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chalicelib.serving.ports import UpgradedEnd

HEAD_BYTES = 64 * 1024
BUFFER = 128 * 1024  # bytes of a stream to this client from which on its other end isn't read
PIPELINED = 8  # requests that may wait behind one on the same connection; our clients send none so


class HttpConnection(HttpToolsProtocol):  # type: ignore[misc]  # the type checker skips uvicorn
    head_seconds = 30.0
    body_seconds = 180.0  # for the whole body; the largest allowed takes a third of this at 1 Mbit/s
    read_seconds = 300.0  # for a client to read some of a response that is passed on as it comes
    close_seconds = 30.0  # for the rest of an answer, on a connection that is being closed

    lost: Callable[[], object] | None = None  # called once the connection has gone; of the request under way
    seats = Seats(2**31)  # the server's own, from whoever makes the connection
    _left = False
    _deadline: asyncio.TimerHandle | None = None
    _feeding = False  # is something being parsed? Most deadlines are over before that is, and need no timer …
    _moved: tuple[float | None] | None = None  # … so this is the deadline that is to be set once it is parsed
    _unread: asyncio.TimerHandle | None = None
    _at_work: RequestResponseCycle | None = None  # the request that is being answered
    _chunked = False  # does its response come in chunks?
    _head = b""  # of its response, while what follows isn't here yet
    _in_head = False
    _head_bytes = 0
    _early: bytearray | None = None  # what came behind a request for an upgrade
    _stream: UpgradedEnd | None = None  # to which this connection belongs, since its upgrade

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._within(self.head_seconds)
        if self._left:
            transport.abort()

    def leave(self) -> None:
        """Close at once, whatever is under way."""
        self._left = True
        if self.transport is not None:
            self.transport.abort()

    def recognised(self) -> None:
        """The caller's token was accepted."""
        self.seats.recognise(self)

    def begin(self, status: int, headers: Sequence[tuple[bytes, bytes]], *, goes_on: bool) -> None:
        """The head of a response that is passed on. It goes out together with what follows, if that is here already:
        two packets would wake the client twice."""
        cycle = self._at_work
        if cycle is None or cycle.disconnected:
            return
        cycle.response_started, cycle.waiting_for_100_continue = True, False
        names = {name for name, _ in headers}
        if b"connection" in names:  # which says `close`, whoever wrote it
            cycle.keep_alive = False
        elif not cycle.keep_alive:
            headers = (*headers, (b"connection", b"close"))
        bodiless = cycle.scope["method"] == "HEAD" or status in (204, 304)
        old = cycle.scope["http_version"] == "1.0"  # it knows no chunks, and its connection ends with the response
        self._chunked = not (b"content-length" in names or bodiless or old)
        if self._chunked:
            headers = (*headers, (b"transfer-encoding", b"chunked"))
        lines = [name + b": " + value for name, value in headers]
        self._head = STATUS_LINE[status] + b"\r\n".join((*lines, b"", b""))
        if not goes_on:
            self._flush(b"")

    async def part(self, part: bytes, *, last: bool) -> None:
        """The next bytes of its body, once the client has read most of those before."""
        cycle = self._at_work
        if cycle is None:
            return
        if self.flow.write_paused and not cycle.disconnected:
            await self.flow.drain()
        if cycle.disconnected:
            return
        if self._chunked:
            part = b"".join((b"%x\r\n" % len(part), part, b"\r\n")) if part else b""
            part += b"0\r\n\r\n" if last else b""
        self._flush(part)
        if last:
            cycle.response_complete = True
            cycle.message_event.set()
            if not cycle.keep_alive:
                self.transport.close()
            cycle.on_response()

    def _flush(self, part: bytes) -> None:
        data, self._head = self._head + part, b""
        if data:
            self.transport.write(data)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._at_work = cycle
        super()._start_asgi_task(cycle, app)

    def unhurried(self) -> None:
        """The request's body is passed on as it comes: whoever does that watches its pace."""
        self._within(None)
        self.seats.works(self)

    def data_received(self, data: bytes) -> None:
        if self._stream is not None:
            self._stream.received(data)
            return
        if self._early is not None:
            self._early += data
            if len(self._early) > HEAD_BYTES:
                self.transport.abort()
            return
        self._unset_keepalive_if_required()
        self._feeding = True
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._early = bytearray(data[upgrade.args[0] :])
            self.cycle.keep_alive = False  # what follows isn't HTTP, whatever the answer
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
            return
        finally:
            self._feeding = False
            if self._moved is not None:
                self._within(*self._moved)
        if self._in_head and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self._refuse(431, f"The request headers are larger than {HEAD_BYTES // 1024} KB.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["state"]["connection"] = self
        self._in_head, self._head_bytes = True, 0
        self._within(self.head_seconds)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._within(self.body_seconds)
        if len(self.pipeline) >= PIPELINED:
            raise ValueError("too many requests at once")  # the parser's caller closes the connection
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._within(None)
        self.seats.works(self)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.pipeline:
            self.seats.waits(self)
        if self.transport.is_closing() or self.cycle.more_body:  # what is left of a body that nobody wants
            self._within(self.close_seconds)

    def upgrade(self, head: bytes, end: UpgradedEnd) -> None:
        """Answer the request with this; from now on the connection is one end of a stream. It keeps its seat."""
        self._stream, end.wire, early = end, self, bytes(self._early or b"")
        self._early = None
        self.cycle.disconnected = True  # uvicorn expects no answer then
        if self.transport.is_closing():  # it may be closed altogether
            self.loop.call_soon(end.lost)
            return
        self.transport.set_write_buffer_limits(high=BUFFER)
        self.write(head)
        made: socket.socket | None = self.transport.get_extra_info("socket")
        if made is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if early:
            self.loop.call_soon(end.received, early)

    def write(self, data: bytes) -> None:
        self.transport.write(data)

    def hold(self, hold: bool) -> None:
        """Read nothing more of the stream for now, or go on."""
        if hold:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def close(self) -> None:
        """Close once all has been sent."""
        self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stream is not None:
            self._stream.full(True)
        else:
            self._unread = self.loop.call_later(self.read_seconds, self.leave)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._is_read()
        if self._stream is not None:
            self._stream.full(False)

    def _is_read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def timeout_keep_alive_handler(self) -> None:
        self.transport.abort()  # a client that hasn't read it by now never will

    def connection_lost(self, exc: Exception | None) -> None:
        self._within(None)
        self._is_read()
        self.seats.left(self)
        super().connection_lost(exc)
        self._forget_bodies()
        if self.lost is not None:
            self.lost()
        if self._stream is not None:
            self._stream.lost()

    def _forget_bodies(self) -> None:
        """Connection, transport and request refer to each other, so without this what was read but not wanted would
        stay until the next collection of garbage: a quarter of a megabyte each."""
        if self.cycle is not None:
            self.cycle.body = bytearray()
        self._at_work = None
        self.pipeline.clear()

    def shutdown(self) -> None:
        """Shutting down: don't wait for a client that hasn't sent a whole request."""
        if self._stream is not None:
            self._stream.leave("the server is stopping")
            return
        if self._deadline is not None:
            self.transport.close()
        super().shutdown()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, msg)

    def _refuse(self, status: int, msg: str) -> None:
        body = orjson.dumps({"detail": [{"msg": msg, "code": "error"}]})
        head = f"content-type: application/json\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
        self.transport.write(STATUS_LINE[status] + head.encode() + body)
        self.transport.close()

    def _within(self, seconds: float | None) -> None:
        """The rest of the current request must arrive within this many seconds; None: no request is being sent."""
        if self._feeding:
            self._moved = (seconds,)
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self._too_late)
        self._moved = None

    def _too_late(self) -> None:
        self._deadline = None
        if self._in_head and not self.transport.is_closing():
            self.send_400_response(f"The request headers didn't arrive within {self.head_seconds:g} s.")
            self._within(self.close_seconds)
        else:
            self.transport.abort()
