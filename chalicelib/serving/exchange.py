"""A client's request and its response on their connection."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator
from dataclasses import dataclass

from chalicelib.serving.headers import one
from chalicelib.serving.ports import Receive, ResponseObserver, Scope, Wire
from chalicelib.serving.problems import ClientGone, HttpProblem, too_large

IDLE = 300.0  # seconds without a byte, from either side
CONNECT_SECONDS = 10.0  # until a replica has accepted a connection …
CONNECT_BRIEFLY = 1.0  # … if another one stands by
CLOSE_SECONDS = 30.0  # for bytes still to be sent on a connection that ends


class Exchange:
    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._receive = receive
        self.wire: Wire = scope["state"]["connection"]
        self.method: str = scope["method"]
        self.headers: list[tuple[bytes, bytes]] = scope["headers"]
        client = scope.get("client")
        self.address = str(client[0]) if client else ""
        self.announced = self._announced()  # bytes of the body; None: it comes in chunks
        self.complete = self.announced == 0  # has the body been read to its end?
        self.begun = self.ended = False  # the response
        self.added: tuple[tuple[bytes, bytes], ...] = ()  # headers to add to the response where it lacks them
        self.only = ""  # the job that must answer; empty: any replica may
        self.observers: list[ResponseObserver] = []  # of the response
        self._read, self._was_complete = b"", False  # bytes of the body that were read and will be read again

    def _announced(self) -> int | None:
        names = [name for name, _ in self.headers]
        if b"transfer-encoding" in names:
            return None
        text = (one(self.headers, b"content-length") or b"").lstrip(b"0") or b"0"
        return int(text) if text.isdigit() and len(text) < 20 else 0  # the parser has refused anything else

    @property
    def local(self) -> bool:
        """Whether the client is on this machine, as far as the connection tells."""
        try:
            return not self.address or ipaddress.ip_address(self.address.partition("%")[0]).is_loopback
        except ValueError:
            return False

    def header(self, name: str) -> str:
        """The header's value, or an empty string. For comparisons only."""
        return (one(self.headers, name.encode()) or b"").decode("latin-1")

    async def piece(self) -> bytes:
        """The next bytes of the body; none at its end. Raises ClientGone."""
        if self._read:
            part, self._read, self.complete = self._read, b"", self._was_complete
            return part
        while not self.complete:
            message = await asyncio.wait_for(self._receive(), IDLE)
            if message["type"] == "http.disconnect":
                raise ClientGone
            self.complete = not message.get("more_body", False)
            if part := message.get("body", b""):
                return bytes(part)
        return b""

    @property
    def read(self) -> int:
        """The number of the body's bytes that were read in advance."""
        return len(self._read)

    def unread(self, data: bytes) -> None:
        """Return these bytes of the body, so that they are read again."""
        if data:
            self._read, self._was_complete, self.complete = data, self.complete, False

    def begin(self, status: int, headers: list[tuple[bytes, bytes]], *, goes_on: bool = False) -> None:
        """`goes_on`: more follows at once."""
        self.begun = True
        headers = [*headers, *(each for each in self.added if all(each[0] != name for name, _ in headers))]
        for each in self.observers:
            each.begins(status, headers)
        self.wire.begin(status, headers, goes_on=goes_on)

    async def write(self, part: bytes, *, last: bool = False) -> None:
        self.ended = last
        for each in self.observers:
            each.part(part)
        await self.wire.part(part, last=last)

    async def answer(self, status: int, headers: list[tuple[str, str]], body: bytes = b"") -> None:
        """Send a complete response of the door's own."""
        raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
        if status != 204:
            raw.append((b"content-length", str(len(body)).encode()))
        self.begin(status, raw, goes_on=True)
        await self.write(b"" if self.method == "HEAD" else body, last=True)

    async def refuse(self, problem: HttpProblem, *, openai: bool) -> None:
        if self.begun:
            await self.break_off()
            return
        headers = [("content-type", "application/json"), *problem.headers]
        await self.answer(problem.status, headers, problem.body(openai=openai))

    async def break_off(self) -> None:
        """End the response so that the client sees that it is incomplete."""
        self.wire.close()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                while (await self._receive())["type"] != "http.disconnect":
                    pass
        except TimeoutError:
            self.wire.leave()


@dataclass
class Room:
    """The memory for copies of bodies, shared by all requests."""

    left: int  # bytes


class Body:
    """The body of a request, streamed to the replica. A copy is retained while it is small and there is room."""

    def __init__(self, exchange: Exchange, limit: int, retained: int, room: Room) -> None:
        self._exchange, self._limit, self._most_retained, self._room = exchange, limit, retained, room
        self._copy: list[bytes] | None = []
        self._size = 0

    @property
    def announced(self) -> int | None:
        """Its length in bytes; None if it is chunked."""
        return self._exchange.announced

    @property
    def retained(self) -> bool:
        """Whether everything that was read can be sent again."""
        return self._copy is not None

    def forget(self) -> None:
        """Drop the copy: the body won't be sent again."""
        if self._copy is not None:
            self._room.left += sum(map(len, self._copy))
            self._copy = None

    async def start(self) -> bytes | None:
        """The whole body, if it has arrived together with the head and needn't be streamed."""
        if self._exchange.complete or self._size:
            return b"".join(self._copy) if self._exchange.complete and self._copy is not None else None
        if self._exchange.announced is None or self._exchange.announced > min(65536, self._room.left):
            return None  # or what is read here would be lost
        await self._next()
        return b"".join(self._copy or ()) if self._exchange.complete else None

    async def pieces(self) -> AsyncIterator[bytes]:
        """The pieces of the body, from its beginning if it is sent again."""
        for part in tuple(self._copy or ()):
            yield part
        while part := await self._next():
            yield part

    async def _next(self) -> bytes:
        part = await self._exchange.piece()
        self._size += len(part)
        if self._size > self._limit:
            raise too_large(self._limit)
        if self._copy is not None and part:
            self._copy.append(part)
            self._room.left -= len(part)
            if self._size > self._most_retained or self._room.left < 0:
                self.forget()
        return part
