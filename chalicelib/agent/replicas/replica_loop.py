"""One thread for all replicas of a machine: an event loop that waits for their responses. A few more threads are for
calls that may block for a moment, to enter a container's network and to connect.

A replica's port is checked until something listens there. Then the probes begin: earlier ones could only fail, and the
next might be a long time away.
"""

from __future__ import annotations

import asyncio
import functools
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Awaitable, Callable, Dict, List, Optional, Tuple
from urllib.parse import urlsplit

from . import grpc_info, http_request
from .model_queue import Gauge, waiting
from .probes import Probe
from .router import RECONCILE_EVERY, Router
from .watched_replica import WatchedReplica

LISTENS_EVERY = 1.0
QUEUE_EVERY, QUEUE_SECONDS, QUEUE_BYTES = 5.0, 4.0, 8 << 20
ROUTER, ROUTER_SECONDS, GRPC_SECONDS = "http://router", 10.0, 30.0
CLEARING_EVERY = 1.0  # seconds between checks of a router that still has removed workers
THREADS = 8


class ReplicaLoop:
    """The loop. `begin`, `end` and `close` are for other threads."""

    def __init__(self, changed: Callable[[str], None], log: Callable[[str], None]) -> None:
        self._changed, self._log = changed, log
        self._followers: "Dict[str, asyncio.Task[None]]" = {}
        self._threads = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="replicas")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="replicas", daemon=True)
        self._thread.start()

    def begin(self, replica: WatchedReplica) -> None:
        self._loop.call_soon_threadsafe(self._begin, replica)

    def end(self, task: str) -> None:
        self._loop.call_soon_threadsafe(self._end, task)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        self._loop.run_forever()
        remaining = asyncio.all_tasks(self._loop)
        for each in remaining:
            each.cancel()
        if remaining:
            self._loop.run_until_complete(asyncio.wait(remaining))
        self._threads.shutdown(wait=False)
        self._loop.close()

    def _begin(self, replica: WatchedReplica) -> None:
        follower = self._loop.create_task(self._follow(replica))
        follower.add_done_callback(self._log_failure)
        self._followers[replica.task] = follower

    def _end(self, task: str) -> None:
        follower = self._followers.pop(task, None)
        if follower is not None:
            follower.cancel()

    def _log_failure(self, follower: "asyncio.Task[None]") -> None:
        if not follower.cancelled() and follower.exception() is not None:
            self._log("following a replica failed: %r" % follower.exception())

    async def _follow(self, replica: WatchedReplica) -> None:
        while not await self._listens(replica):
            await asyncio.sleep(LISTENS_EVERY)
        replica.address = await self._direct_address(replica)
        replica.listens = True
        self._changed(replica.task)
        send = functools.partial(self._status, replica)
        probes: List[Probe] = []
        probes += [
            Probe(each, send, lambda: self._probed(replica, probes)) for each in replica.spec.get("probes") or ()
        ]
        work: List[Awaitable[None]] = [probe.run() for probe in probes]
        if replica.spec.get("queue"):
            work.append(self._count(replica))
        if replica.workers is not None:
            work.append(self._route(replica))
        await asyncio.gather(*work)

    async def _listens(self, replica: WatchedReplica) -> bool:
        try:
            (await self._connect(replica)).close()
        except OSError:
            return False
        return True

    async def _direct_address(self, replica: WatchedReplica) -> str:
        try:
            return await self._loop.run_in_executor(self._threads, replica.port.direct_address)
        except OSError:  # the engine doesn't answer; streams are used instead
            return ""

    def _probed(self, replica: WatchedReplica, probes: List[Probe]) -> None:
        replica.streaks = [probe.streak or 0 for probe in probes]
        self._changed(replica.task)

    async def _status(self, replica: WatchedReplica, request: bytes) -> int:
        return await http_request.status_of(await self._connect(replica), request)

    async def _connect(self, replica: WatchedReplica) -> socket.socket:
        connecting = self._loop.run_in_executor(self._threads, replica.port.connect)
        try:
            sock = await asyncio.shield(connecting)
        except asyncio.CancelledError:
            connecting.add_done_callback(_close_late)
            raise
        sock.setblocking(False)
        return sock

    async def _route(self, replica: WatchedReplica) -> None:
        """Keep the workers of a router up to date, periodically because the router may lose them."""

        async def call(method: str, url: str, body: Optional[Dict[str, Any]], most: int) -> Tuple[int, bytes]:
            parts = urlsplit(url)
            if url.startswith(ROUTER):
                sock = await self._connect(replica)
            else:
                sock = await self._loop.run_in_executor(self._threads, _connect_to, url)
            text = None if body is None else json.dumps(body)
            headers = [("Content-Type", "application/json"), ("Host", parts.netloc)]
            request = http_request.request(method, parts.path, headers, text)
            return await asyncio.wait_for(http_request.fetch(sock, request, most), ROUTER_SECONDS)

        async def grpc(url: str, name: str, most: int) -> Optional[bytes]:
            sock = await self._loop.run_in_executor(self._threads, _connect_to, url)
            return await asyncio.wait_for(grpc_info.call(sock, name, most), GRPC_SECONDS)

        router = Router(ROUTER, call, grpc, self._log)
        while True:
            workers = replica.workers
            if workers:  # nothing is changed before the control plane has sent a list
                await router.reconcile(replica.urls)
            if workers and router.clear and replica.cleared != workers:
                replica.cleared = workers
                self._changed(replica.task)
            await asyncio.sleep(RECONCILE_EVERY if replica.cleared == replica.workers else CLEARING_EVERY)

    async def _count(self, replica: WatchedReplica) -> None:
        """Report the number of requests that wait in a replica's model server."""
        request, gauge = http_request.request("get", "/metrics"), Gauge()
        while True:
            try:
                found = await asyncio.wait_for(self._metrics(replica, request), QUEUE_SECONDS)
            except (OSError, ValueError, asyncio.TimeoutError):
                found = None
            if gauge.update(found, self._loop.time()):
                replica.queue = gauge.reported
                self._changed(replica.task)
            await asyncio.sleep(QUEUE_EVERY)

    async def _metrics(self, replica: WatchedReplica, request: bytes) -> Optional[int]:
        status, body = await http_request.fetch(await self._connect(replica), request, QUEUE_BYTES)
        return waiting(body) if status == 200 else None


def _connect_to(url: str) -> socket.socket:
    """A connection to another replica. Raises OSError, or ValueError for a malformed address."""
    parts = urlsplit(url)
    if not parts.hostname or not parts.port:
        raise ValueError("%r names no host and port" % url)
    sock = socket.create_connection((parts.hostname, parts.port), ROUTER_SECONDS)
    sock.setblocking(False)
    return sock


def _close_late(connecting: "asyncio.Future[socket.socket]") -> None:
    """Close a connection that was made after its request was cancelled."""
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result().close()
