"""When a door reports the traffic of its services: every ten seconds while it is busy, and soon if something is urgent.

Everything here is used on the event loop; the report itself is made on a thread.
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

SOON = 0.05  # seconds until an urgent report, which includes everything that happens meanwhile
AGAIN = 1.0  # seconds between two urgent reports


class TrafficReporter:
    """Sends the reports. `under_way`: the current number of requests by job."""

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
        """Report soon if something is urgent. Called whenever something may have become urgent, and after each report
        for what became urgent meanwhile."""
        if self._soon is None and self._counts.urgent:
            loop = asyncio.get_running_loop()
            pause = max(SOON, self._urgent_at + AGAIN - loop.time())
            self._soon = loop.call_later(pause, self._report_urgent)

    def busy(self) -> None:
        """Schedule a report, because there are requests."""
        if self._tick is None:
            self._tick = asyncio.get_running_loop().call_later(BUCKET / SECOND, self._report_all)

    def pending(self, *, urgent: bool = False) -> list[Traffic]:
        """The traffic to report. It counts as reported from now on."""
        return self._counts.report(self._under_way, self._now(), urgent=urgent)

    async def finish(self) -> None:
        """Send a last report."""
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
