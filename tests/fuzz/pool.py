"""Batches on every core, each process weighed after each."""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from tests.fuzz.play import Find, Tally, batches, play

GROWTH = 200 << 20  # bytes by which no batch may leave the process larger than the first one did


def every(seed: int, calls: int, jobs: int, until: float) -> Iterator[Tally]:
    """Each batch's tally, as they end; a find more for a batch that leaves its process larger than allowed."""
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting = [pool.submit(weighed, seed, numbers, until) for numbers in batches(calls)]
        for done in as_completed(waiting):
            yield done.result()


_first: list[int] = []  # bytes this process had after its first batch


def weighed(seed: int, numbers: range, until: float) -> Tally:
    if time.monotonic() > until:
        return Tally()
    tally = play(seed, numbers)
    now = resident()
    _first.extend([] if _first else [now])
    tally.growth = now - _first[0]
    if tally.growth > GROWTH:
        tally.finds.append(Find(numbers[0], f"the process has grown by {tally.growth >> 20} MiB"))
    return tally


def resident() -> int:
    """Bytes of memory this process has now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
