"""How everything here is measured: a process's CPU time, how often to sample, and how to report a figure.

CPU seconds are the kernel's: of a process that ended, all it and its children took; of one that lives, all its threads.
A figure is a list of samples, reported as its median with the lowest and the highest.
"""

from __future__ import annotations

import atexit
import json
import os
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from tests.harness.server import ROOT, Server, until

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_of(pid: int) -> float:
    """CPU seconds a live process has used, its ended children not counted. Steps of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def threads_cpu_of(pid: int) -> float:
    """The same to the nanosecond, of the threads that live: for a process that does next to nothing."""
    clocks = [Path(thread, "schedstat").read_text().split()[0] for thread in Path(f"/proc/{pid}/task").iterdir()]
    return sum(map(int, clocks)) / 1e9


def rss_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return round(int(line.split()[1]) / 1024, 1)
    return 0.0


def cpu_ms(work: Callable[[], object], runs: int = 9) -> list[float]:
    """CPU milliseconds of calls in this process, one before them not counted."""
    work()
    found = []
    for _ in range(runs):
        begun = time.process_time()
        work()
        found.append((time.process_time() - begun) * 1000)
    return found


def process_cpu_ms(command: list[str], env: Mapping[str, str] | None = None, runs: int = 7) -> list[float]:
    """CPU milliseconds of whole processes, from their start to their end. One before them isn't counted: it compiles
    what isn't compiled yet, so that all others find the bytecode, whatever the environment says about keeping it."""
    found = []
    for number in range(runs + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, cwd=ROOT, env=compiled(env), stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if number:
            found.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000)
    return found


def compiled(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment whose bytecode is kept in a folder of this bench's own."""
    inherited = {name: value for name, value in (env or os.environ).items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**inherited, "PYTHONPYCACHEPREFIX": _bytecode()}


@cache
def _bytecode() -> str:
    folder = tempfile.mkdtemp(prefix="bench-bytecode-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def over(samples: list[float], base: list[float]) -> list[float]:
    """Samples without what the base takes."""
    floor = statistics.median(base)
    return [sample - floor for sample in samples]


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


def report(bench: str, **figures: Any) -> None:
    """One JSON line. A list of numbers is a figure's samples."""
    spreads = {name: spread(value) if isinstance(value, list) else value for name, value in figures.items()}
    print(json.dumps({"bench": bench, **spreads}), flush=True)


def spread(samples: list[float]) -> dict[str, float]:
    shown = [_four_digits(value) for value in (statistics.median(samples), min(samples), max(samples))]
    return {"median": shown[0], "low": shown[1], "high": shown[2], "runs": len(samples)}


def _four_digits(value: float) -> float:
    return float(f"{value:.4g}")


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
    def idle() -> bool:
        fleets = server.call("/api/project/main/fleets/list", {})
        return any(i["status"] in ("idle", "busy") for fleet in fleets for i in fleet["instances"])

    until("the local host to join", idle)
