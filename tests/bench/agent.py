"""What an agent costs its machine: idle, and while a job prints 50 MB/s for two seconds, with its supervisor.

The memory is the most that each process ever had.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from tests.agent.flood import MEGABYTE, Flooded, peak_mb
from tests.bench.measure import report, threads_cpu_of

SETTLING, SECONDS = 3, 30
RATE, BURST = 50, 2  # MB/s, seconds


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, Flooded(Path(folder)) as agent:
        time.sleep(SETTLING)
        before, begun = threads_cpu_of(agent.pid), time.monotonic()
        time.sleep(SECONDS)
        share = (threads_cpu_of(agent.pid) - before) / (time.monotonic() - begun) * 100
        begun = time.monotonic()
        agent.flood(RATE * BURST * MEGABYTE, rate=RATE)
        printed = time.monotonic() - begun
        supervisor = peak_mb(agent.supervisor)
        agent.arrived()
        report(
            "agent",
            idle_core_percent=[share],
            flood_peak_mb=[peak_mb(agent.pid)],
            flood_supervisor_peak_mb=[supervisor],
            flood_printed_s=[printed],
            flood_arrived_s=[time.monotonic() - begun],
            cores=os.cpu_count(),
        )


if __name__ == "__main__":
    main()
