"""What tests ask a real server, again and again."""

from __future__ import annotations

import base64
from typing import Any

from tests.harness.server import Server, until


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
