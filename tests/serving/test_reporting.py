"""When a door reports, on an event loop whose time is virtual."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

from chalicelib.domain.instants import SECOND
from chalicelib.domain.services import BUCKET, Traffic
from chalicelib.serving.reporting import AGAIN, SOON, TrafficReporter
from chalicelib.serving.traffic_counts import Counts
from tests.runtime.test_streams import Clock


def test_who_begins_to_wait_during_a_report_is_told_of_right_after_it() -> None:
    loop, counts, told = Clock(), Counts("server"), dict[str, float]()
    over = asyncio.Event()

    def now() -> int:
        return int(loop.time() * SECOND)

    def report(traffic: Sequence[Traffic]) -> None:
        for each in traffic:
            told.setdefault(each.run_id, loop.time())

    async def slow_store(work: Callable[[], None]) -> None:
        await over.wait()
        work()

    async def story() -> None:
        reporter = TrafficReporter(report, counts, Counter(), now, slow_store)

        def begins_to_wait(run_id: str) -> None:
            counts.begins(run_id, now())
            counts.hold(run_id, now())
            reporter.hurry()

        begins_to_wait("one")
        await asyncio.sleep(SOON + 0.1)
        begins_to_wait("two")
        await asyncio.sleep(1.5 * AGAIN)  # it would be told by now
        assert not told
        over.set()
        await asyncio.sleep(AGAIN)
        assert set(told) == {"one", "two"}
        assert told["two"] < BUCKET / SECOND, "it didn't wait for the next report of everything"

    try:
        loop.run_until_complete(story())
    finally:
        loop.close()
