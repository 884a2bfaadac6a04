"""HTTP for the embedded server: a request becomes the event API Gateway would have sent, for the same Chalice app.

Only this module waits: an agent's long poll holds an asyncio event, not a thread, so a thousand quiet agents cost a
thousand small objects.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from concurrent.futures import Executor
from typing import Any
from urllib.parse import parse_qs, unquote

import orjson

from chalicelib.api.dispatch import Reply, match

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

SYNC_PATH = "/agent/sync"
LONGEST_POLL = 60.0  # seconds
_PATIENCE = 8  # times the limit that we read of a body, so that its sender gets the refusal


class TooLarge(Exception):
    """The request's body is over the limit. `whole`: it was read to the end."""

    def __init__(self, *, whole: bool) -> None:
        self.whole = whole


class Left(Exception):
    """The client left before its request was complete."""


def gateway_event(
    method: str,
    path: str,
    resource: str,
    params: Mapping[str, str],
    query: bytes,
    headers: Mapping[str, str],
    body: bytes,
) -> dict[str, Any]:
    """A REST API proxy event (payload format 1.0). Bodies that aren't text are base64, as in API Gateway."""
    try:
        text, encoded = body.decode("utf-8"), False
    except UnicodeDecodeError:
        text, encoded = base64.b64encode(body).decode("ascii"), True
    fields = parse_qs(query.decode("latin-1"), keep_blank_values=True)
    return {
        "resource": resource,
        "path": path,
        "httpMethod": method,
        "headers": dict(headers),
        "multiValueHeaders": {name: [value] for name, value in headers.items()},
        "queryStringParameters": {name: values[-1] for name, values in fields.items()} or None,
        "multiValueQueryStringParameters": fields or None,
        "pathParameters": dict(params) or None,
        "stageVariables": None,
        "requestContext": {"resourcePath": resource, "httpMethod": method, "path": path, "stage": "embedded"},
        "body": text if body else None,
        "isBase64Encoded": encoded,
    }


class Polls:
    """Who waits for news. `ring` may be called from any thread."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._events: dict[str, set[asyncio.Event]] = {}
        self.closed = False

    def close(self) -> None:
        """End every wait and allow no new ones: the server is shutting down."""
        self.closed = True
        self.ring(tuple(self._events))

    def bind(self) -> None:
        self._loop = asyncio.get_running_loop()

    def ring(self, instance_ids: Iterable[str]) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._ring, tuple(instance_ids))

    def _ring(self, instance_ids: tuple[str, ...]) -> None:
        for instance_id in instance_ids:
            for event in self._events.get(instance_id, ()):
                event.set()

    def listen(self, instance_id: str) -> asyncio.Event:
        event = asyncio.Event()
        self._events.setdefault(instance_id, set()).add(event)
        return event

    def leave(self, instance_id: str, event: asyncio.Event) -> None:
        waiting = self._events.get(instance_id)
        if waiting is not None:
            waiting.discard(event)
            if not waiting:
                del self._events[instance_id]


class AsgiBridge:
    """The ASGI application."""

    def __init__(
        self,
        app: Callable[[dict[str, Any], Any], dict[str, Any]],
        threads: Executor,
        polls: Polls,
        *,
        body_limit: int,
        has_news: Callable[[Mapping[str, Any]], bool],
        on_ready: Callable[[], None] = lambda: None,
    ) -> None:
        self._app, self._threads, self._polls = app, threads, polls
        self._limit, self._has_news, self._on_ready = body_limit, has_news, on_ready

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        else:  # a websocket: refused before it is accepted
            await send({"type": "websocket.close", "code": 1003})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._polls.bind()
                self._on_ready()
                await send({"type": "lifespan.startup.complete"})
            else:
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await self._body(receive)
        except Left:
            return
        except TooLarge as large:
            reply = _problem(400, f"The request is larger than {self._limit // 1024 // 1024} MB.")
            if not large.whole:
                reply = reply._replace(headers={**reply.headers, "connection": "close"})
        else:
            if scope["path"] == SYNC_PATH and scope["method"] == "POST":
                reply = await self._sync(scope, body)
            else:
                reply = await self._dispatch(scope, body)
        headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in reply.headers.items()]
        headers.append((b"content-length", str(len(reply.body)).encode()))
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else reply.body})

    async def _body(self, receive: Receive) -> bytes:
        """The whole body. One over the limit is read to its end but not kept, so that the client gets the response."""
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Left
            size += len(message.get("body", b""))
            if size <= self._limit:
                chunks.append(message.get("body", b""))
            elif size > _PATIENCE * self._limit:
                raise TooLarge(whole=False)
            if not message.get("more_body"):
                break
        if size > self._limit:
            raise TooLarge(whole=True)
        return b"".join(chunks)

    async def _dispatch(self, scope: Scope, body: bytes) -> Reply:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._call, scope, body)

    def _call(self, scope: Scope, body: bytes) -> Reply:
        path = scope["path"].rstrip("/") or "/"
        found = match(path)
        resource = path if found is None else found.template
        params = {} if found is None else {name: unquote(value) for name, value in found.params.items()}
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        event = gateway_event(scope["method"], path, resource, params, scope["query_string"], headers, body)
        answer = self._app(event, None)
        content = answer["body"]
        raw = base64.b64decode(content) if answer.get("isBase64Encoded") else content.encode()
        return Reply(answer["statusCode"], _single(answer), raw)

    async def _sync(self, scope: Scope, body: bytes) -> Reply:
        """An agent's call: answered as soon as there is news, at the latest when its wait ends."""
        instance_id, patience = _wait_of(body)
        if patience <= 0 or not instance_id:
            return await self._dispatch(scope, body)
        event = self._polls.listen(instance_id)
        try:
            reply = await self._dispatch(scope, body)
            end = asyncio.get_running_loop().time() + patience
            while reply.status == 200 and not self._has_news(orjson.loads(reply.body)) and not self._polls.closed:
                left = end - asyncio.get_running_loop().time()
                if left <= 0:
                    break
                try:
                    await asyncio.wait_for(event.wait(), left)
                except TimeoutError:
                    break
                event.clear()
                reply = await self._dispatch(scope, body)
            return reply
        finally:
            self._polls.leave(instance_id, event)


def _wait_of(body: bytes) -> tuple[str, float]:
    try:
        message = orjson.loads(body)
        return str(message["instance"]), min(LONGEST_POLL, float(message.get("wait") or 0))
    except (ValueError, KeyError, TypeError, AttributeError):
        return "", 0.0  # malformed: the route itself reports what is wrong with it


def _single(answer: Mapping[str, Any]) -> dict[str, str]:
    headers = {name: str(value) for name, value in (answer.get("headers") or {}).items()}
    for name, values in (answer.get("multiValueHeaders") or {}).items():
        headers[name] = ", ".join(values)
    return headers


def _problem(status: int, message: str) -> Reply:
    body = orjson.dumps({"detail": [{"msg": message, "code": "error"}]})
    return Reply(status, {"content-type": "application/json"}, body)
