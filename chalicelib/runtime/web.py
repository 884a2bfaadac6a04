"""The embedded server's HTTP: uvicorn around the dispatch that Chalice calls in AWS."""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any

import uvicorn

from chalicelib.agent.kernel.limits import MESSAGE_BYTES
from chalicelib.api import dispatch
from chalicelib.api.dispatch import Reply, RequestHead
from chalicelib.errors import Fenced
from chalicelib.runtime.asgi import AsgiBridge
from chalicelib.runtime.connection import HttpConnection
from chalicelib.runtime.connection_admission import Acceptor, Seats, doors_share, most_connections
from chalicelib.runtime.embedded import EmbeddedRoot
from chalicelib.runtime.lanes import Lane
from chalicelib.runtime.pair.tenure import HINT
from chalicelib.runtime.probes import Probes
from chalicelib.runtime.request_log import RequestLog
from chalicelib.runtime.trusted_proxies import TrustedProxies
from chalicelib.usecases.agents.calls import has_news

API_THREADS, AGENT_THREADS = 4, 2
API_MEMORY, AGENT_MEMORY = 48 * 2**20, 24 * 2**20  # bytes that bodies and answers may hold at once


@dataclass(frozen=True)
class Entrance:
    """A socket that listens. `tls`: the certificate for its next connection; `app`: what answers instead of the API."""

    listener: socket.socket
    tls: Callable[[], ssl.SSLContext] | None = None
    app: Any = None


class EntranceServer(uvicorn.Server):  # type: ignore[misc]  # the type checker skips uvicorn
    """Uvicorn, but it accepts within limits, drains before it stops listening, and sleeps while nothing happens:
    uvicorn's own loop wakes ten times a second to check a flag and the date."""

    def __init__(
        self,
        app: Any,
        entrances: Sequence[Entrance],
        drain: Callable[[], None] = lambda: None,
        proxies: TrustedProxies | None = None,
    ) -> None:
        super().__init__(_config(app))
        self._drain, self._entrances, self._proxies = drain, entrances, proxies or TrustedProxies()

    async def serve(self, sockets: Sequence[socket.socket] | None = None) -> None:
        self._loop, self._leaving = asyncio.get_running_loop(), asyncio.Event()  # before a signal can come
        await super().serve(sockets)

    async def startup(self, sockets: Sequence[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        most = most_connections(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        seats = Seats(most - doors_share(most))
        self.servers = [self._acceptor(each, seats) for each in self._entrances]

    def _acceptor(self, entrance: Entrance, seats: Seats) -> Acceptor:
        config = self.config
        if entrance.app is not None:
            config = _config(entrance.app)
            config.load()
        connection = partial(self._connection, config, seats)
        return Acceptor(entrance.listener, seats, connection, tls=entrance.tls, proxies=self._proxies)

    def _connection(self, config: uvicorn.Config, seats: Seats) -> HttpConnection:
        connection = HttpConnection(config=config, server_state=self.server_state, app_state=self.lifespan.state)
        connection.seats, connection.proxies = seats, self._proxies
        return connection

    async def main_loop(self) -> None:
        await self._leaving.wait()

    def leave(self) -> None:
        """Stop serving without a signal. May be called from any thread but the event loop's."""
        self._drain()
        self.should_exit = True
        self._loop.call_soon_threadsafe(self._leaving.set)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        threading.Thread(target=self._leave, args=(sig, frame), daemon=True).start()

    def _leave(self, sig: int, frame: FrameType | None) -> None:
        self._drain()
        super().handle_exit(sig, frame)
        self._loop.call_soon_threadsafe(self._leaving.set)


class WebServer(EntranceServer):
    """The control plane's."""

    def __init__(
        self,
        root: EmbeddedRoot,
        entrances: Sequence[Entrance],
        *,
        ready: Callable[[], None],
        drain: Callable[[], None],
        requests: RequestLog | None = None,
        proxies: TrustedProxies | None = None,
    ) -> None:
        users = Lane(
            ThreadPoolExecutor(API_THREADS, thread_name_prefix="api"),
            API_THREADS,
            body=root.plane.limits.body,
            memory=API_MEMORY,
        )
        agents = Lane(
            ThreadPoolExecutor(AGENT_THREADS, thread_name_prefix="agents"),
            AGENT_THREADS,
            body=MESSAGE_BYTES,
            memory=AGENT_MEMORY,
        )
        serve, refusal = partial(_respond, root), partial(dispatch.refusal, root.plane)
        bridge = AsgiBridge(
            serve,
            refusal,
            users,
            agents,
            root.polls,
            has_news=has_news,
            install_id=root.install_id,
            on_ready=ready,
            streams=root.streams,
            door=root.door,
            probes=Probes(root.checks(), epoch=None if root.tenure is None else root.tenure.epoch.number),
            requests=requests,
        )
        super().__init__(bridge, entrances, drain, proxies)


def _respond(root: EmbeddedRoot, head: RequestHead) -> Reply:
    """The response; of a server that doesn't decide any more, that it doesn't. An order that was made while it did may
    be late."""
    tenure = root.tenure
    if tenure is None:
        return dispatch.respond(root.plane, head)
    if tenure.decides:
        reply = dispatch.respond(root.plane, head)
        if tenure.decides:
            return reply
    return dispatch.failure(Fenced(tenure.why(), hint=HINT), head.request.path, head.request.path)


def _config(app: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,  # its loggers write where all do
        log_level="error",  # clients get their errors in the response; logging each would fill the disk
        access_log=False,
        lifespan="on",
        http=HttpConnection,
        proxy_headers=False,  # uvicorn would believe them of any client: see `trusted_proxies`
        ws="none",
        server_header=False,
        date_header=False,
        timeout_keep_alive=90,
        timeout_graceful_shutdown=5,
    )
