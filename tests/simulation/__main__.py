"""`python -m tests.simulation --seeds N [--seconds S] [--seed K] [--planted] [--coverage]`: play histories.

Prints one line per failing seed, `repro: python -m tests.simulation --seed K`, and exits with status 1. With one seed
it prints the whole history from the plane's own events.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
STORE = (f"chalicelib/store/{name}.py" for name in ("port", "memory", "nouns", "keys"))
COVERED = ("chalicelib/engine", "chalicelib/planning", *STORE, "chalicelib/agent/program/session.py")
ENOUGH = 90.0  # percent of those lines


@contextlib.contextmanager
def covered(wanted: bool) -> Iterator[list[bool]]:
    """Counts lines from now on, so it must start before the product is imported."""
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


def play_all(seeds: Iterable[int], seconds: float | None) -> tuple[list[int], dict[int, set[str]]]:
    """The failing seeds, each printed when found, and what happened in the others."""
    from tests.simulation.history import play
    from tests.simulation.world import Violation

    began, bad, met = time.perf_counter(), [], {}
    happened: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    for seed in seeds:
        if seconds is not None and time.perf_counter() - began >= seconds:
            break
        try:
            result = play(seed)
        except Violation as violation:
            bad.append(seed)
            print(f"seed {seed}: {violation}\nrepro: python -m tests.simulation --seed {seed}", flush=True)
            continue
        happened.update(result.happened)
        ends.update(result.runs)
        met[seed] = set(result.happened)
    played = len(met) + len(bad)
    print(f"{played} histories in {time.perf_counter() - began:.1f} s, {len(bad)} wrong; runs: {_listed(ends)}")
    print(f"what happened: {_listed(happened)}")
    return bad, met


def _listed(counted: Counter[str]) -> str:
    return ", ".join(f"{name} {times}" for name, times in sorted(counted.items()))


def shortest(met: dict[int, set[str]], times: int) -> list[int]:
    """Few seeds in which everything happens, each thing in so many of them if it happens that often."""
    missing = Counter({name: min(times, total) for name, total in Counter(n for m in met.values() for n in m).items()})
    chosen: list[int] = []
    while +missing:
        best = max(met.keys() - set(chosen), key=lambda seed: (sum(missing[name] > 0 for name in met[seed]), -seed))
        chosen.append(best)
        missing.subtract(met[best])
    return sorted(chosen)


def tell(seed: int) -> bool:
    """One history with its log of events; False if it goes wrong."""
    from chalicelib.store.history import events_in
    from tests.simulation.history import History
    from tests.simulation.world import START, Violation

    history = History(seed)
    wrong = None
    try:
        history.play()
    except Violation as violation:
        wrong = violation
    events = [
        event
        for record in history.scene.site.store.records()
        if record.key.pk.startswith("events/")
        for event in events_in(record)
    ]
    for event in sorted(events, key=lambda event: event.at):
        names = ", ".join(target.name for target in event.targets)
        print(f"{(event.at - START) / 1e6:10.3f}  {names}: {event.message}")
    end = (history.world.time - START) / 1e6
    print(f"{end:10.3f}  " + ("all has ended" if wrong is None else f"WRONG: {wrong}"))
    return wrong is None


def find_planted() -> list[str]:
    """The planted bugs that no seed finds. Prints which invariant found each, and at which seed."""
    from tests.simulation.planted import PLANTED, hunt

    missed = []
    for name, bug in PLANTED.items():
        found = hunt(bug)
        at = f"seed {found.seed}" if found.seed is not None else f"NOT FOUND in {bug.seeds} seeds"
        others = f"; others said: {', '.join(sorted(found.others))}" if found.others else ""
        print(f"planted: {name:36} {bug.breaks.name:22} {at}{others}", flush=True)
        if found.seed is None:
            missed.append(name)
    return missed


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many histories to play")
    parser.add_argument("--seconds", type=float, help="play no longer than this")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="play and tell this one")
    parser.add_argument("--planted", action="store_true", help="look for the planted bugs too")
    parser.add_argument("--choose", type=int, metavar="N", help="name few seeds in which everything happens N times")
    parser.add_argument("--coverage", action="store_true", help="lines of the product that the histories reach")
    given = parser.parse_args(arguments)
    if given.seed is None:
        logging.disable(logging.CRITICAL)  # every fault is logged, as it should be, but thousands of them say nothing
    with covered(given.coverage) as enough:
        if given.seed is not None:
            fine = tell(given.seed)
        else:
            bad, met = play_all(range(given.start, given.start + given.seeds), given.seconds)
            fine = not bad
            if given.choose:
                print(f"chosen: {shortest(met, given.choose)}")
        if given.planted:
            fine = not find_planted() and fine
    if not enough[0]:
        print(f"less than {ENOUGH:.0f} % of the lines were reached")
    return 0 if fine and enough[0] else 1


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
