"""`dstack: true` on a real server: tasks, dev environments and services call it from inside, until their run ends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.test_commands_real import log_of
from tests.harness.server import HttpError, Server, until

CALL = r"""python3 - <<'END'
import json, os, urllib.request
def call(path, body):
    request = urllib.request.Request(os.environ["DSTACK_SERVER_URL"] + path, json.dumps(body).encode())
    request.add_header("Authorization", "Bearer " + os.environ["DSTACK_TOKEN"])
    request.add_header("Content-Type", "application/json")
    return json.load(urllib.request.urlopen(request, timeout=100))
project = "/api/project/" + os.environ["DSTACK_PROJECT"]
names = [run["run_spec"]["run_name"] for run in call("/api/runs/list", {})]
small = {"type": "task", "name": "of-" + os.environ["DSTACK_RUN_NAME"], "commands": ["true"], "fleets": ["nowhere"]}
spec = {"run_name": small["name"], "repo_id": "none", "repo_data": {"repo_type": "virtual"}, "configuration": small}
made = call(project + "/runs/apply", {"plan": {"run_spec": spec, "current_resource": None}, "force": False})
print("ANSWER", json.dumps({"runs": names, "made": made["user"], "token": os.environ["DSTACK_TOKEN"]}), flush=True)
END"""
SMALL = {"cpu": {"min": 1}, "memory": {"min": 0.1}, "disk": {"size": {"min": 1}}}


def submit(server: Server, name: str, **fields: Any) -> None:
    configuration = {"type": "task", "name": name, "dstack": True, "fleets": ["local"], "resources": SMALL, **fields}
    spec = {"run_name": name, "repo_id": "none", "repo_data": {"repo_type": "virtual"}, "configuration": configuration}
    server.call("/api/project/main/runs/apply", {"plan": {"run_spec": spec}, "force": False})


def answered(server: Server, name: str) -> dict[str, Any]:
    """What the job printed of its calls."""

    def line() -> str:
        return next((one for one in log_of(server, name).splitlines() if one.startswith("ANSWER ")), "")

    found: dict[str, Any] = json.loads(until(f"{name} to call the server", line).partition(" ")[2])
    return found


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("sweep", {"commands": [CALL, "sleep 600"]}),
        ("desk", {"type": "dev-environment", "ide": "vscode", "init": [CALL]}),
        ("door", {"type": "service", "port": 8000, "auth": False, "commands": [CALL, "sleep 600"]}),
    ],
)
def test_a_job_calls_the_server_until_its_run_ends(server: Server, name: str, fields: dict[str, Any]) -> None:
    submit(server, name, **fields)
    seen = answered(server, name)
    assert name in seen["runs"] and seen["made"] == "admin"
    token = seen["token"]
    assert server.call("/api/users/get_my_user", token=token)["username"] == "admin"
    with pytest.raises(HttpError, match="lacks the verb"):
        server.call("/api/project/main/secrets/list", token=token)
    server.call("/api/project/main/runs/stop", {"runs_names": [name, f"of-{name}"], "abort": True})

    def ended() -> bool:
        run = server.call("/api/project/main/runs/get", {"run_name": name})
        return run["status"] in ("done", "failed", "terminated")

    until(f"{name} to end", ended)
    with pytest.raises(HttpError, match="The run of this access token has ended"):
        server.call("/api/users/get_my_user", token=token)
