"""Finding the replica for a request, and waiting for one while none is ready."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection

from chalicelib.domain.instants import Micros
from chalicelib.domain.serving import Served, ServedReplica
from chalicelib.serving import headers as heads
from chalicelib.serving import problems
from chalicelib.serving.balancer import Balancer
from chalicelib.serving.directory import Directory, Name
from chalicelib.serving.exchange import Exchange
from chalicelib.serving.traffic_counts import Counts

HOLD = 30.0  # seconds that a request waits for a replica
MOST_HELD, MOST_HELD_BYTES = 1000, 64 * 2**20  # of one service
BUFFERED = 65536  # bytes of a request's body that are buffered while it waits, at most


class ReplicaFinder:
    """Used on the event loop. `hold`: seconds that a request may wait; `hurry` is called when one begins to wait."""

    def __init__(
        self,
        directory: Directory,
        balancer: Balancer,
        counts: Counts,
        now: Callable[[], Micros],
        hurry: Callable[[], None],
        hold: float,
    ) -> None:
        self._directory, self._balancer, self._counts = directory, balancer, counts
        self._now, self._hurry, self._hold = now, hurry, hold
        self._held_bytes: dict[str, int] = {}  # by run
        self._closing = False

    def close(self) -> None:
        """End all waits: the server is stopping."""
        self._closing = True
        self._directory.wake_all()

    async def find(self, run_id: str, name: Name, exchange: Exchange, tried: Collection[str]) -> ServedReplica:
        """The replica to try next. Waits for one if none is ready. `tried`: the jobs of those that were tried."""
        known = self._directory.peek(name) or await self._directory.find(name)
        if known is None or known.run_id != run_id:
            raise problems.unknown(*name)
        found = self._choose(known, exchange, tried)
        return found or await self._wait(run_id, name, exchange, tried)

    def _choose(self, service: Served, exchange: Exchange, tried: Collection[str]) -> ServedReplica | None:
        return self._balancer.choose(service, time.monotonic(), tried, exchange.only)

    async def _wait(self, run_id: str, name: Name, exchange: Exchange, tried: Collection[str]) -> ServedReplica:
        size = self._admit(run_id, exchange)
        self._counts.hold(run_id, self._now())
        self._hurry()
        try:
            async with asyncio.timeout(self._hold):
                return await self._next_ready(run_id, name, exchange, tried)
        except TimeoutError:
            raise problems.no_replica(f"the request waited {self._hold:g} s for one") from None
        finally:
            self._counts.resume(run_id, self._now())
            self._held_bytes[run_id] -= size
            if not self._held_bytes[run_id]:
                del self._held_bytes[run_id]

    def _admit(self, run_id: str, exchange: Exchange) -> int:
        """Let a request wait, and return the bytes that it holds meanwhile. Raises HttpProblem if too many wait."""
        body = BUFFERED if exchange.announced is None else min(exchange.announced, BUFFERED)
        size = heads.size(exchange.headers) + body + exchange.read
        held = self._held_bytes.get(run_id, 0)
        if self._counts.held(run_id) >= MOST_HELD or held + size > MOST_HELD_BYTES:
            raise problems.no_replica("too many requests wait for one already")
        self._held_bytes[run_id] = held + size
        return size

    async def _next_ready(self, run_id: str, name: Name, exchange: Exchange, tried: Collection[str]) -> ServedReplica:
        while not self._closing:
            change = self._directory.change_of(run_id)
            known = await self._directory.find(name)
            if known is None or known.run_id != run_id:
                raise problems.unknown(*name)
            if found := self._choose(known, exchange, tried):
                return found
            if known.off:
                raise problems.off()
            await change.wait()
        raise problems.stopping()
