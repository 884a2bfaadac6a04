"""WebSockets through the door: after the upgrade, bytes are passed on unread.

The client's request and the replica's response are passed on as they are. From then on each side's bytes go to the
other, and a side that doesn't read stops the other from sending. When one side ends, the other is ended after
everything that was sent before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import httptools

from chalicelib.domain.serving import ServedReplica
from chalicelib.serving import problems
from chalicelib.serving.exchange import CLOSE_SECONDS, CONNECT_SECONDS, IDLE
from chalicelib.serving.headers import MOST, Raw, back, listed, one
from chalicelib.serving.ports import Wire
from chalicelib.serving.problems import Unanswered

HEAD_SECONDS = 60.0  # for the replica's answer to the request
BUFFER = 128 * 1024  # unsent bytes to one side at which reading from the other pauses
MOST_REFUSAL = 64 * 1024  # bytes of a response that isn't an upgrade


def is_upgrade_request(method: str, headers: Raw) -> bool:
    """Whether this is a request for a WebSocket. One with a body, or for several protocols, is an ordinary request."""
    upgrade = (one(headers, b"upgrade") or b"").lower()
    no_body = (one(headers, b"content-length") or b"0") == b"0" and one(headers, b"transfer-encoding") is None
    return method == "GET" and upgrade == b"websocket" and b"upgrade" in listed(headers) and no_body


@dataclass
class UpgradeAnswer:
    """The replica's response to the request: its head and, if it refuses, a body."""

    status: int = 0
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytearray = field(default_factory=bytearray)
    complete: bool = False

    # called by the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_body(self, body: bytes) -> None:
        self.body += body
        if len(self.body) > MOST_REFUSAL:
            raise ValueError("too long for a refusal")

    def on_message_complete(self) -> None:
        self.complete = True


