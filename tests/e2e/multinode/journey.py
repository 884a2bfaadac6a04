"""A cluster of local agents, and a task on all of them that sums vectors over TCP with gloo."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.harness.ports import free_port
from tests.harness.server import ROOT, Server, until
from tests.runtime.live import logs_of, run_of

HERE = Path(__file__).parent
GLOO = ROOT / ".venvs" / "gloo"
TASK = """type: task
name: {name}
nodes: {nodes}
files:
  - {program}:allreduce.py
  - {extension}:xoscar_pygloo.so
commands:
  - {python} allreduce.py {port}
resources: {{cpu: 1.., memory: 0.1GB.., disk: 1GB..}}
"""


@dataclass
class Cluster:
    server: Server
    nodes: int

    def idle(self) -> bool:
        (fleet,) = self.server.call("/api/project/main/fleets/list", {})
        return [host["status"] for host in fleet["instances"]] == ["idle"] * self.nodes

    def task(self, folder: Path, name: str) -> Path:
        """A configuration of a run on all nodes."""
        path = folder / f"{name}.dstack.yml"
        places = {
            "program": HERE / "allreduce.py",
            "extension": extension(),
            "python": os.path.realpath(sys.executable),
        }
        path.write_text(TASK.format(name=name, nodes=self.nodes, port=free_port(), **places))
        return path

    def jobs(self, name: str) -> list[dict[str, Any]]:
        return [job["job_submissions"][-1] for job in run_of(self.server, name)["jobs"]]

    def all_began(self, name: str) -> bool:
        """Has every node run?"""
        jobs = self.jobs(name)
        return len(jobs) == self.nodes and all(job["status"] in ("running", "done", "terminating") for job in jobs)

    def ended(self, name: str) -> dict[str, Any]:
        run: dict[str, Any] = until(
            f"{name} to end",
            lambda: (run := run_of(self.server, name)) and run["status"] in ("done", "failed", "terminated") and run,
        )
        return run

    def outputs_of(self, name: str) -> list[str]:
        """What each node printed, by rank."""
        return [log.strip() for log in logs_of(self.server, name)]


def wanted(nodes: int) -> list[str]:
    return [f"node {rank} of {nodes}: 100000 sums, all right" for rank in range(nodes)]


def extension() -> Path:
    """gloo as a module of this Python."""
    built = f"xoscar_pygloo.cpython-{sys.version_info.major}{sys.version_info.minor}-*.so"
    found = list(GLOO.glob(f"lib/python3*/site-packages/xoscar/collective/{built}"))
    if not found:
        pytest.skip("gloo isn't installed here; `make test` installs it into .venvs/gloo")
    return found[0]


@contextlib.contextmanager
def cluster(home: Path, nodes: int) -> Iterator[Cluster]:
    """A server whose machine is a cluster of so many hosts, all idle."""
    extension()
    env = {"DSTACK_AGENT_RUNTIME": "process", "DSTACK_SERVER_TRUST_JOBS": "on"}  # jobs read files of this user
    home.mkdir()
    with contextlib.closing(Server(home, flags=("--local-hosts", str(nodes)), env=env)) as server:
        found = Cluster(server.start(), nodes)
        until("all hosts to be idle", found.idle)
        yield found


def journey(home: Path, nodes: int) -> dict[str, Any]:
    with cluster(home, nodes) as one:
        spec = one.task(home, "sum")
        one.server.cli("apply", "-y", "-d", "-f", str(spec))
        submitted = datetime.fromisoformat(run_of(one.server, "sum")["submitted_at"]).timestamp()
        until("all nodes to run", lambda: one.all_began("sum"))
        running = round(time.time() - submitted, 2)
        status = one.ended("sum")["status"]
        took = round(time.time() - submitted, 2)
        outputs = one.outputs_of("sum")
        right = status == "done" and outputs == wanted(nodes)
        shown = len(re.findall(r"(?m)^  job=\d+ ", one.server.cli("ps", "-n", "1")))
        return {
            "nodes": nodes, "status": status, "sums_right": right, "running_s": running, "done_s": took,
            "nodes_in_ps": shown, **({} if right else {"said": outputs}),
        }  # fmt: skip
