"""Every bench in turn: a JSON line each, then one table beside the recorded figures and the budgets.

`--only NAME …` runs some; `--record` writes `docs/bench.json` anew.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import textwrap
import time
from typing import Any

from docs import limits_page
from tests.bench import figures
from tests.harness.server import ROOT

BENCHES: dict[str, list[str]] = {
    "single": [],
    "burst-150": ["--jobs", "150", "--runs", "3"],
    "burst-1000": ["--jobs", "1000", "--runs", "2"],
    "gangs": [],
    "api": [],
    "plans": [],
    "offers": [],
    "listing": [],
    "people": [],
    "placement": [],
    "scaling": [],
    "language": [],
    "cold": [],
    "effects": [],
    "warm": [],
    "cli": [],
    "install": [],
    "sdk": [],
    "idle": [],
    "crowd": [],
    "agent": [],
    "load": [],
    "hostile": [],
    "live": [],
    "relay": [],
    "attach": [],
    "services": [],
    "rollout": [],
    "gateway": [],
    "kubernetes": [],
    "console": [],
    "units": [],
    "limits": [],
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--only", nargs="*", default=list(BENCHES), choices=list(BENCHES), help="which ones")
    parser.add_argument("--record", action="store_true", help="keep the figures in docs/bench.json; all of them")
    chosen = parser.parse_args()
    if chosen.record and chosen.only != list(BENCHES):
        parser.error("--record keeps all figures of one day on one machine: leave out --only")
    begun, lines, failed, yardsticks = time.monotonic(), [], [], [figures.yardstick_ms()]
    for name in chosen.only:
        started = time.monotonic()
        output = run(name)
        lines += output
        failed += [] if output else [name]
        yardsticks.append(figures.yardstick_ms())
        print(f"… {name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    now, (then, when) = figures.measured(lines, yardsticks), figures.recorded()
    print(json.dumps({"bench": "yardstick", **now.yardstick._asdict()}))
    print("", *figures.table(now, then), "", sep="\n")
    for line in filter(None, [*figures.summary(now, then), when, f"Measured in {time.monotonic() - begun:.0f} s."]):
        print(textwrap.fill(line, figures.WIDTH, subsequent_indent="  "))
    if failed:
        print(f"Failed: {', '.join(failed)}.", file=sys.stderr)
        return 1
    if chosen.record:
        figures.record(now)
        limits_page.write()
        print(f"Recorded in {figures.RECORD.relative_to(ROOT)}.")
    return 0


def run(name: str) -> list[dict[str, Any]]:
    """The lines of one bench; none where it failed."""
    module = f"tests.bench.{name.partition('-')[0]}"
    done = subprocess.run([sys.executable, "-m", module, *BENCHES[name]], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    print(done.stdout, end="", flush=True)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return lines if done.returncode == 0 else []


if __name__ == "__main__":
    sys.exit(main())
