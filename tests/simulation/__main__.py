"""`python -m tests.simulation --seeds N [--seed K] [--planted] [--coverage]`: play histories and say which go wrong.

Prints one line a failing seed, `repro: python -m tests.simulation --seed K`, and ends with status 1. With one seed it
tells the whole history, as the events of the plane's own log have it.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
COVERED = ("chalicelib/engine", "chalicelib/planning")
COVERED += tuple(f"chalicelib/store/{name}.py" for name in ("port", "memory", "nouns", "keys"))
COVERED += ("chalicelib/agent/session.py",)
ENOUGH = 90.0  # percent of those lines


@contextlib.contextmanager
def covered(wanted: bool) -> Iterator[list[bool]]:
    """Counts lines from here on, so it must begin before the product is imported."""
    verdict = [True]
    if not wanted:
        yield verdict
        return
    import coverage

    files = [str(ROOT / path / "*") if (ROOT / path).is_dir() else str(ROOT / path) for path in COVERED]
    counter = coverage.Coverage(include=files, data_file=None)
    counter.start()
    try:
        yield verdict
    finally:
        counter.stop()
        verdict[0] = counter.report(file=sys.stdout, skip_covered=False, show_missing=True) >= ENOUGH


def play_all(seeds: Iterable[int]) -> list[int]:
    """The seeds that go wrong, each told as it is found."""
    from tests.simulation.story import play
    from tests.simulation.world import Violation

    began, bad, count = time.perf_counter(), [], 0
    happened: dict[str, int] = {}
    ends: dict[str, int] = {}
    for seed in seeds:
        count += 1
        try:
            result = play(seed)
        except Violation as violation:
            bad.append(seed)
            print(f"seed {seed}: {violation}\nrepro: python -m tests.simulation --seed {seed}", flush=True)
            continue
        for total, part in ((happened, result.happened), (ends, result.runs)):
            for name, times in part.items():
                total[name] = total.get(name, 0) + times
    faults = ", ".join(f"{name} {times}" for name, times in sorted(happened.items()))
    runs = ", ".join(f"{times} {name}" for name, times in sorted(ends.items()))
    print(f"{count} histories in {time.perf_counter() - began:.1f} s, {len(bad)} wrong; runs: {runs}\nfaults: {faults}")
    return bad


def tell(seed: int) -> bool:
    """One history with its log of events; False where it goes wrong."""
    from chalicelib.domain.events import Event
    from chalicelib.store import nouns
    from tests.simulation.story import Story
    from tests.simulation.world import START, Violation

    story = Story(seed)
    wrong = None
    try:
        story.play()
    except Violation as violation:
        wrong = violation
    events = [nouns.read(Event, r) for r in story.site.store.records() if r.key.pk.startswith("events/")]
    for event in sorted(events, key=lambda event: event.at):
        names = ", ".join(target.name for target in event.targets)
        print(f"{(event.at - START) / 1e6:10.3f}  {names}: {event.message}")
    print(f"{(story.world.time - START) / 1e6:10.3f}  " + ("all has ended" if wrong is None else f"WRONG: {wrong}"))
    return wrong is None


def find_planted() -> list[str]:
    """The planted bugs that no seed finds."""
    from tests.simulation.planted import PLANTED, found_by

    missed = []
    for name, bug in PLANTED.items():
        found = found_by(bug)
        print(f"planted: {name}: " + ("NOT FOUND" if found is None else f"seed {found[0]}: {found[1]}"), flush=True)
        if found is None or not re.search(bug.symptom, found[1]):
            missed.append(name)
    return missed


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many histories to play")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="play and tell this one")
    parser.add_argument("--planted", action="store_true", help="look for the planted bugs too")
    parser.add_argument("--coverage", action="store_true", help="lines of the product that the histories reach")
    given = parser.parse_args(arguments)
    if given.seed is None:
        logging.disable(logging.CRITICAL)  # every fault is logged as it should be; thousands of them tell nothing
    with covered(given.coverage) as enough:
        if given.seed is not None:
            fine = tell(given.seed)
        else:
            fine = not play_all(range(given.start, given.start + given.seeds))
        if given.planted:
            fine = not find_planted() and fine
    if not enough[0]:
        print(f"less than {ENOUGH:.0f} % of the lines were reached")
    return 0 if fine and enough[0] else 1


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
