"""Shares the server fairly among callers: its threads by turns, and its memory for bodies and responses by the byte.

Users and agents have a lane each, so that slow listings never delay an agent. Within a lane no caller gets more than
half of the threads and of the memory, and callers that wait for a thread take turns.

Everything here runs on the event loop.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from contextvars import copy_context
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 10.0  # seconds that a request waits for memory
MOST_WAITING = 256  # calls of one caller that wait for a thread


class Busy(Exception):
    """No thread or no memory is free for this request. It may succeed in a moment."""


class Turns:
    """Runs calls on a few threads: each caller's in order of arrival, and the callers in turn."""

    def __init__(self, threads: Executor, places: int) -> None:
        self._threads, self._places, self._each = threads, places, max(1, places // 2)
        self._running: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()  # in the order of their turns

    async def run(self, caller: str, work: Callable[[], T]) -> T:
        """Run `work` on a thread, and return its result. Raises Busy if the caller has too many waiting calls."""
        await self._turn(caller)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, copy_context().run, work)
        finally:
            self._end(caller)

    async def _turn(self, caller: str) -> None:
        if not self._waiting and self._free(caller):
            self._running[caller] += 1
            return
        queue = self._waiting.setdefault(caller, deque())
        if len(queue) >= MOST_WAITING:
            raise Busy
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(turn)
        self._next()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # the slot came, but its caller is gone
                self._end(caller)
            raise

    def _free(self, caller: str) -> bool:
        return self._running.total() < self._places and self._running[caller] < self._each

    def _end(self, caller: str) -> None:
        self._running[caller] -= 1
        if not self._running[caller]:
            del self._running[caller]
        self._next()

    def _next(self) -> None:
        """Give free threads to waiting calls."""
        while self._running.total() < self._places:
            caller = next((one for one in self._waiting if self._free(one)), None)
            if caller is None:
                return
            queue = self._waiting.pop(caller)
            turn = queue.popleft()
            if queue:
                self._waiting[caller] = queue  # behind the others
            if not turn.done():  # its request may have been cancelled
                self._running[caller] += 1
                turn.set_result(None)


class Memory:
    """Bytes that requests may hold; one caller gets at most half of them."""

    def __init__(self, most: int, *, patience: float = PATIENCE) -> None:
        self._most, self._each, self._patience = most, most // 2, patience
        self._held: Counter[str] = Counter()
        self._freed = asyncio.Event()

    @asynccontextmanager
    async def held(self, caller: str, size: int) -> AsyncIterator[None]:
        """Reserve `size` bytes, once they are free. Raises Busy if that takes too long."""
        if not size:
            yield
            return
        loop = asyncio.get_running_loop()
        end, size = loop.time() + self._patience, min(size, self._each)
        while not self._take(caller, size):
            freed = self._freed
            try:
                async with asyncio.timeout_at(end):
                    await freed.wait()
            except TimeoutError:
                raise Busy from None
        try:
            yield
        finally:
            self._give(caller, size)

    @asynccontextmanager
    async def held_now(self, caller: str, size: int) -> AsyncIterator[None]:
        """The same without waiting, for bytes that exist already."""
        if not size:
            yield
            return
        size = min(size, self._each)
        if not self._take(caller, size):
            raise Busy
        try:
            yield
        finally:
            self._give(caller, size)

    def _take(self, caller: str, size: int) -> bool:
        fits = self._held.total() + size <= self._most and self._held[caller] + size <= self._each
        if fits:
            self._held[caller] += size
        return fits

    def _give(self, caller: str, size: int) -> None:
        self._held[caller] -= size
        if not self._held[caller]:
            del self._held[caller]
        self._freed.set()
        self._freed = asyncio.Event()


class Lane:
    """The threads and the memory of one kind of callers. `body`: the largest body, in bytes."""

    def __init__(self, threads: Executor, places: int, *, body: int, memory: int, patience: float = PATIENCE) -> None:
        self.turns, self.memory, self.body = Turns(threads, places), Memory(memory, patience=patience), body
