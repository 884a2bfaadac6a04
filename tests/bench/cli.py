"""CPU of whole CLI processes."""

from __future__ import annotations

import sys

from tests.bench.measure import process_cpu, report, running_server


def main() -> None:
    python = [sys.executable, "-m", "cli.main"]
    bare = process_cpu([sys.executable, "-c", "pass"])
    help_cpu = process_cpu([*python, "--help"])
    with running_server("--no-local-fleet") as server:
        ps = process_cpu([*python, "ps", "-a"], env=server.environment())
    report("cli", bare_python_cpu_s=bare, help_cpu_s=help_cpu, ps_cpu_s=ps, budget_s=[0.2, 0.35])


if __name__ == "__main__":
    main()
