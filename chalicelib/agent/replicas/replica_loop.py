"""One thread for all replicas of a machine: an event loop that waits for their responses, however many there are.
What may block for a moment - to enter a container's network, to connect - has a few threads more.

Once something listens on a replica's port, the port isn't checked any more and the probes begin: earlier ones could
only fail, and the next might be a long time coming.
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
from .router import EVERY, Router
from .watched_replica import WatchedReplica

LISTENS_EVERY = 1.0
QUEUE_EVERY, QUEUE_SECONDS, QUEUE_BYTES = 5.0, 4.0, 8 << 20
ROUTER, ROUTER_SECONDS, GRPC_SECONDS = "http://router", 10.0, 30.0
SOON = 1.0  # seconds until a router is asked again that still has a worker which should go
THREADS = 8


class ReplicaLoop:
    """`begin`, `end` and `close` are called from another thread."""

    def __init__(self, changed: Callable[[str], None], log: Callable[[str], None]) -> None:
        self._changed, self._log = changed, log
        self._following: "Dict[str, asyncio.Task[None]]" = {}
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
        rest = asyncio.all_tasks(self._loop)
        for each in rest:
            each.cancel()
        if rest:
            self._loop.run_until_complete(asyncio.wait(rest))
        self._threads.shutdown(wait=False)
        self._loop.close()

    def _begin(self, replica: WatchedReplica) -> None:
        following = self._loop.create_task(self._follow(replica))
        following.add_done_callback(self._over)
        self._following[replica.task] = following

    def _end(self, task: str) -> None:
        following = self._following.pop(task, None)
        if following is not None:
            following.cancel()

    def _over(self, following: "asyncio.Task[None]") -> None:
        if not following.cancelled() and following.exception() is not None:
            self._log("looking after a replica failed: %r" % following.exception())

    async def _follow(self, replica: WatchedReplica) -> None:
        while not await self._listens(replica):
            await asyncio.sleep(LISTENS_EVERY)
        replica.address = await self._straight(replica)
        replica.listens = True
        self._changed(replica.task)
        ask = functools.partial(self._status, replica)
        probes: List[Probe] = []
        probes += [
            Probe(each, ask, lambda: self._counted(replica, probes)) for each in replica.spec.get("probes") or ()
        ]
        work: List[Awaitable[None]] = [probe.run() for probe in probes]
        if replica.spec.get("queue"):
            work.append(self._count(replica))
        if replica.workers is not None:
            work.append(self._route(replica))
        await asyncio.gather(*work)

    async def _listens(self, replica: WatchedReplica) -> bool:
        try:
            (await self._connected(replica)).close()
        except OSError:
            return False
        return True

    async def _straight(self, replica: WatchedReplica) -> str:
        try:
            return await self._loop.run_in_executor(self._threads, replica.port.direct_address)
        except OSError:  # the engine doesn't tell: there is another way
            return ""

    def _counted(self, replica: WatchedReplica, probes: List[Probe]) -> None:
        replica.streaks = [probe.streak or 0 for probe in probes]
        self._changed(replica.task)

    async def _status(self, replica: WatchedReplica, request: bytes) -> int:
        return await http_request.status_of(await self._connected(replica), request)

    async def _connected(self, replica: WatchedReplica) -> socket.socket:
        connecting = self._loop.run_in_executor(self._threads, replica.port.connect)
        try:
            made = await asyncio.shield(connecting)
        except asyncio.CancelledError:
            connecting.add_done_callback(_unwanted)
            raise
        made.setblocking(False)
        return made

    async def _route(self, replica: WatchedReplica) -> None:
        """What routes to the service's other replicas is told which there are, again and again: it may forget."""

        async def call(method: str, url: str, body: Optional[Dict[str, Any]], most: int) -> Tuple[int, bytes]:
            parts = urlsplit(url)
            if url.startswith(ROUTER):
                sock = await self._connected(replica)
            else:
                sock = await self._loop.run_in_executor(self._threads, _reached, url)
            text = None if body is None else json.dumps(body)
            headers = [("Content-Type", "application/json"), ("Host", parts.netloc)]
            asked = http_request.request(method, parts.path, headers, text)
            return await asyncio.wait_for(http_request.answer(sock, asked, most), ROUTER_SECONDS)

        async def grpc(url: str, name: str, most: int) -> Optional[bytes]:
            sock = await self._loop.run_in_executor(self._threads, _reached, url)
            return await asyncio.wait_for(grpc_info.call(sock, name, most), GRPC_SECONDS)

        router = Router(ROUTER, call, grpc, self._log)
        while True:
            workers = replica.workers
            if workers:  # before the control plane has said which, none is touched
                await router.reconcile(replica.urls)
            if workers and router.clear and replica.cleared != workers:
                replica.cleared = workers
                self._changed(replica.task)
            await asyncio.sleep(EVERY if replica.cleared == replica.workers else SOON)

    async def _count(self, replica: WatchedReplica) -> None:
        """What waits in its model server, as that says."""
        request, gauge = http_request.request("get", "/metrics"), Gauge()
        while True:
            try:
                found = await asyncio.wait_for(self._metrics(replica, request), QUEUE_SECONDS)
            except (OSError, ValueError, asyncio.TimeoutError):
                found = None
            if gauge.take(found, self._loop.time()):
                replica.queue = gauge.reported
                self._changed(replica.task)
            await asyncio.sleep(QUEUE_EVERY)

    async def _metrics(self, replica: WatchedReplica, request: bytes) -> Optional[int]:
        status, body = await http_request.answer(await self._connected(replica), request, QUEUE_BYTES)
        return waiting(body) if status == 200 else None


def _reached(url: str) -> socket.socket:
    """A connection to another replica. Raises OSError, or ValueError if the address is none."""
    parts = urlsplit(url)
    if not parts.hostname or not parts.port:
        raise ValueError("%r names no host and port" % url)
    made = socket.create_connection((parts.hostname, parts.port), ROUTER_SECONDS)
    made.setblocking(False)
    return made


def _unwanted(connecting: "asyncio.Future[socket.socket]") -> None:
    """A connection that came after whoever wanted it had left."""
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result().close()