class WebSocketTunnel(asyncio.Protocol):
    """The connection to the replica; after the upgrade, also the owner of the client's connection."""

    read_seconds = IDLE  # for either side to resume reading
    wire: Wire
    _transport: asyncio.Transport

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._answered: asyncio.Future[UpgradeAnswer] = self._loop.create_future()
        self._answer = UpgradeAnswer()
        self._parser = httptools.HttpResponseParser(self._answer)
        self._size = 0
        self._upgraded = self._gone = self._client_gone = False
        self._early = b""
        self._full: dict[str, asyncio.TimerHandle] = {}  # sides that don't read, and the timer that ends the tunnel

    # --- the replica's side: what asyncio calls -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's doesn't inherit from it
        self._transport.set_write_buffer_limits(high=BUFFER)

    def data_received(self, data: bytes) -> None:
        if self._upgraded:
            self.wire.write(data)
        elif self._answered.done():  # the response hasn't been passed to the client yet
            self._early += data
        else:
            self._head(data)

    def _head(self, data: bytes) -> None:
        self._size += len(data)
        try:
            self._parser.feed_data(data)
            if self._size > MOST + MOST_REFUSAL:
                raise ValueError("too long")
        except httptools.HttpParserUpgrade as upgrade:
            self._early = data[upgrade.args[0] :]
            self._answer.complete = True
        except (httptools.HttpParserError, ValueError):
            self._fail()
            return
        if self._answer.complete:
            self._answer.status = self._parser.get_status_code()
            self._answered.set_result(self._answer)

    def eof_received(self) -> bool:
        if self._upgraded:
            self._finish()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone = True
        self._fail()
        if self._upgraded:
            self._finish()

    def pause_writing(self) -> None:
        if self._upgraded and not self._client_gone:
            self.wire.hold(True)
            self._set_stalled("replica", True)

    def resume_writing(self) -> None:
        if self._upgraded and not self._client_gone:
            self.wire.hold(False)
            self._set_stalled("replica", False)

    # --- the client's side: what its connection calls -------------------------------------------------------------

    def received(self, data: bytes) -> None:
        if not self._gone:
            self._transport.write(data)

    def full(self, full: bool) -> None:
        if not self._gone:
            self._set_stalled("client", full)
            if full:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def lost(self) -> None:
        if not self._client_gone:
            self._client_gone = True
            self._transport.close()
            self._over(self._transport.abort)

    def leave(self, reason: str) -> None:
        """Close the client's connection, because the server is stopping. Close frames are the application's
        business."""
        self.wire.leave()

    def _set_stalled(self, side: str, full: bool) -> None:
        """Watch a side that has stopped reading: while reading from the other is paused, a lost connection isn't
        seen."""
        if (before := self._full.pop(side, None)) is not None:
            before.cancel()
        if full:
            self._full[side] = self._loop.call_later(self.read_seconds, self._cut)

    def _cut(self) -> None:
        self._transport.abort()
        self.wire.leave()

    # --- from one to the other ------------------------------------------------------------------------------------

    async def send_request(self, head: bytes) -> UpgradeAnswer:
        """The replica's response to this request. Raises Unanswered or HttpProblem."""
        self._transport.write(head)
        try:
            return await asyncio.wait_for(self._answered, HEAD_SECONDS)
        except TimeoutError:
            raise problems.too_slow(HEAD_SECONDS) from None

    def join(self, wire: Wire, head: bytes) -> None:
        """Complete the upgrade: the client gets this head, and then the replica's bytes."""
        self._upgraded = True
        wire.upgrade(head, self)
        if self._early:
            self.wire.write(self._early)
            self._early = b""
        if self._gone:
            self._finish()

    def drop(self) -> None:
        """Close the connection unless it has been upgraded."""
        if not self._upgraded:
            self._transport.abort()

    def _fail(self) -> None:
        if not self._answered.done():
            self._answered.set_exception(Unanswered(problems.unanswered()))
        if not self._upgraded:
            self._transport.abort()

    def _finish(self) -> None:
        """The replica has ended: close the client's connection once everything has been sent."""
        if not self._client_gone:
            self.wire.close()
            self._over(self.wire.leave)

    def _over(self, cut: Callable[[], None]) -> None:
        """One side has ended: the other gets some time to receive the rest."""
        for side in tuple(self._full):
            self._set_stalled(side, False)
        self._loop.call_later(CLOSE_SECONDS, cut)
        self._ended()


async def connect(
    replica: ServedReplica,
    socket_path: Callable[[ServedReplica], str],
    ended: Callable[[], None],
    patience: float = CONNECT_SECONDS,
) -> WebSocketTunnel:
    """A new connection to a replica. Raises Unanswered. `ended` is called after `join`, once or twice."""
    loop = asyncio.get_running_loop()
    path = "" if replica.address else socket_path(replica)
    try:
        async with asyncio.timeout(patience):
            if path:
                _, tunnel = await loop.create_unix_connection(lambda: WebSocketTunnel(ended), path)
            else:
                _, tunnel = await loop.create_connection(lambda: WebSocketTunnel(ended), replica.address, replica.port)
    except (OSError, TimeoutError) as error:
        raise Unanswered(problems.unreachable()) from error
    return tunnel


def request(target: bytes, headers: Raw) -> bytes:
    """The head of the request for a WebSocket."""
    lines = [b"GET " + target + b" HTTP/1.1"]
    lines += [name + b": " + value for name, value in headers if name != b"content-length"]
    lines += [b"connection: Upgrade", b"upgrade: websocket"]
    return b"\r\n".join((*lines, b"", b""))


def welcome(answer: UpgradeAnswer, request_id: str, replica: str, prefix: str) -> bytes:
    """The head of the response that makes the client's connection a WebSocket."""
    lines = [b"HTTP/1.1 101 Switching Protocols", b"connection: Upgrade", b"upgrade: websocket"]
    lines += [name + b": " + value for name, value in back(answer.headers, request_id, replica, prefix)]
    return b"\r\n".join((*lines, b"", b""))
