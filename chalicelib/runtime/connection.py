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

from chalicelib.api.v1 import PREFIX, problems
from chalicelib.runtime.connection_admission import Seats
from chalicelib.runtime.trusted_proxies import TrustedProxies
from chalicelib.serving.headers import MOST, MOST_LINES, one
from chalicelib.serving.paced_reading import PacedReader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chalicelib.serving.ports import UpgradedEnd

# The most bytes of a head that are read, so that its sender gets the refusal; MOST of them are kept. The limit holds
# for trailers and for everything else around a body, too: the parser would collect them without end.
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
    """Uvicorn's flow control, which would resume reading while something else has paused it."""

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
    read_seconds = 300.0  # for a client to read some of a streamed response
    close_seconds = 30.0  # for the rest of a response, or of a body, on a connection that is being closed
    refuse_seconds = 2.0  # for a client to read that it sent no valid request, and to close the connection

    lost: Callable[[], object] | None = None  # set by the request under way; called once the connection is lost
    seats = Seats(2**31)  # replaced by the server's own
    proxies = TrustedProxies()  # likewise
    joining: asyncio.Task[Any] | None = None  # makes the connection; with TLS, that is a handshake
    _left = False
    _deadline: asyncio.TimerHandle | None = None
    _feeding = False  # data is being parsed; most deadlines set meanwhile are replaced before that ends …
    _moved: tuple[float | None] | None = None  # … so the last one is kept here, and its timer set afterwards
    _unread: asyncio.TimerHandle | None = None
    _at_work: RequestResponseCycle | None = None  # the request that is being answered
    _chunked = False  # its response is sent in chunks
    _head = b""  # of its response, until the first part of the body follows
    _in_head = False
    _size = _lines = 0  # of the request whose head is being read
    _target = b""  # its beginning, at least, which says in what form it is refused
    _head_bytes = 0  # received since the beginning, or since the last part of a body
    _moves = False  # the data being parsed contained part of a body
    _fault: tuple[int, str] | None = None  # an invalid request: status and message of its refusal
    _expects = False  # the request under way waits for `100 Continue` before it sends its body
    _lingers = False  # the response was sent; the rest of the request is read, so that the client gets the response
    _resuming = False  # the parser is being fed what it has forgotten
    _early: bytearray | None = None  # bytes received behind a request for an upgrade
    _stream: UpgradedEnd | None = None  # the owner of this connection, since its upgrade
    _held = False  # reading is paused by the stream
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
        elif self.joining is not None:
            self.joining.cancel()

    def recognised(self) -> None:
        """The caller's token was accepted."""
        self.seats.recognise(self)

    def begin(self, status: int, headers: Sequence[tuple[bytes, bytes]], *, goes_on: bool) -> None:
        """Send the head of a response. `goes_on`: together with the body that follows at once, because two packets
        would wake the client twice."""
        cycle = self._at_work
        if cycle is None or cycle.disconnected:
            return
        self._expects = cycle.waiting_for_100_continue
        cycle.response_started, cycle.waiting_for_100_continue = True, False
        names = {name for name, _ in headers}
        if cycle.more_body and (self._expects or status >= 300):  # else it may arrive before the response ends
            cycle.keep_alive = False
        if b"connection" in names:  # always `close`
            cycle.keep_alive = False
        elif not cycle.keep_alive:
            headers = (*headers, (b"connection", b"close"))
        bodiless = cycle.scope["method"] == "HEAD" or status in (204, 304)
        old = cycle.scope["http_version"] == "1.0"  # without chunks; the connection ends with the response
        self._chunked = not (b"content-length" in names or bodiless or old)
        if self._chunked:
            headers = (*headers, (b"transfer-encoding", b"chunked"))
        lines = [name + b": " + value for name, value in headers]
        self._head = STATUS_LINE[status] + b"\r\n".join((*lines, b"", b""))
        if not goes_on:
            self._flush(b"")

    async def part(self, part: bytes, *, last: bool, drained: bool = False) -> None:
        """Send the next bytes of the body, once the client has read most of the earlier ones. `drained`: the rest of
        the request has been read, or has had its time."""
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
        """Lift the time limit for the request's body: the reader that streams it watches its pace."""
        self._within(None)
        self.seats.works(self)

    def data_received(self, data: bytes) -> None:
        self._turns.received(data)

    def _feed(self, data: bytes) -> bool:
        """Process received bytes. Returns whether more are wanted."""
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
            self.cycle.keep_alive = False  # the bytes that follow aren't HTTP, whatever the response
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
        """Whether this is a request for a WebSocket. Requests for other upgrades, such as to HTTP/2, are ordinary
        ones."""
        wanted = (one(self.headers, b"upgrade") or b"").lower() == b"websocket"
        return wanted and self.parser.get_method() == b"GET" and self._framing()[1] == b"0"

    def _framing(self) -> tuple[bytes, bytes]:
        """The header that says where the request's body ends."""
        found = [each for each in self.headers if each[0] in (b"transfer-encoding", b"content-length")]
        return found[0] if found else (b"content-length", b"0")

    def _resume(self) -> bool:
        """Continue with a new parser after a request with an `Upgrade`: the old one takes everything that follows,
        including its body, for another protocol."""
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
        """Pause reading, or resume it unless there is another reason to pause."""
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
        self._in_head, self._head_bytes, self._size, self._lines, self._target = True, 0, 0, 0, b""
        self._within(self.head_seconds)

    def on_url(self, url: bytes) -> None:
        self._size += len(url)
        if not self._resuming and len(self._target) < len(PREFIX):
            self._target += url[: len(PREFIX)]
        if self._size <= MOST and not self._resuming:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            return  # a trailer, which isn't used
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
        self._see_through_proxies()
        super().on_headers_complete()

    def _see_through_proxies(self) -> None:
        """Show everybody behind this the client of a trusted proxy in place of the proxy."""
        if self.client is not None and self.client[0] in self.proxies:
            sender = self.proxies.sender(self.client[0], self.scope["scheme"], self.headers)
            self.scope["client"], self.scope["scheme"] = (sender.address, 0), sender.scheme
            self.headers[:] = sender.headers  # the list is the scope's

    def on_body(self, body: bytes) -> None:
        self._moves = True
        super().on_body(body)

    def _faulty(self) -> tuple[int, str] | None:
        """The problem of a request's head that two programs might read differently; empty if there is none."""
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
        """Whether a target in absolute form names another host than the `Host` header."""
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
        """Answer the request with this head; from now on the connection belongs to `end`. It keeps its seat."""
        self._stream, end.wire, early = end, self, bytes(self._early or b"")
        self._early = None
        self.cycle.disconnected = True  # uvicorn expects no answer then
        if self.transport.is_closing():  # it may be closed altogether
            self.loop.call_soon(end.lost)
            return
        self.transport.set_write_buffer_limits(high=BUFFER)
        self.write(head)
        sock: socket.socket | None = self.transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if early:
            self.loop.call_soon(self._turns.received, early)

    def write(self, data: bytes) -> None:
        self.transport.write(data)

    def hold(self, hold: bool) -> None:
        """Pause reading the stream, or resume it."""
        self._held = hold
        self._pause(hold or self._turns.waiting)

    def close(self) -> None:
        """Close once everything has been sent."""
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
        """Drop references: connection, transport and request refer to each other, so unused received bytes would stay
        until the next garbage collection, a quarter of a megabyte each."""
        if self.cycle is not None:
            self.cycle.body = bytearray()
        self._at_work = None
        self.pipeline.clear()

    def shutdown(self) -> None:
        """Shut down without waiting for a client that hasn't sent a complete request."""
        if self._stream is not None:
            self._stream.leave("the server is stopping")
            return
        if self._deadline is not None:
            self.transport.close()
        super().shutdown()

    def send_400_response(self, msg: str) -> None:
        self._refuse((400, msg))

    def _refuse(self, fault: tuple[int, str]) -> None:
        """Refuse an invalid request. The connection ends after the responses to earlier requests, because nothing after
        an invalid request can be read."""
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
        media, body = "application/json", orjson.dumps({"detail": [{"msg": msg, "code": "error"}]})
        if self._target.startswith(PREFIX.encode()):
            media, body = problems.MEDIA, problems.malformed(status, msg).body
        head = f"content-type: {media}\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
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
