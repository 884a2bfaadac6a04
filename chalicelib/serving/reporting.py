"""When a door reports what it has seen of its services: every ten seconds while it is busy, and soon when it is urgent.

All of it is used on the event loop; the report itself is made on a thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable

from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.services import BUCKET, Traffic
from chalicelib.serving.ports import Report
from chalicelib.serving.traffic_counts import Counts

log = logging.getLogger(__name__)

SOON = 0.05  # seconds after which something urgent is reported: what happens meanwhile goes with it
AGAIN = 1.0  # seconds between two such reports


class TrafficReporter:
    """`under_way`: requests by job, as they are at the moment."""

    def __init__(
        self,
        report: Report,
        counts: Counts,
        under_way: Counter[str],
        now: Callable[[], Micros],
        in_background: Callable[[Callable[[], None]], Awaitable[None]],
    ) -> None:
        self._report, self._counts, self._under_way = report, counts, under_way
        self._now, self._in_background = now, in_background
        self._tick: asyncio.TimerHandle | None = None
        self._soon: asyncio.TimerHandle | None = None
        self._urgent_at = float("-inf")  # when something urgent was last reported
        self._reporting: asyncio.Task[None] | None = None

    def hurry(self) -> None:
        """Report what is urgent, if anything is, soon. Called whenever something may have become so, and after each
        report: what became so meanwhile mustn't wait for the next one."""
        if self._soon is None and self._counts.urgent:
            loop = asyncio.get_running_loop()
            pause = max(SOON, self._urgent_at + AGAIN - loop.time())
            self._soon = loop.call_later(pause, self._report_urgent)

    def busy(self) -> None:
        """While there are requests there is a report every ten seconds."""
        if self._tick is None:
            self._tick = asyncio.get_running_loop().call_later(BUCKET / SECOND, self._report_all)

    def pending(self, *, urgent: bool = False) -> list[Traffic]:
        """What there is to report, which counts as reported."""
        return self._counts.report(self._under_way, self._now(), urgent=urgent)

    async def finish(self) -> None:
        """A last report; none comes after it."""
        for timer in (self._tick, self._soon):
            if timer is not None:
                timer.cancel()
        if self._reporting is not None:
            await self._reporting
        await self._send(urgent=False)

    def _report_urgent(self) -> None:
        self._soon, self._urgent_at = None, asyncio.get_running_loop().time()
        self._start(urgent=True)

    def _report_all(self) -> None:
        self._tick = None
        self._start(urgent=False)
        if len(self._counts):
            self.busy()

    def _start(self, *, urgent: bool) -> None:
        if self._reporting is not None and not self._reporting.done():
            self.busy()  # the store is slow: the next report has everything
            return
        self._reporting = asyncio.ensure_future(self._send(urgent=urgent))

    async def _send(self, *, urgent: bool) -> None:
        traffic = self.pending(urgent=urgent)
        if traffic:
            try:
                await self._in_background(lambda: self._report(traffic))
            except Exception:
                log.exception("reporting the traffic of %d services failed; the next report includes it", len(traffic))
        self.hurry()
