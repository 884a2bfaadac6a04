"""The health check of the embedded server, answered without a thread: it must not wait behind the server's work.

A server is healthy if it can read its store. The store is read in the background, at most every few seconds, and a
check gets the result of the last reading.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import orjson

from chalicelib.api.dispatch import Reply, RequestHead
from chalicelib.api.wire.server import health_json
from chalicelib.runtime.lanes import Busy

PATH = "/healthcheck"
FRESH = 5.0  # seconds for which a reading is valid
STUCK = 30.0  # seconds after which a reading without a result means that the store is failing
_HEADERS = {"content-type": "application/json"}


class HealthEndpoint:
    def __init__(self, check: Callable[[RequestHead], Awaitable[Reply]], install_id: str) -> None:
        self._check = check
        self._last = Reply(200, _HEADERS, orjson.dumps(health_json(install_id)))
        self._read_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None

    def reply(self, head: RequestHead) -> Reply:
        """The response for now. Starts a new reading if the last one is too old."""
        loop = asyncio.get_running_loop()
        age = loop.time() - self._read_at
        if self._reading is None or self._reading.done():
            if age > FRESH:
                self._read_at = loop.time()
                self._reading = loop.create_task(self._read(head))
        elif age > STUCK:
            text = f"The store hasn't answered for {age:.0f} s."
            return Reply(500, _HEADERS, orjson.dumps({"detail": [{"msg": text, "code": "error"}]}))
        return self._last

    async def _read(self, head: RequestHead) -> None:
        try:
            self._last = await self._check(head)
        except Busy:
            return  # a later reading will show it
