"""A roster of tasks of which none runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from chalicelib.agent.kernel.task_runtime import TaskUsage
from chalicelib.agent.kernel.tasks import TaskFolder
from chalicelib.agent.program.roster import Roster

CARDS = [{"id": f"GPU-{number}", "vendor": "nvidia"} for number in range(4)]


class Runtime:
    """Runs nothing; keeps whose leavings it was asked to delete, and all but whose."""

    isolation = "none"

    def __init__(self, name: str) -> None:
        self.name, self.removed, self.swept = name, list[str](), list[set[str]]()
        self.used: TaskUsage | None = None

    def problem(self) -> str:
        return ""

    def storage(self) -> str:
        return ""

    def begin(self, context: Any) -> Any:
        raise AssertionError("a supervisor's affair")

    def network(self, folder: TaskFolder) -> int | None:
        return None

    def usage(self, folder: TaskFolder) -> TaskUsage | None:
        return self.used

    def remove(self, folder: TaskFolder) -> None:
        self.removed.append(folder.task)

    def sweep(self, known: set[str]) -> None:
        self.swept.append(known)


class Desk:
    def __init__(self, data: Path) -> None:
        self.data = data
        self.runtimes = {name: Runtime(name) for name in ("process", "docker")}
        self.roster = Roster(str(data), dict(self.runtimes), "docker", lambda: "program.pyz", "/d.sock")

    def create(self, task: str = "t", gpus: list[dict[str, Any]] | None = None, **spec: Any) -> dict[str, Any]:
        self.roster.create(task, spec, CARDS if gpus is None else gpus)
        return self.roster.folder(task).launch()

    def state(self, task: str = "t", **fields: Any) -> None:
        self.roster.folder(task).write_state(fields)
