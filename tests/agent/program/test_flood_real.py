"""50 MB/s of output for two seconds, or as fast as this machine prints it: what it costs the agent doesn't grow."""

from __future__ import annotations

from pathlib import Path

from tests.agent.flood import MEGABYTE, Flooded, peak_mb

MOST_MB = 30.0


def test_a_flood_of_output_is_passed_on_in_little_memory(tmp_path: Path) -> None:
    with Flooded(tmp_path) as agent:
        agent.flood(100 * MEGABYTE, rate=50)
        supervisor = peak_mb(agent.supervisor)
        agent.arrived()
        assert (peak_mb(agent.pid) <= MOST_MB, supervisor <= MOST_MB) == (True, True), (peak_mb(agent.pid), supervisor)
