"""A probe of a replica: a periodic request that succeeds if the replica is well.

Rule 1. Success is a status of 2xx within `timeout`; redirects aren't followed.
Rule 2. `interval` is the time from the end of one request to the start of the next.
Rule 3. The report is the number of consecutive successes, at most `ready_after`, so that a ready replica causes no
        further reports.
Rule 4. A probe with `until_ready` ends when the replica is ready.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Awaitable, Callable, Optional

from . import http_request

if TYPE_CHECKING:
    from ...contract.agent import TaskProbe

INTERVAL, TIMEOUT = 15.0, 10.0
LONGEST = 300.0  # seconds that a request may take

Send = Callable[[bytes], Awaitable[int]]  # a request → the status. Raises OSError or ValueError
Pause = Callable[[float], Awaitable[None]]


class Probe:
    def __init__(self, spec: TaskProbe, send: Send, changed: Callable[[], None], pause: Pause = asyncio.sleep):
        headers = [(str(each["name"]), str(each["value"])) for each in spec.get("headers") or ()]
        self._request = http_request.request(
            spec.get("method") or "get", spec.get("url") or "/", headers, spec.get("body")
        )
        self._timeout = min(LONGEST, float(spec.get("timeout") or TIMEOUT))
        self._interval = float(spec.get("interval") or INTERVAL)
        self._enough = int(spec.get("ready_after") or 1)
        self._until_ready = bool(spec.get("until_ready"))
        self._send, self._changed, self._pause = send, changed, pause
        self.streak: Optional[int] = None  # None before the first response

    async def run(self) -> None:
        while True:
            before = self.streak
            self.streak = min(self._enough, (before or 0) + 1) if await self._succeeds() else 0
            if self.streak != before:
                self._changed()
            if self._until_ready and self.streak >= self._enough:
                return
            await self._pause(self._interval)

    async def _succeeds(self) -> bool:
        try:
            status = await asyncio.wait_for(self._send(self._request), self._timeout)
        except (OSError, ValueError, asyncio.TimeoutError):
            return False
        return 200 <= status < 300
