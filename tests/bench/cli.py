"""CPU of whole CLI processes."""

from __future__ import annotations

import sys

from tests.bench.measure import process_cost, report, running_server


def main() -> None:
    python = [sys.executable, "-m", "cli.main"]
    bare, _ = process_cost([sys.executable, "-c", "pass"])
    help_cpu, help_wall = process_cost([*python, "--help"])
    with running_server("--no-local-fleet") as server:
        ps_cpu, ps_wall = process_cost([*python, "ps", "-a"], env=server.environment())
    report(
        "cli",
        help_cpu_s=help_cpu,
        help_wall_s=help_wall,
        ps_cpu_s=ps_cpu,
        ps_wall_s=ps_wall,
        bare_python_cpu_s=bare,
        budget_s=[0.2, 0.35],
    )


if __name__ == "__main__":
    main()
