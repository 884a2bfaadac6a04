"""CPU of whole CLI processes."""

from __future__ import annotations

import sys

from tests.bench.measure import process_cpu_ms, report, running_server


def main() -> None:
    python = [sys.executable, "-m", "cli.main"]
    shown = process_cpu_ms([*python, "--help"])
    with running_server("--no-local-fleet") as server:
        listed = process_cpu_ms([*python, "ps", "-a"], env=server.environment())
    report("cli", help_cpu_ms=shown, ps_cpu_ms=listed)


if __name__ == "__main__":
    main()
