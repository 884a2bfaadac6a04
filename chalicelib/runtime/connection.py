"""A client's connection to the embedded server: requests must be complete, in time and within limits.

Uvicorn waits for ever for the rest of a request and buffers whatever precedes a complete head, so a few idle sockets
would use up all descriptors, and one endless header the memory. Nor does it end for a client that never reads. Its own
refusals are plain text, which clients of this API don't read, and come in the middle of another request's answer.

What is no request ends the connection, after the answers to those before it; so does a body of which a part is still on
its way when its request has been answered, and nothing is read behind a request that was said to be the last.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import httptools
import orjson
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from chalicelib.runtime.connection_admission import Seats
from chalicelib.serving.headers import MOST, MOST_LINES, one
from chalicelib.serving.paced_reading import PacedReader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chalicelib.serving.ports import UpgradedEnd

# Of a head that are read, so that whoever sends it gets the refusal; MOST of them are kept. So many of trailers, or of
# what else stands around a body, too: the parser would collect them without end.
HEAD_BYTES = 64 * 1024
_TOO_LARGE = (
    431,
    f"The request has more than {MOST // 1024} KB of headers, or more than {MOST_LINES}. Send fewer cookies.",
)
_TWO_HOSTS = 400, "The request's target and its `Host` header name different hosts. Send a path as the target."
_HOSTS = 400, "The request needs one `Host` header, and has none or several."
_CODED = 501, "The only `Transfer-Encoding` that is understood here is `chunked`."
_NO_HTTP = 400, "Invalid HTTP request received."
_RESUMED = b"POST / HTTP/1.1\r\n%b: %b\r\n\r\n"
BUFFER = 128 * 1024  # bytes of a stream to this client from which on its other end isn't read
PIPELINED = 8  # requests that may wait behind one on the same connection; our clients send none so


class Flow(FlowControl):  # type: ignore[misc]  # the type checker skips uvicorn
    """Uvicorn's own, which would read on while something else holds that."""

    def __init__(self, transport: asyncio.Transport, held: Callable[[], bool]) -> None:
        super().__init__(transport)
        self._is_held = held

    def resume_reading(self) -> None:
        if self._is_held():
            self.read_paused = False
        else:
            super().resume_reading()


