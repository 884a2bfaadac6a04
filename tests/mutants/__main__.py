"""`make mutants N=60 SEED=1`: change the product in so many places, one at a time, and see whether a test notices.

Prints what nobody noticed, then `noticed/total`; writes all of it as JSON. Which changes are drawn depends on the seed
and the source alone. `--in PATH[:LINE]` keeps to a file or a folder; `--again FILE` plays what an earlier run missed.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from tests.mutants.changes import Change, changes, readable
from tests.mutants.touching import Touching
from tests.mutants.trial import TESTS_OF, Copy, Verdict, closest_tests

ROOT = Path(__file__).parents[2]


def everything(below: list[str]) -> list[Change]:
    """Every change in the packages that have their own tests, or in those below these paths. Not in the file that
    `make cost RECORD=1` writes: its numbers are what was measured."""
    there = (path for name in TESTS_OF for path in (ROOT / "chalicelib" / name).rglob("*.py"))
    paths = sorted(path.relative_to(ROOT).as_posix() for path in there if path.name != "plane_rates.py")
    if below:  # the start of a path, or of a path and a line
        paths = [
            path for path in paths if any(f"{path}:".startswith(start) or start.startswith(path) for start in below)
        ]
    found = (change for path in paths for change in changes(ROOT, path))
    return [c for c in found if not below or any(f"{c.file}:{c.line}:".startswith(start) for start in below)]


def drawn(found: list[Change], seed: int, count: int) -> list[Change]:
    """`count` of them, chosen by the seed, without those that can't be read. Each has a place of its own in the seed's
    order, so that an edit of the source moves those it touches and no others in or out."""
    in_order = sorted(found, key=lambda change: _place(change, seed))
    return sorted(itertools.islice((change for change in in_order if readable(ROOT, change)), count))


def _place(change: Change, seed: int) -> bytes:
    return hashlib.blake2b(repr((seed, *change.name)).encode()).digest()


def missed(file: Path) -> list[Change]:
    """What an earlier run missed and can still be found in the source."""
    names = {tuple(name) for name in json.loads(file.read_text())["survivors"]}
    return [change for change in everything([]) if change.name in names]


def watched(copy: Copy, sample: list[Change]) -> tuple[Touching, float]:
    """What all the tests about the sample's files reach, and how long a trial may take: a few times as long as all of
    them when nothing is wrong."""
    files = {change.file for change in sample}
    began = time.perf_counter()
    tests = sorted({path for name in files for path in closest_tests(copy.root, name)})
    print(f"watching what {len(tests)} files of tests reach", flush=True)
    touching = copy.watched(tests, {name.split("/")[1] for name in files}, 3600)
    return touching, 30 + 4 * (time.perf_counter() - began)


def play(sample: list[Change], jobs: int) -> list[Verdict]:
    copies, done = [Copy(ROOT) for _ in range(jobs)], list[Verdict]()
    free = list(copies)

    def one(change: Change) -> Verdict:
        copy = free.pop()
        try:
            verdict = copy.trial(change, touching, patience)
        finally:
            free.append(copy)
        done.append(verdict)
        verdict_text = f"noticed by {verdict.by}" if verdict.noticed else "SURVIVES"
        print(f"{len(done)}/{len(sample)} {verdict.seconds} s {change.file}:{change.line} {verdict_text}", flush=True)
        return verdict

    try:
        touching, patience = watched(copies[0], sample)
        for copy in copies:
            copy.left_out = copies[0].left_out
        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(one, sample))
    finally:
        for copy in copies:
            copy.close()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=60, help="how many changes to play")
    parser.add_argument("--seed", type=int, default=1, help="which ones")
    parser.add_argument("--in", dest="below", action="append", default=[], metavar="PATH[:LINE]", help="only there")
    parser.add_argument("--again", type=Path, metavar="FILE", help="what this earlier run missed, and nothing else")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "mutants.json", help="where to write it all")
    given = parser.parse_args(arguments)
    sample = missed(given.again) if given.again else drawn(everything(given.below), given.seed, given.count)
    verdicts = play(sample, given.jobs)
    survivors = [verdict.change for verdict in verdicts if not verdict.noticed]
    noticed = len(verdicts) - len(survivors)
    print(*survivors, f"{noticed}/{len(verdicts)} noticed; written to {given.json}", sep="\n")
    counts = {"seed": given.seed, "total": len(verdicts), "noticed": noticed}
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_text(
        json.dumps(
            {**counts, "survivors": [change.name for change in survivors], "trials": list(map(asdict, verdicts))},
            indent=1,
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
