"""`python -m tests.simulation --seeds N [--seconds S] [--seed K] [--planted] [--coverage] [--jobs J]
[--gangs]`: play histories.

Prints one line per failing seed, `repro: python -m tests.simulation --seed K`, and exits with status 1. With one seed
it prints the whole history from the plane's own events. Histories don't touch each other, so each processor plays its
share of them. With `--gangs` they are about tasks on several nodes in containers, and little else.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context

from tests.simulation.workers import ROOT, Played, counter, find, play_counted, quiet

ENOUGH = 90.0  # percent of those lines


def play_all(pool: ProcessPoolExecutor, shares: Sequence[Sequence[int]], given: argparse.Namespace) -> Played:
    began, until = time.perf_counter(), None if given.seconds is None else time.time() + given.seconds
    parts = list(pool.map(play_counted, shares, repeat(until), repeat(given.coverage), repeat(given.gangs)))
    played = Played()
    for part in parts:
        played.add(part)
    count, took = len(played.met) + len(played.bad), time.perf_counter() - began
    print(f"{count} histories in {took:.1f} s, {len(played.bad)} wrong; runs: {_listed(played.ends)}")
    print(f"what happened: {_listed(played.happened)}")
    return played


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


def play_one(seed: int, gangs: bool) -> bool:
    """One history with its log of events; False if it goes wrong."""
    from chalicelib.store.history import events_in
    from tests.simulation.history import History
    from tests.simulation.workers import stories
    from tests.simulation.world import START, Violation

    history = History(seed, stories=stories(gangs))
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


def find_planted(pool: ProcessPoolExecutor, played: Played, coverage: bool) -> list[str]:
    """The planted bugs that no seed finds. Prints which invariant found each, and at which seed.

    The lines that the hunt reached count in `played`.
    """
    from tests.simulation.planted import PLANTED

    missed = []
    hunts = pool.map(find, PLANTED, repeat(coverage))
    for (name, bug), (found, lines) in zip(PLANTED.items(), hunts, strict=True):
        played.lines += lines
        at = f"seed {found.seed}" if found.seed is not None else f"NOT FOUND in {bug.seeds} seeds"
        others = f"; others said: {', '.join(sorted(found.other_invariants))}" if found.other_invariants else ""
        print(f"planted: {name:36} {bug.breaks.name:22} {at}{others}", flush=True)
        if found.seed is None:
            missed.append(name)
    return missed


def enough(parts: Sequence[bytes]) -> bool:
    """Prints which lines were reached. Are they enough?"""
    import coverage

    lines = counter()
    for part in parts:
        reached = coverage.CoverageData(no_disk=True)
        reached.loads(part)
        lines.get_data().update(reached)
    verdict = lines.report(file=sys.stdout, skip_covered=False, show_missing=True) >= ENOUGH
    if not verdict:
        print(f"less than {ENOUGH:.0f} % of the lines were reached")
    return verdict


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many histories to play")
    parser.add_argument("--seconds", type=float, help="play no longer than this")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="play and tell this one")
    parser.add_argument("--planted", action="store_true", help="look for the planted bugs too")
    parser.add_argument("--choose", type=int, metavar="N", help="name few seeds in which everything happens N times")
    parser.add_argument("--coverage", action="store_true", help="lines of the product that the histories reach")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many play at once")
    parser.add_argument("--gangs", action="store_true", help="only tasks on several nodes in containers")
    given = parser.parse_args(arguments)
    if given.seed is not None:
        return 0 if play_one(given.seed, given.gangs) else 1
    seeds = range(given.start, given.start + given.seeds)
    shares = [seeds[first :: given.jobs] for first in range(given.jobs)]
    with ProcessPoolExecutor(given.jobs, get_context("spawn"), quiet) as pool:
        played = play_all(pool, shares, given)
        if given.choose:
            print(f"chosen: {shortest(played.met, given.choose)}")
        fine = not played.bad
        if given.planted:
            fine = not find_planted(pool, played, given.coverage) and fine
    if given.coverage:
        fine = enough(played.lines) and fine
    return 0 if fine else 1


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
