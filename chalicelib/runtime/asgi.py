"""HTTP for the embedded server: the same dispatch that Chalice calls in AWS.

The order of work is the order of its cost: the path, the size, the token, and only then the body, for which there must
be memory. Bodies are parsed on threads, never on the event loop, which answers the health check itself.

Only this module waits: an agent's long poll holds an asyncio event, not a thread, so a thousand quiet agents cost a
thousand small objects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import parse_qs, unquote, urlencode

import orjson

from chalicelib.agent.streams import websocket
from chalicelib.api import dispatch
from chalicelib.api.auth import bearer
from chalicelib.api.dispatch import Reply, RequestHead
from chalicelib.api.route import Access, of_agents
from chalicelib.api.v1 import CHANGES
from chalicelib.api.v1.preferences import HELD, reading, settled, wait_of
from chalicelib.engine import log_context
from chalicelib.errors import Overloaded, Refused
from chalicelib.runtime import event_stream, request_log
from chalicelib.runtime.health import PATH, HealthEndpoint
from chalicelib.runtime.lanes import Busy, Lane
from chalicelib.runtime.probes import Probes
from chalicelib.runtime.request_log import RequestLog
from chalicelib.runtime.streams import StreamBroker
from chalicelib.serving.ports import Receive, Scope, Send, UpgradedEnd
from chalicelib.usecases.agents.gateway_sync import GATEWAYS

if TYPE_CHECKING:
    from chalicelib.serving.door import Door

T = TypeVar("T")

Ask = Callable[[bytes], Reply]  # a call, by its body

SYNC_PATH, GATEWAY_PATH = "/agent/sync", "/agent/gateway"
STREAM_PATHS = (CLIENT_STREAM, AGENT_STREAM) = (
    "/api/project/{project_name}/streams/{run_name}",
    "/agent/streams/{stream_id}",
)
HELD_PATHS = (SYNC_PATH, GATEWAY_PATH, *STREAM_PATHS)
LONGEST_POLL = 60.0  # seconds
LONG_POLL, GRAIN = 10.0, 0.5  # seconds: from the one on, a poll's patience ends at a multiple of the other
SMALL = 16 * 1024  # bytes of a body that may be read before its sender is known, without being counted
DRAINED_OF_KNOWN = 64 * 2**20  # bytes of a known caller's oversized body that are read, so that it gets the refusal
DRAINED, DRAIN_SECONDS = 64 * 1024, 2.0  # the same for other callers
LONGEST_NAME = 100  # characters of a project's name in the log
PIECE = 64 * 1024  # bytes of a response that are written at once
READ_SECONDS = 180.0  # within which a client must have read its response
_NO_AGENT = Refused("The job's host didn't answer.", hint="It may be away: see `dstack fleet`. Try again in a moment.")
_NO_CLIENT = Refused("Nobody is waiting for this stream any more.")
_BUSY = Overloaded("The server is busy with too many requests at once.", hint="Try again in a moment.")


class TooLarge(Exception):
    """The request's body is over the limit."""


class LeftEarly(Exception):
    """The client closed the connection before its request was complete."""


class RequestWire(Protocol):
    """The connection that a request came over."""

    def recognised(self) -> None: ...

    def begin(self, status: int, headers: Sequence[tuple[bytes, bytes]], *, goes_on: bool) -> None:
        """Send the response's head; names are in lower case. `goes_on`: the body follows at once in the same write."""

    async def part(self, part: bytes, *, last: bool, drained: bool = False) -> None: ...

    def leave(self) -> None: ...

    def upgrade(self, head: bytes, end: UpgradedEnd) -> None: ...

    def write(self, data: bytes) -> None: ...

    def hold(self, hold: bool) -> None: ...

    def close(self) -> None: ...


