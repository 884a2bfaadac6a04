"""How everything here is measured."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.harness.server import ROOT, Server

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_of(pid: int) -> float:
    """CPU seconds a live process has used, its ended children not counted."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def rss_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return round(int(line.split()[1]) / 1024, 1)
    return 0.0


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """(wall, CPU) seconds of one call in this process."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def median_cpu_ms(work: Callable[[], object], runs: int = 7) -> float:
    work()
    return round(statistics.median(timed(work)[1] for _ in range(runs)) * 1000, 3)


def process_cost(command: list[str], env: dict[str, str] | None = None, runs: int = 5) -> tuple[float, float]:
    """The median CPU and wall seconds of a whole process, one warm-up not counted."""
    figures, walls = [], []
    for number in range(runs + 1):
        before = os.times()
        subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        after = os.times()
        if number:
            figures.append(after.children_user + after.children_system - before.children_user - before.children_system)
            walls.append(after.elapsed - before.elapsed)
    return round(statistics.median(figures), 3), round(statistics.median(walls), 3)


@contextmanager
def running_server(*flags: str, **env: str) -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        home = Path(folder) / "home"
        home.mkdir()
        server = Server(
            home, flags=flags, env={"DSTACK_AGENT_RUNTIME": "process", "DSTACK_SERVER_LOG_LEVEL": "error", **env}
        )
        try:
            yield server.start()
        finally:
            server.close()


def server_pid(server: Server) -> int:
    assert server.process is not None
    return server.process.pid


def report(name: str, **figures: Any) -> None:
    print(json.dumps({"bench": name, **figures}), flush=True)
    sys.stdout.flush()


def task(name: str, *commands: str, **more: Any) -> dict[str, Any]:
    """A run spec that asks for little, as a client would send it."""
    resources = {"cpu": "1..", "memory": "0.1GB..", "disk": None}
    configuration = {"type": "task", "name": name, "commands": list(commands), "resources": resources, **more}
    return {"run_name": name, "repo_id": "none", "repo_data": {"repo_type": "virtual"}, "configuration": configuration}


def submit(server: Server, spec: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = server.call(
        "/api/project/main/runs/apply", {"plan": {"run_spec": spec, "current_resource": None}, "force": False}
    )
    return answer


def wait_local_host(server: Server) -> None:
    from tests.harness.server import until

    def idle() -> bool:
        fleets = server.call("/api/project/main/fleets/list", {})
        return any(i["status"] in ("idle", "busy") for fleet in fleets for i in fleet["instances"])

    until("the local host to join", idle)