class HttpConnection(HttpToolsProtocol):  # type: ignore[misc]  # the type checker skips uvicorn
    head_seconds = 30.0
    body_seconds = 180.0  # for the whole body; the largest allowed takes a third of this at 1 Mbit/s
    read_seconds = 300.0  # for a client to read some of a response that is passed on as it comes
    close_seconds = 30.0  # for the rest of an answer, or of a body, on a connection that is being closed
    refuse_seconds = 2.0  # for a client to read that what it sent is no request, and to leave

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
    _size = _lines = 0  # of the request whose head is being read
    _head_bytes = 0  # since its beginning, or since the last of its body
    _moves = False  # was there some of a body in what is being parsed?
    _fault: tuple[int, str] | None = None  # what is no request: status and words of its refusal
    _expects = False  # does the request under way wait for our word before it sends its body?
    _lingers = False  # it is answered; what is left of it is read, so that the client gets the answer
    _resuming = False  # is the parser told what it has forgotten?
    _early: bytearray | None = None  # what came behind a request for an upgrade
    _stream: UpgradedEnd | None = None  # to which this connection belongs, since its upgrade
    _held = False  # by the stream
    _turns: PacedReader

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._turns = PacedReader(self.loop, self._feed, self._pause)
        self.flow = Flow(transport, lambda: self._held or self._turns.waiting)
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
        self._expects = cycle.waiting_for_100_continue
        cycle.response_started, cycle.waiting_for_100_continue = True, False
        names = {name for name, _ in headers}
        if cycle.more_body and (self._expects or status >= 300):  # or it may be here by the answer's end
            cycle.keep_alive = False
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

    async def part(self, part: bytes, *, last: bool, drained: bool = False) -> None:
        """The next bytes of its body, once the client has read most of those before. `drained`: what is left of the
        request has had its time."""
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
            self._lingers = cycle.more_body and not (self._expects or drained)
            if not (cycle.keep_alive or self._lingers):
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
        self._turns.received(data)

    def _feed(self, data: bytes) -> bool:
        """Is more of it wanted?"""
        if self._stream is not None:
            self._stream.received(data)
            return True
        if self._early is not None:
            self._early += data
            if len(self._early) > HEAD_BYTES:
                self.transport.abort()
            return True
        if self._fault is not None or self.transport.is_closing():
            return False
        self._unset_keepalive_if_required()
        self._feeding, self._moves = True, False
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            rest = data[upgrade.args[0] :]
            if not self._is_upgrade():
                return self._resume() and self._feed(rest)
            self._early = bytearray(rest)
            self.cycle.keep_alive = False  # what follows isn't HTTP, whatever the answer
        except httptools.HttpParserError:
            self._refuse(self._fault or _NO_HTTP)
        finally:
            self._feeding = False
            if self._moved is not None:
                self._within(*self._moved)
        self._head_bytes = 0 if self._moves else self._head_bytes + len(data)
        if self._head_bytes > HEAD_BYTES and self._fault is None:
            self._refuse(_TOO_LARGE)
        return self._fault is None

    def _is_upgrade(self) -> bool:
        """Does the request ask for a WebSocket? What asks for anything else, as HTTP clients that prefer version 2 do,
        is a request like any other."""
        wanted = (one(self.headers, b"upgrade") or b"").lower() == b"websocket"
        return wanted and self.parser.get_method() == b"GET" and self._framing()[1] == b"0"

    def _framing(self) -> tuple[bytes, bytes]:
        """The header that says where the request's body ends."""
        found = [each for each in self.headers if each[0] in (b"transfer-encoding", b"content-length")]
        return found[0] if found else (b"content-length", b"0")

    def _resume(self) -> bool:
        """The parser takes whatever follows a request with an `Upgrade` for another protocol, its body too: another one
        goes on with that."""
        self.parser = httptools.HttpRequestParser(self)
        self.cycle.more_body, self._resuming = True, True
        self._within(self.body_seconds)
        try:
            self.parser.feed_data(_RESUMED % self._framing())
        except httptools.HttpParserError:
            self._refuse(_NO_HTTP)
        finally:
            self._resuming = False
        return self._fault is None

    def _pause(self, pause: bool) -> None:
        """Read nothing more for now, or go on, unless somebody else holds it."""
        if pause:
            self.transport.pause_reading()
        elif not (self._held or self.flow.read_paused or self.transport.is_closing()):
            self.transport.resume_reading()

    def on_message_begin(self) -> None:
        if self._resuming:
            return
        if self.cycle is not None and not self.cycle.keep_alive:
            raise ValueError("nothing may follow")  # the parser's caller ends the connection; so for what follows
        super().on_message_begin()
        self.scope["state"]["connection"] = self
        self._in_head, self._head_bytes, self._size, self._lines = True, 0, 0, 0
        self._within(self.head_seconds)

    def on_url(self, url: bytes) -> None:
        self._size += len(url)
        if self._size <= MOST and not self._resuming:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            return  # a trailer, which nobody has asked for
        self._lines += 1
        self._size += len(name) + len(value) + 4
        if self._size <= MOST and self._lines <= MOST_LINES:
            super().on_header(name, value.rstrip(b" \t"))

    def on_headers_complete(self) -> None:
        if self._resuming:
            return
        self._in_head, self._moves = False, True
        self._within(self.body_seconds)
        self._fault = self._faulty()
        if self._fault is not None:
            raise ValueError(self._fault)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._moves = True
        super().on_body(body)

    def _faulty(self) -> tuple[int, str] | None:
        """What is wrong with the head of a request: two programs that read it might take it for two different ones."""
        if self._size > MOST or self._lines > MOST_LINES:
            return _TOO_LARGE
        version = self.parser.get_http_version()
        if version not in ("1.0", "1.1"):
            return _NO_HTTP
        hosts = 0
        for name, value in self.headers:
            if name == b"host":
                hosts += 1
            elif name == b"transfer-encoding" and value.lower() != b"chunked":
                return _CODED
        if hosts != 1 and (hosts or version == "1.1"):
            return _HOSTS
        if not self.url.startswith((b"/", b"*")) and self._elsewhere():
            return _TWO_HOSTS
        return _NO_HTTP if len(self.pipeline) >= PIPELINED else None

    def _elsewhere(self) -> bool:
        """Does a target in absolute form name another host than the header does?"""
        scheme, _, rest = self.url.partition(b"://")
        if self.parser.get_method() == b"CONNECT":
            return False
        host = rest.partition(b"/")[0].partition(b"?")[0]
        return scheme.lower() not in (b"http", b"https") or host.lower() != (one(self.headers, b"host") or b"").lower()

    def on_message_complete(self) -> None:
        self._within(None)
        if self._lingers:
            self.transport.close()
            return
        self.seats.works(self)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.pipeline:
            self.seats.waits(self)
        if self.transport.is_closing() or self._lingers:
            self._within(self.close_seconds)
        elif self._fault is not None and self._at_work is not None and self._at_work.response_complete:
            self._say(*self._fault)

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
            self.loop.call_soon(self._turns.received, early)

    def write(self, data: bytes) -> None:
        self.transport.write(data)

    def hold(self, hold: bool) -> None:
        """Read nothing more of the stream for now, or go on."""
        self._held = hold
        self._pause(hold or self._turns.waiting)

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
        self._turns.drop()
        self.seats.left(self)
        if (cycle := self._at_work) is not None and not cycle.response_complete:  # uvicorn tells the last one only
            cycle.disconnected = True
            cycle.message_event.set()
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
        self._refuse((400, msg))

    def _refuse(self, fault: tuple[int, str]) -> None:
        """What came is no request, and so nothing behind it is: the connection ends, after the answers to those before
        it, which may be under way."""
        self._fault, cycle = fault, self.cycle
        if cycle is not None and cycle.more_body:  # it is in that one's body
            cycle.disconnected, cycle.waiting_for_100_continue = True, False
            cycle.message_event.set()
            if self.pipeline and self.pipeline[0][0] is cycle:
                self.pipeline.popleft()
            elif cycle.response_started:
                self.transport.abort()
                return
        if self._at_work is None or self._at_work.response_complete or self._at_work.disconnected:
            self._say(*fault)
        else:
            self._within(None)

    def _say(self, status: int, msg: str) -> None:
        """The last word on this connection. What the client still sends is read for a while and forgotten, or it might
        never see it."""
        body = orjson.dumps({"detail": [{"msg": msg, "code": "error"}]})
        head = f"content-type: application/json\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
        method = self.scope.get("method") or self.parser.get_method().decode()
        shown = b"" if method == "HEAD" else body
        self.transport.write(STATUS_LINE[status] + head.encode() + shown)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._within(self.refuse_seconds)

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
        if self._in_head and self._fault is None and not self.transport.is_closing():
            self.send_400_response(f"The request headers didn't arrive within {self.head_seconds:g} s.")
        else:
            self.transport.abort()