class Polls:
    """The long polls that wait for changes. `ring` may be called from any thread."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._events: dict[str, set[asyncio.Event]] = {}
        self.closed = False

    def close(self) -> None:
        """End every wait and allow no new ones: the server is shutting down."""
        self.closed = True
        self.ring_all()

    def bind(self) -> None:
        self._loop = asyncio.get_running_loop()

    def ring(self, instance_ids: Iterable[str]) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._ring, tuple(instance_ids))

    def ring_all(self) -> None:
        self.ring(tuple(self._events))

    def changed(self, nouns: Iterable[str]) -> None:
        """Ring those that somebody waits for."""
        waited = [noun for noun in nouns if noun in self._events]
        if waited:
            self.ring(waited)

    def _ring(self, instance_ids: tuple[str, ...]) -> None:
        for instance_id in instance_ids:
            for event in self._events.get(instance_id, ()):
                event.set()

    def listen(self, instance_id: str) -> asyncio.Event:
        event = asyncio.Event()
        self._events.setdefault(instance_id, set()).add(event)
        return event

    def turn(self, event: asyncio.Event, before: Collection[str], now: Collection[str]) -> None:
        """Have the event listen to other nouns. It is set if one is new: that may have changed already."""
        for noun in set(before) - set(now):
            self.leave(noun, event)
        new = set(now) - set(before)
        for noun in new:
            self._events.setdefault(noun, set()).add(event)
        if new:
            event.set()

    def leave(self, instance_id: str, event: asyncio.Event) -> None:
        waiting = self._events.get(instance_id)
        if waiting is not None:
            waiting.discard(event)
            if not waiting:
                del self._events[instance_id]


class AsgiBridge:
    """The ASGI application. `refusal` decides by a request's head and size whether its body will be read."""

    def __init__(
        self,
        serve: Callable[[RequestHead], Reply],
        refusal: Callable[[RequestHead, int], Reply | None],
        users: Lane,
        agents: Lane,
        polls: Polls,
        *,
        has_news: Callable[[Mapping[str, Any]], bool],
        on_ready: Callable[[], None] = lambda: None,
        linger: float = DRAIN_SECONDS,
        streams: StreamBroker | None = None,
        door: Door | None = None,
        probes: Probes | None = None,
        requests: RequestLog | None = None,
        install_id: str = "",
    ) -> None:
        self._probes, self._requests = probes, requests
        self._serve, self._refusal, self._users, self._agents, self._polls = serve, refusal, users, agents, polls
        self._has_news, self._on_ready, self._linger = has_news, on_ready, linger
        self._streams, self._door, self._followers = streams, door, event_stream.EventStreams()
        self._health = HealthEndpoint(
            lambda head: agents.turns.run("", partial(self._call, head, b"", b"")), install_id
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive)
        else:  # a websocket: refused before it is accepted
            await send({"type": "websocket.close", "code": 1003})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._polls.bind()
                if self._door is not None:
                    self._door.bind()
                self._on_ready()
                await send({"type": "lifespan.startup.complete"})
            else:
                if self._door is not None:
                    await self._door.closed()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _http(self, scope: Scope, receive: Receive) -> None:
        if self._door is not None and (place := self._door.place(scope)) is not None:
            await self._door.serve(place, scope, receive)
        elif self._requests is not None:
            await self._requests.around(scope, partial(self._answered, scope, receive))
        else:
            await self._answered(scope, receive)

    async def _answered(self, scope: Scope, receive: Receive) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        exchange = AsgiExchange(scope, receive, size_of(headers), self._linger)
        path = scope["path"].rstrip("/") or "/"
        if self._probes is not None and (probed := await self._probes.reply(scope["method"], path)) is not None:
            log_context.note(route=path)
            await exchange.answer(probed)
            return
        head = dispatch.head_of(dispatch.Request(scope["method"], path, headers=headers))
        if isinstance(head, Reply):
            await exchange.answer(head)
            return
        log_context.note(route=head.route.path, kind=self._kind(head, exchange))
        if name := head.params.get("project_name"):
            log_context.note(project=unquote(name)[:LONGEST_NAME])
        if head.route.path == PATH:
            await exchange.answer(self._health.reply(head))
        elif head.route.path in STREAM_PATHS and self._streams is not None:
            await self._streamed(head, exchange, self._streams)
        else:
            await self._routed(head, exchange)

    def _kind(self, head: RequestHead, exchange: AsgiExchange) -> str:
        """The class of a request, for the metrics."""
        request = head.request
        stays = head.route.path == event_stream.PATH and event_stream.wanted(request.headers.get("accept", ""))
        if stays or head.route.path in HELD_PATHS or wait_of(request, HELD):
            return request_log.HELD
        if exchange.size > SMALL:
            return request_log.TRANSFER
        return request_log.AGENTS if of_agents(head.route) else request_log.API

    async def _routed(self, head: RequestHead, exchange: AsgiExchange) -> None:
        lane = self._agents if of_agents(head.route) else self._users
        caller = bearer(head.request.headers)
        try:
            await self._enter(head, exchange, lane, caller)
            limit = SMALL if head.route.access is Access.public else lane.body
            async with lane.memory.held(caller, exchange.memory(limit)):
                body = await exchange.body(limit)
                call = partial(self._call, head, exchange.query)
                work = self._work(head, exchange.query)
                reply = await work(lane, caller, call, body)
                del body
            if reply.status == HTTPStatus.OK and self._follows(head, exchange, caller):
                await self._followed(head, exchange, caller, reply)
                return
            if head.route.access is not Access.public and reply.status not in (401, 403):
                exchange.wire.recognised()
            async with lane.memory.held_now(caller, len(reply.body) if len(reply.body) > SMALL else 0):
                await exchange.answer(reply)
        except LeftEarly:
            return
        except Turned as turned:
            await exchange.answer(turned.reply)
        except TooLarge:
            known = head.route.access is not Access.public
            await exchange.answer(dispatch.refused(dispatch.too_large(limit), head.route.path), known=known)
        except Busy:
            reply = dispatch.refused(_BUSY, head.route.path)
            await exchange.answer(Reply(503, {"Retry-After": "2", **reply.headers}, reply.body))

    def _follows(self, head: RequestHead, exchange: AsgiExchange, caller: str) -> bool:
        """Is the request for a feed that stays open, and may there be another?"""
        request = head.request
        feed = head.route.path == event_stream.PATH and request.method == dispatch.READ and exchange.size == 0
        return feed and event_stream.wanted(request.headers.get("accept", "")) and self._followers.takes(caller)

    async def _followed(self, head: RequestHead, exchange: AsgiExchange, caller: str, first: Reply) -> None:
        heard: Collection[str] = ()

        async def ask(cursor: str) -> Reply:
            following = urlencode({**_fields(exchange.query), "cursor": cursor}).encode()
            reply = await self._users.turns.run(caller, partial(self._call, fresh, following, b""))
            hear(reply.heard)
            return reply

        def hear(nouns: Collection[str]) -> None:
            nonlocal heard
            self._polls.turn(rung, heard, nouns)
            heard = nouns

        headers = {name: value for name, value in head.request.headers.items() if name != "if-none-match"}
        fresh = head._replace(request=replace(head.request, headers=headers))
        exchange.wire.recognised()
        rung = self._polls.listen(CHANGES)  # which is rung with all others, when rights change or the server ends
        hear(first.heard)
        try:
            await exchange.unless_left(
                self._followers.serve(caller, first, ask, exchange.wire, rung, lambda: self._polls.closed)
            )
        finally:
            hear(())
            self._polls.leave(CHANGES, rung)

    async def _streamed(self, head: RequestHead, exchange: AsgiExchange, streams: StreamBroker) -> None:
        """Serve a client's request for a stream, or an agent's: the response is the stream, unless it is refused."""
        lane = self._agents if of_agents(head.route) else self._users
        caller = bearer(head.request.headers)
        try:
            response = websocket.handshake_response(websocket.key_of(head.request.headers))
            await self._enter(head, exchange, lane, caller)
            reply = await _once(lane, caller, partial(self._call, head, exchange.query), b"")
            if reply.status == 200:
                exchange.wire.recognised()
                join = streams.wait if head.route.path == CLIENT_STREAM else streams.meet
                if await exchange.unless_left(join(orjson.loads(reply.body)["stream"], exchange.wire, response)):
                    return
                reply = dispatch.refused(_NO_AGENT if head.route.path == CLIENT_STREAM else _NO_CLIENT, head.route.path)
        except websocket.ProtocolError as broken:
            reply = dispatch.refused(Refused(f"{broken}."), head.route.path)
        except LeftEarly:
            return
        except Turned as turned:
            reply = turned.reply
        except Busy:
            reply = dispatch.refused(_BUSY, head.route.path)
        await exchange.answer(reply)

    async def _enter(self, head: RequestHead, exchange: AsgiExchange, lane: Lane, caller: str) -> None:
        """Raise Turned for a request whose body needn't be read. With a token and a small body, that is checked only
        when the request is served."""
        if head.route.access is Access.public:
            return
        check = partial(self._refusal, head, exchange.size)
        if not caller:
            reply = check()  # without a token there is nothing to look up
        elif exchange.size > SMALL:
            reply = await lane.turns.run(caller, check)
        else:
            return
        if reply is not None:
            raise Turned(reply)
        exchange.wire.recognised()

    def _call(self, head: RequestHead, query: bytes, body: bytes) -> Reply:
        params = {name: unquote(value) for name, value in head.params.items()}
        request = replace(head.request, query=_fields(query), body=body)
        return self._serve(head._replace(params=params, request=request))

    def _work(self, head: RequestHead, query: bytes) -> Callable[[Lane, str, Ask, bytes], Coroutine[Any, Any, Reply]]:
        if head.route.path == SYNC_PATH:
            return self._sync
        if head.route.path == GATEWAY_PATH:
            return partial(self._until_news, GATEWAYS, _patience_of(query))
        if seconds := wait_of(head.request, HELD):
            return partial(self._until_settled, head, seconds)
        return _once

    async def _until_settled(
        self, head: RequestHead, seconds: int, lane: Lane, caller: str, call: Ask, body: bytes
    ) -> Reply:
        """The response to a call as soon as its resource is settled, at the latest after these seconds."""
        first = last = await _once(lane, caller, call, body)
        end = asyncio.get_running_loop().time() + seconds
        with suppress(Busy):  # the request has been answered: it isn't refused for lack of a thread any more
            while last.settling is not None and not self._polls.closed:
                left = end - asyncio.get_running_loop().time()
                if left <= 0:
                    break
                last = await self._read_again(reading(head, last.settling), last.settling.noun, left, lane, caller)
        return settled(first, last, seconds) if first.status < HTTPStatus.BAD_REQUEST else first

    async def _read_again(self, head: RequestHead, noun: str, left: float, lane: Lane, caller: str) -> Reply:
        """The resource, read once more if it isn't settled, when it has changed."""
        read, event = partial(self._call, head, b"", b""), self._polls.listen(noun)
        try:
            reply = await lane.turns.run(caller, read)  # it may have changed before anybody listened
            if reply.settling is None:
                return reply
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await event.wait()
            return await lane.turns.run(caller, read)
        finally:
            self._polls.leave(noun, event)

    async def _sync(self, lane: Lane, caller: str, call: Ask, body: bytes) -> Reply:
        small = len(body) <= SMALL  # parsed sooner than handed to a thread
        instance_id, patience = _wait_of(body) if small else await lane.turns.run(caller, partial(_wait_of, body))
        return await self._until_news(instance_id, patience, lane, caller, call, body)

    async def _until_news(
        self, listener: str, patience: float, lane: Lane, caller: str, call: Ask, body: bytes
    ) -> Reply:
        """The response to an agent's call as soon as something has changed, at the latest when its patience ends."""
        if patience <= 0 or not listener:
            return await _once(lane, caller, call, body)
        event = self._polls.listen(listener)
        try:
            reply, over = await lane.turns.run(caller, partial(self._poll, call, body))
            end = together(asyncio.get_running_loop().time() + patience, patience)
            while not over and not self._polls.closed:
                left = end - asyncio.get_running_loop().time()
                if left <= 0:
                    break
                try:
                    async with asyncio.timeout(left):  # unlike `wait_for`, it starts no task
                        await event.wait()
                except TimeoutError:
                    break
                event.clear()
                reply, over = await lane.turns.run(caller, partial(self._poll, call, body))
            return reply
        finally:
            self._polls.leave(listener, event)

    def _poll(self, call: Ask, body: bytes) -> tuple[Reply, bool]:
        """The reply, and whether it ends the poll."""
        reply = call(body)
        return reply, reply.status != 200 or self._has_news(orjson.loads(reply.body))


