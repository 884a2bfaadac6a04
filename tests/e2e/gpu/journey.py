"""A server on a machine with NVIDIA cards: what it finds, what jobs see, what they use, who waits, and who is ended."""

from __future__ import annotations

import contextlib
import csv
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.harness.server import Server, until
from tests.runtime.live import log_of, run_of, wait_for

HERE = Path(__file__).parent
BUSY_S = 45
ENDED = ("done", "failed", "terminated")
TASK = """type: task
name: {name}
files:
  - {program}:busy.py
commands:
  - echo "told ${{CUDA_VISIBLE_DEVICES}}"
  - {command}
resources: {{cpu: 1.., memory: 0.1GB.., disk: 1GB.., gpu: {gpu}}}
"""


def smi(*fields: str) -> list[list[str]]:
    """The same question to the tool, asked by ourselves."""
    query = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    text = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    return [[cell.strip() for cell in row] for row in csv.reader(text.splitlines())]


class Journey:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.cards = smi("uuid", "name", "memory.total")

    def apply(self, name: str, *, gpu: str, command: str, more: str = "") -> None:
        path = self.server.home / f"{name}.dstack.yml"
        path.write_text(TASK.format(name=name, program=HERE / "busy.py", command=command, gpu=gpu) + more)
        self.server.cli("apply", "-y", "-d", "-f", str(path))

    def busy(self, name: str, *, gpu: str, seconds: int) -> None:
        self.apply(name, gpu=gpu, command=f"{sys.executable} busy.py {seconds}")

    def found(self) -> dict[str, Any]:
        """The machine's cards as the fleet shows them, beside the tool's own words."""
        fleet = until("the host to be idle", self._idle)
        gpus = fleet["instances"][0]["instance_type"]["resources"]["gpus"]
        reported = [(gpu["name"], gpu["memory_mib"]) for gpu in gpus]
        right = [memory for _, memory in reported] == [int(card[2]) for card in self.cards]
        return {"told": reported, "as_nvidia_smi": [card[1:] for card in self.cards], "found_right": right}

    def _idle(self) -> Any:
        (fleet,) = self.server.call("/api/project/main/fleets/list", {})
        return [host["status"] for host in fleet["instances"]] == ["idle"] and fleet

    def used(self, name: str) -> dict[str, Any]:
        """A job that fills 4 GiB of its card all the time: what its metrics say."""

        def latest() -> Any:
            rows = json.loads(self.server.cli("metrics", name, "--json"))["jobs"][0]["metrics"]
            values = {row["name"]: row["values"][0] for row in rows if row["values"]}
            memory, load = values.get("gpu_memory_usage_bytes_gpu0", 0), values.get("gpu_util_percent_gpu0", 0)
            if memory >= 4 << 30 and load >= 50:
                return {"memory_gib": round(memory / 2**30, 1), "load": load}
            run = run_of(self.server, name)
            why = run["latest_job_submission"]["termination_reason_message"]
            assert run["status"] == "running", f"{why}\n{values}\n{log_of(self.server, name)}"
            return None

        wait_for(self.server, name, "running", *ENDED)
        found: dict[str, Any] = until("the card's load in the metrics", latest, every=0.5)
        return found

    def seen(self, name: str) -> list[str]:
        wait_for(self.server, name, *ENDED)
        return log_of(self.server, name).splitlines()

    def waits(self, name: str) -> list[str]:
        """How a job that finds the machine taken is shown; it must not have been placed."""
        found = until(f"{name} to be looked at", lambda: run_of(self.server, name)["status"] == "submitted")
        return self.server.cli("ps", "-v").splitlines() if found else []

    def healthy(self) -> Any:
        (fleet,) = self.server.call("/api/project/main/fleets/list", {})
        query = {"fleet_name": fleet["name"], "instance_num": 0}
        path = "/api/project/main/instances/get_instance_health_checks"
        history = self.server.call(path, query)["health_checks"]
        return {"status": fleet["instances"][0]["health_status"], "checks": history}

    def underused(self) -> dict[str, Any]:
        """A job that leaves its card idle is ended after the window of its policy."""
        policy = "utilization_policy: {min_gpu_utilization: 10, time_window: 5m}\n"
        self.apply("lazy", gpu="1", command="sleep 1200", more=policy)
        began = time.monotonic()
        wait_for(self.server, "lazy", "running")
        until("the policy", lambda: run_of(self.server, "lazy")["status"] in ENDED, seconds=420, every=1)
        job = run_of(self.server, "lazy")["latest_job_submission"]
        return {"reason": job["termination_reason"], "after_s": round(time.monotonic() - began)}


def journey(home: Path, policy: bool, report: Callable[[str, Any], None], seconds: int) -> bool:
    """Tells each stage as it is done. `seconds`: for which a job fills its cards. Was all as it should be?"""
    home.mkdir()
    env = {"DSTACK_AGENT_RUNTIME": "process", "DSTACK_SERVER_TRUST_JOBS": "on"}  # jobs read files of this user
    with contextlib.closing(Server(home, env=env)) as server:
        one = Journey(server.start())
        own = ",".join(card[0] for card in one.cards)
        number = len(one.cards)
        machine = one.found()
        report("machine", machine)
        name = machine["told"][0][0]
        report("offers", json.loads(server.cli("offer", "--gpu", f"{name}:{number}", "--json")))
        one.busy("all", gpu=f"{name}:{number}", seconds=seconds)
        wait_for(server, "all", "running")
        one.busy("next", gpu=str(number), seconds=1)
        waits = one.waits("next")
        report("waits", waits)
        report("used", one.used("all"))
        report("metrics", server.cli("metrics", "all").splitlines())
        seen = {name: one.seen(name) for name in ("all", "next")}
        report("seen", seen)
        healthy = one.healthy()
        report("health", healthy)
        wanted = [f"told {own}", f"cards {number}", "ended"]
        right = machine["found_right"] and healthy["status"] == "healthy"
        right = right and seen == {"all": wanted, "next": wanted}
        if policy:
            ended = one.underused()
            report("underused", ended)
            right = right and ended["reason"] == "terminated_due_to_utilization_policy"
        return bool(right)
