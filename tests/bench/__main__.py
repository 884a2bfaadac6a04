"""Every bench in turn, then one table. `--only NAME …` runs some."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

from tests.harness.server import ROOT

BENCHES: dict[str, list[str]] = {
    "single": [],
    "burst": ["--jobs", "150", "--hosts", "150", "--job-seconds", "1", "--runs", "3"],
    "burst-1000": ["--jobs", "1000", "--hosts", "150", "--job-seconds", "1"],
    "api": [],
    "plans": [],
    "offers": [],
    "listing": [],
    "placement": [],
    "language": [],
    "cold": [],
    "cli": [],
    "idle": [],
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--only", nargs="*", default=list(BENCHES), choices=list(BENCHES), help="which ones")
    chosen = parser.parse_args().only
    rows, failed = [], 0
    for name in chosen:
        print(f"… {name}", file=sys.stderr, flush=True)
        module = f"tests.bench.{name.partition('-')[0]}"
        done = subprocess.run(
            [sys.executable, "-m", module, *BENCHES[name]], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        print(done.stdout, end="", flush=True)
        failed += done.returncode != 0
        rows += [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    print()
    for row in rows:
        figures = "  ".join(
            f"{key}={value}" for key, value in row.items() if key not in ("bench",) and "budget" not in key
        )
        budget = next((value for key, value in row.items() if "budget" in key), "")
        print(f"{row['bench']:<10} {figures}   (budget {budget})")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