def together(end: float, patience: float) -> float:
    """When to end a poll that may last until `end`. The polls of quiet agents end together and, because the next ones
    follow at once, also begin together: waking the processor for each of a thousand costs half as much again."""
    return end if patience < LONG_POLL else end // GRAIN * GRAIN


async def _once(lane: Lane, caller: str, call: Ask, body: bytes) -> Reply:
    return await lane.turns.run(caller, partial(call, body))


class Turned(Exception):
    """The request was refused before its body was read."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply


class AsgiExchange:
    """One request and its response on their connection."""

    def __init__(self, scope: Scope, receive: Receive, size: int | None, linger: float) -> None:
        self._head_only, self._receive = scope["method"] == "HEAD", receive
        self.wire: RequestWire = scope["state"]["connection"]
        self.query: bytes = scope["query_string"]
        self._linger = linger
        self.size = 2**62 if size is None else size  # of the body, as announced; at most
        self._complete = size == 0  # was it read to its end?

    def memory(self, limit: int) -> int:
        """The bytes to reserve for the body."""
        return min(self.size, limit) if self.size > SMALL else 0

    async def body(self, limit: int) -> bytes:
        """The whole body. Raises TooLarge, if possible before anything of it is read."""
        if SMALL < limit < self.size < 2**62:
            raise TooLarge
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise LeftEarly
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            if size > limit:
                raise TooLarge
            if not message.get("more_body"):
                self._complete = True
                return b"".join(chunks)

    async def unless_left(self, waiting: Coroutine[Any, Any, T]) -> T:
        """The result of `waiting`. Raises LeftEarly, and stops waiting, once the client has closed the connection."""
        wait, gone = asyncio.ensure_future(waiting), asyncio.ensure_future(self._gone())
        try:
            await asyncio.wait((wait, gone), return_when=asyncio.FIRST_COMPLETED)
            if not wait.done():
                raise LeftEarly
            return wait.result()
        finally:
            gone.cancel()
            wait.cancel()

    async def _gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def answer(self, reply: Reply, *, known: bool = False) -> None:
        """Send the response, then read the rest of the body, up to a limit that is higher for a `known` caller, and
        close the connection: a client that sends everything before it reads would otherwise never see the response."""
        try:
            async with asyncio.timeout(READ_SECONDS):
                await self._write(reply)
        except TimeoutError:
            self.wire.leave()
            return
        if not self._complete:
            await self._drain(known)
            await self.wire.part(b"", last=True, drained=True)

    async def _write(self, reply: Reply) -> None:
        headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in reply.headers.items()]
        if reply.status not in dispatch.BODILESS:
            headers.append((b"content-length", str(len(reply.body)).encode()))
        if not self._complete:
            headers.append((b"connection", b"close"))
        self.wire.begin(reply.status, headers, goes_on=True)
        body = b"" if self._head_only else reply.body
        for start in range(0, max(1, len(body)), PIECE):
            last = self._complete and start + PIECE >= len(body)
            await self.wire.part(body[start : start + PIECE], last=last)

    async def _drain(self, known: bool) -> None:
        limit, seconds = (DRAINED_OF_KNOWN, READ_SECONDS) if known else (DRAINED, self._linger)

        async def drain() -> None:
            size = 0
            while size <= limit:
                message = await self._receive()
                size += len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body"):
                    return
            if not known:
                await asyncio.Event().wait()  # until the time is up, which slows down clients that keep sending

        with suppress(TimeoutError):  # the rest of the body isn't waited for: the connection closes
            await asyncio.wait_for(drain(), seconds)


def size_of(headers: Mapping[str, str]) -> int | None:
    """The announced size of the body; None for one that comes in chunks."""
    if "transfer-encoding" in headers:
        return None
    text = headers.get("content-length", "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None


def _fields(query: bytes) -> dict[str, str]:
    found = parse_qs(query.decode("latin-1"), keep_blank_values=True)
    return {name: values[-1] for name, values in found.items()}


def _patience_of(query: bytes) -> float:
    """The seconds that a gateway's poll may wait for a change."""
    text = parse_qs(query.decode("latin-1")).get("wait", ["0"])[-1]
    return min(LONGEST_POLL, float(text)) if text.isascii() and text.isdigit() else 0.0


def _wait_of(body: bytes) -> tuple[str, float]:
    try:
        message = orjson.loads(body)
        return str(message["instance"]), min(LONGEST_POLL, float(message.get("wait") or 0))
    except (ValueError, KeyError, TypeError, AttributeError):
        return "", 0.0  # malformed: the route itself reports the problem
