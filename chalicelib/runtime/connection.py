"""A client's connection to the embedded server: requests must be complete, in time and within limits.

Uvicorn waits for ever for the rest of a request and buffers whatever precedes a complete head, so a few idle sockets
would use up all descriptors, and one endless header the memory. Nor does it end for a client that never reads. Its own
refusals are plain text, which clients of this API don't read.
"""

from __future__ import annotations

import asyncio

import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from chalicelib.runtime.accept import Seats

HEAD_BYTES = 64 * 1024
PIPELINED = 8  # requests that may wait behind one on the same connection; our clients send none so


class Connection(HttpToolsProtocol):  # type: ignore[misc]  # the type checker skips uvicorn
    head_seconds = 30.0
    body_seconds = 180.0  # for the whole body; the largest allowed takes a third of this at 1 Mbit/s
    close_seconds = 30.0  # for the rest of an answer, on a connection that is being closed

    seats = Seats(2**31)  # the server's own, from whoever makes the connection
    _left = False
    _deadline: asyncio.TimerHandle | None = None
    _in_head = False
    _head_bytes = 0

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

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self.send_400_response(f"The request headers are larger than {HEAD_BYTES // 1024} KB.")

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
        if self.transport.is_closing():
            self._within(self.close_seconds)

    def timeout_keep_alive_handler(self) -> None:
        self.transport.abort()  # a client that hasn't read it by now never will

    def connection_lost(self, exc: Exception | None) -> None:
        self._within(None)
        self.seats.left(self)
        super().connection_lost(exc)
        self._forget_bodies()

    def _forget_bodies(self) -> None:
        """Connection, transport and request refer to each other, so without this what was read but not wanted would
        stay until the next collection of garbage: a quarter of a megabyte each."""
        if self.cycle is not None:
            self.cycle.body = bytearray()
        self.pipeline.clear()

    def shutdown(self) -> None:
        """Shutting down: don't wait for a client that hasn't sent a whole request."""
        if self._deadline is not None:
            self.transport.close()
        super().shutdown()

    def send_400_response(self, msg: str) -> None:
        body = orjson.dumps({"detail": [{"msg": msg, "code": "error"}]})
        head = "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n"
        self.transport.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        self.transport.close()

    def _within(self, seconds: float | None) -> None:
        """The rest of the current request must arrive within this many seconds; None: no request is being sent."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self._too_late)

    def _too_late(self) -> None:
        self._deadline = None
        if self._in_head and not self.transport.is_closing():
            self.send_400_response(f"The request headers didn't arrive within {self.head_seconds:g} s.")
            self._within(self.close_seconds)
        else:
            self.transport.abort()
