"""`make fuzz CALLS=200000 SEED=1`: so many hostile calls, and what they found.

Prints each find once, with the call that plays it again, and a summary; the exit status is 1 if there is any find.
`--only N` plays the batch of call N up to it, and prints that call and its answer. `--seconds` ends sooner. One call
in fifty is also sent to a server over sockets, by several clients at once, while another tenant's calls are timed. Half
as many requests go through each of the two doors to services, to a replica that reads strictly.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable

from tests.fuzz.doors import DOORS, play_and_report
from tests.fuzz.play import BATCH, Find, Tally, show
from tests.fuzz.pool import every
from tests.fuzz.wire import Over, send_some


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--calls", type=int, default=200_000, help="how many")
    parser.add_argument("--seed", type=int, default=1, help="which ones")
    parser.add_argument("--only", type=int, metavar="N", help="play up to this call, and show it")
    parser.add_argument("--seconds", type=float, default=1200, help="begin no batch after so long")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--sockets", type=int, help="calls over sockets (a fiftieth)")
    parser.add_argument("--requests", type=int, help="requests through each door (half as many)")
    given = parser.parse_args(arguments)
    if given.only is not None:
        return report(show(given.seed, given.only), lambda find: f"--seed {given.seed} --only {find.number}")
    begun = time.monotonic()
    total = Tally()
    for done in every(given.seed, given.calls, given.jobs, begun + given.seconds):
        total.add(done)
        if sys.stderr.isatty():
            print(f"\r{total.calls}/{given.calls} calls, {len(total.finds)} finds", end="", file=sys.stderr, flush=True)
    took = time.monotonic() - begun
    status = report(total.finds, lambda find: f"--seed {given.seed} --only {find.number}")
    over = send_some(given.seed, given.calls // 50 if given.sockets is None else given.sockets)
    status |= report(over.finds, lambda find: f"--seed {given.seed} --calls 0 --sockets {find.number + 1}")
    summary(total, over, given.seed, took)
    requests = given.calls // 2 if given.requests is None else given.requests
    return max(status, *(play_and_report(name, given.seed, requests) for name in DOORS if requests))


def report(finds: list[Find], again: Callable[[Find], str]) -> int:
    """Print the finds, one of each kind with how to play it again; 1 if there is any."""
    kinds: dict[str, list[Find]] = {}
    for find in sorted(finds):
        kinds.setdefault(find.kind, []).append(find)
    for same in kinds.values():
        times = f" ({len(same)} times)" if len(same) > 1 else ""
        print(f"{same[0]}{times}\n    python -m tests.fuzz {again(same[0])}")
    return 1 if kinds else 0


def summary(total: Tally, over: Over, seed: int, took: float) -> None:
    costs = sorted(total.costs) or [0.0]
    half, most = costs[len(costs) // 2] * 1e3, costs[-1] * 1e3
    nearly = costs[int(len(costs) * 0.999)] * 1e3
    kinds = ", ".join(f"{name} {count}" for name, count in sorted(total.kinds.items()))
    print(f"seed {seed}: {total.calls} calls in {took:.0f} s, {len(total.finds) + len(over.finds)} finds")
    print(f"  answers and documents: {kinds}")
    print(f"  processor a call: median {half:.1f} ms, 99.9% {nearly:.0f} ms, most {most:.0f} ms")
    print(f"  memory: grew by {total.growth >> 20} MiB after the first batch of {BATCH}")
    print(f"  {over}")


if __name__ == "__main__":
    sys.exit(main())
