"""What each process does when many histories are played: its share of the seeds, or the hunt for one planted bug."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the product is imported once its lines are counted
    from coverage import Coverage

    from tests.simulation.planted import Found
    from tests.simulation.stories import Story

ROOT = Path(__file__).parents[2]
COVERED: tuple[str, ...] = ("chalicelib/engine", "chalicelib/planning")
COVERED += tuple(f"chalicelib/store/{name}.py" for name in ("port", "memory", "nouns", "keys"))
COVERED += ("chalicelib/agent/program/session.py",)
# Histories are about decisions and effects. Not about what is refused before there is a run, nor about how offers are
# listed, and no right one reaches what the rules say of a wrong plan.
BESIDE = (
    "chalicelib/planning/*/field_support.py",
    "chalicelib/planning/*/*invariants.py",
    "chalicelib/planning/matching/gpu_groups.py",
)
IMPOSSIBLE = r"raise Bug\("


def counter() -> Coverage:
    import coverage

    files = [str(ROOT / path / "*") if (ROOT / path).is_dir() else str(ROOT / path) for path in COVERED]
    lines = coverage.Coverage(include=files, omit=[str(ROOT / path) for path in BESIDE], data_file=None)
    lines.exclude(IMPOSSIBLE)
    return lines


def quiet() -> None:
    logging.disable(logging.CRITICAL)  # every fault is logged, as it should be, but thousands of them say nothing


@dataclass
class Played:
    """What came of one process's share of the histories."""

    bad: list[int] = field(default_factory=list)
    met: dict[int, set[str]] = field(default_factory=dict)  # what happened in the others, by seed
    happened: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    lines: list[bytes] = field(default_factory=list)  # of the product that were reached, as coverage data

    def add(self, other: Played) -> None:
        self.bad += other.bad
        self.met |= other.met
        self.happened += other.happened
        self.ends += other.ends
        self.lines += other.lines


@contextlib.contextmanager
def counted(wanted: bool) -> Iterator[list[bytes]]:
    """The lines that were reached, as coverage data. The first in a process starts before the product is imported."""
    reached: list[bytes] = []
    if not wanted:
        yield reached
        return
    lines = counter()
    lines.start()
    try:
        yield reached
    finally:
        lines.stop()
    reached.append(lines.get_data().dumps())


def stories(gangs: bool) -> Sequence[type[Story]]:
    from tests.simulation.container_gangs import CONTAINER_GANGS
    from tests.simulation.stories import STORIES

    return CONTAINER_GANGS if gangs else STORIES


def play_counted(seeds: Sequence[int], until: float | None, coverage: bool, gangs: bool) -> Played:
    """One process's share, until this time."""
    with counted(coverage) as reached:
        played = play_some(seeds, until, gangs)
    played.lines += reached
    return played


def play_some(seeds: Sequence[int], until: float | None, gangs: bool) -> Played:
    """Prints each failing seed when it is found."""
    from tests.simulation.history import play
    from tests.simulation.world import Violation

    played = Played()
    for seed in seeds:
        if until is not None and time.time() >= until:
            break
        try:
            result = play(seed, stories=stories(gangs))
        except Violation as violation:
            played.bad.append(seed)
            again = f"--seed {seed}{' --gangs' if gangs else ''}"
            print(f"seed {seed}: {violation}\nrepro: python -m tests.simulation {again}", flush=True)
            continue
        played.happened.update(result.happened)
        played.ends.update(result.runs)
        played.met[seed] = set(result.happened)
    return played


def find(name: str, coverage: bool) -> tuple[Found, list[bytes]]:
    with counted(coverage) as reached:
        from tests.simulation.planted import PLANTED, hunt

        found = hunt(PLANTED[name])
    return found, reached
