"""What tests ask a real server, again and again."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.harness.server import Server, until


@dataclass(frozen=True)
class Gate:
    """A job's command waits at it until the test opens it, so that nothing depends on how fast either is."""

    folder: Path

    @property
    def command(self) -> str:
        return f"until [ -e {self.folder}/open ]; do sleep 0.1; done"

    def open(self) -> None:
        (self.folder / "open").touch()


@contextmanager
def gate() -> Iterator[Gate]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # jobs have users of their own
        yield Gate(Path(folder))


def run_of(server: Server, name: str) -> dict[str, Any]:
    run: dict[str, Any] = server.call("/api/project/main/runs/get", {"run_name": name})
    return run


def wait_for(server: Server, name: str, *statuses: str) -> dict[str, Any]:
    run: dict[str, Any] = until(
        f"{name} to be {statuses}",
        lambda: (run := run_of(server, name)) and run["status"] in statuses and run,
    )
    return run


def log_of(server: Server, name: str) -> str:
    return _log(server, name, run_of(server, name)["latest_job_submission"]["id"])


def logs_of(server: Server, name: str) -> list[str]:
    """Of each node, by rank."""
    return [_log(server, name, job["job_submissions"][-1]["id"]) for job in run_of(server, name)["jobs"]]


def _log(server: Server, name: str, submission: str) -> str:
    request: dict[str, Any] = {"run_name": name, "job_submission_id": submission, "limit": 1000, "descending": False}
    found = b""
    while True:
        page = server.call("/api/project/main/logs/poll", request)
        found += b"".join(base64.b64decode(entry["message"]) for entry in page["logs"])
        if page["next_token"] is None:
            return found.decode()
        request["next_token"] = page["next_token"]


def agent_pid(server: Server) -> int:
    """Who holds the agent's lock; an agent that has just started writes that a moment later."""
    lock = server.data / "agent" / "lock"
    return int(until("the agent's process id", lambda: lock.read_text().strip()))
