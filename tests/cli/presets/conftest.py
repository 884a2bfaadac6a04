"""A user with a preset, a control plane that runs its services, and a language model: all in this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from cli.presets import records
from cli.presets.records import Folder
from cli.presets.worker import Worker
from cli.screen.terminal import Terminal
from tests.cli.conftest import NOW, Dstack
from tests.cli.plane import NOT_THERE, Plane, finished, log_page, machine, offer, run, submission
from tests.cli.presets.samples import PRESET
from tests.cli.presets.scripted import Scripted, running
from tests.world import cli

A100 = machine(gpus=(("A100", 81920),))


@dataclass
class Clock:
    now: float = NOW

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Cloud:
    """The control plane's runs. `unfit`: what ends a service instead of running it, by name."""

    scripted: Scripted
    price: float = 2.0
    share: Any = None  # of a machine, that a job gets instead of the whole
    offers: int = 1
    runs: dict[str, str] = field(default_factory=dict)
    unfit: dict[str, str] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)  # runs that never start
    specs: list[dict[str, Any]] = field(default_factory=list)  # as they were submitted
    notes: list[dict[str, Any]] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)

    def answers(self) -> dict[str, Any]:
        return {
            "/runs/get_plan": self.plan,
            "/runs/apply": self.apply,
            "/runs/get": lambda body: self.run(body["run_name"]),
            "/runs/stop": self.stop,
            "/logs/poll": log_page("CUDA error: out of memory\n"),
        }

    def plan(self, body: dict[str, Any]) -> dict[str, Any]:
        spec = body["run_spec"]
        found = [offer("a2", self.price, resources=A100)] * self.offers
        needs = {"resources": spec["configuration"]["resources"], "spot": False, "max_price": None}
        job = {
            "job_spec": {"requirements": needs},
            "offers": found,
            "total_offers": len(found),
            "max_price": self.price,
        }
        whole = {
            "project_name": "main",
            "user": "admin",
            "run_spec": spec,
            "effective_run_spec": spec,
            "action": "create",
        }
        return {**whole, "job_plans": [{**job, "count": 1}], "current_resource": None, "notes": self.notes}

    def apply(self, body: dict[str, Any]) -> dict[str, Any]:
        spec = body["plan"]["run_spec"]
        name = spec["run_name"]
        self.specs.append(spec)
        self.runs[name] = "failed" if name in self.unfit else "submitted" if name in self.waiting else "running"
        found: dict[str, Any] = self.run(name)
        return found

    def run(self, name: str) -> Any:
        status = self.runs.get(name)
        if status is None:
            return NOT_THERE
        placed = offer("a2", self.price, resources=A100)
        data = {"backend": "aws", "instance_type": placed["instance"], "region": "us-east-1", "price": self.price}
        latest = submission(
            "running",
            job_provisioning_data={**data, "dockerized": True},
            job_runtime_data={"offer": self.share or placed},
        )
        service = {"url": f"{self.scripted.url}/services/{name}/", "model": None, "options": {}, "scales": []}
        if status == "failed":
            return finished(name, "failed", 1, error=self.unfit[name], service=service)
        waits = {"message": "the quota of the project is used up"} if status == "submitted" else {}
        cost = 0.25 if status == "terminated" else 0.0
        return run(name, status, latest=latest, service=service, cost=cost, **waits)

    def stop(self, body: dict[str, Any]) -> None:
        for name in body["runs_names"]:
            self.stopped.append(name)
            self.runs[name] = "terminated"

    def active(self) -> list[str]:
        return [name for name, status in self.runs.items() if status not in ("terminated", "failed")]


@dataclass
class Work:
    """One user, whose presets are created before `dstack apply` follows them."""

    dstack: Dstack
    plane: Plane
    cloud: Cloud
    scripted: Scripted
    clock: Clock
    working: bool = True  # else the worker dies at once
    env: Mapping[str, str] = field(default_factory=dict)  # of the latest command, which the worker inherits

    def __call__(self, *args: str, answers: str = "", **changes: Any) -> cli.Ended:
        self.env = changes.get("env", self.dstack.terminal.env)
        return self.dstack(*args, answers=answers, **changes)

    def write(self, more: str = "", name: str = "qwen.dstack.yml", **without: str) -> None:
        text = PRESET % self.scripted.url
        for field_, value in without.items():
            text = "".join(
                f"{field_}: {value}\n" if line.startswith(f"{field_}:") else line
                for line in text.splitlines(keepends=True)
            )
        (self.dstack.terminal.cwd / name).write_text(text + more)

    def folder(self) -> Folder:
        return records.every(self.dstack.terminal.home)[-1]

    def preset(self) -> Any:
        return self.folder().read()

    def begin(self, arguments: Sequence[str], log: Path, lock: int) -> None:
        """In place of the process."""
        assert arguments[0] == "cli.presets.worker" and log.parent == Path(arguments[1]) and lock > 0
        if self.working:
            self.worker(Folder(Path(arguments[1])), env=self.env).run()

    def worker(self, folder: Folder, **changes: Any) -> Worker:
        return Worker(replace(self.dstack.terminal, **changes), folder)


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    with running(Scripted()) as found:
        yield found


@pytest.fixture
def work(dstack: Dstack, plane: Plane, scripted: Scripted) -> Work:
    clock, cloud = Clock(), Cloud(scripted)
    plane.answers |= cloud.answers()
    found = Work(dstack, plane, cloud, scripted, clock)
    env = {"DSTACK_AGENT_OPENAI_API_KEY": "sk-very-secret"}
    terminal: Terminal = replace(
        dstack.terminal, env=env, now=lambda: clock.now, sleep=clock.sleep, begin=found.begin, columns=80
    )
    found.dstack = Dstack(terminal, dstack.naps)
    found.write()
    return found
