"""Work on threads: as many as there is work for, up to a limit."""

from __future__ import annotations

import threading

from chalicelib.agent.kernel.slow_work import SlowWork
from tests.harness.server import PATIENCE


def test_each_is_done_and_no_more_at_once_than_there_may_be() -> None:
    work, gate, done = SlowWork(3), threading.Semaphore(0), threading.Semaphore(0)
    numbers = list[int]()

    def one(number: int) -> None:
        assert gate.acquire(timeout=PATIENCE)
        numbers.append(number)
        done.release()

    before = set(threading.enumerate())
    for number in range(8):
        work.submit(one, number)
    assert len(set(threading.enumerate()) - before) == 3
    for _ in range(8):
        gate.release()
    for _ in range(8):
        assert done.acquire(timeout=PATIENCE)
    assert sorted(numbers) == list(range(8))
