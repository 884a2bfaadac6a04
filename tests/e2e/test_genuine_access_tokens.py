"""The genuine command line and Python API with an access token: they work as far as it goes, and say where it ends."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from tests.e2e.peer import VENV, Peer, joined
from tests.e2e.test_genuine_cli import LONG, TASK, finished, write
from tests.harness.server import PATIENCE, Server, until

DEAR = "{type: task, name: dear, commands: [sleep 600], resources: {gpu: 'H100:8'}}"
LATER = "{type: task, name: later, commands: [sleep 600]}"
POOL = {"type": "fleet", "name": "pool", "nodes": "0..2"}


def made(server: Server, name: str, *verbs: str) -> str:
    body = {"name": name, "verbs": verbs, "projects": ["main"], "expires_in": 3600}
    answer: dict[str, Any] = server.call("/api/users/access_tokens/create", body)
    return str(answer["token"])


def test_a_token_for_runs_of_a_project_submits_lists_and_stops_them(server: Server, tmp_path: Path) -> None:
    peer = joined(server, tmp_path / "home", made(server, "ci", "run"))
    assert [row[0] for row in peer.run("project", "list").rows()[1:]] == ["main"]
    peer.run("apply", "-y", "-d", "-f", write(peer, "task.dstack.yml", TASK + "files: [./task.dstack.yml]\n"))
    assert finished(server, "hello") == "done"
    assert peer.run("logs", "hello").text.replace("\r", "").splitlines() == ["hello from hello", "and an error"]
    peer.run("apply", "-y", "-d", "-f", write(peer, "long.dstack.yml", LONG))
    until("it to run", lambda: server.call("/api/project/main/runs/get", {"run_name": "long"})["status"] == "running")
    assert "Stopped" in peer.run("stop", "-y", "long").text
    assert finished(server, "long") == "terminated"
    assert {row[0] for row in peer.run("ps", "-a").rows()} >= {"hello", "long"}
    assert "local" in peer.run("fleet").text and peer.json("offer", "--json", "--max-offers", "3")
    assert "hello" in peer.run("event", "--target-run", "hello").text
    assert "is denied" in peer.run("secret", "set", "token", "s3cret", expect=1).text


def test_in_a_job_it_needs_only_what_the_job_gets(peer: Peer, server: Server, tmp_path: Path) -> None:
    """The variables of `dstack: true`, and an empty home."""
    given = {"DSTACK_SERVER_URL": server.url, "DSTACK_PROJECT": "main", "DSTACK_TOKEN": made(server, "job", "run")}
    env = {**peer.environment(), "HOME": str(tmp_path), **given}
    command = [VENV / "bin" / "dstack", "ps", "-a"]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=2 * PATIENCE)
    assert done.returncode == 0 and "hello" in done.stdout, done.stdout + done.stderr


def test_a_revoked_token_is_refused(server: Server, tmp_path: Path) -> None:
    peer = joined(server, tmp_path / "home", made(server, "short", "read"))
    peer.run("ps")
    server.call("/api/users/access_tokens/revoke", {"name": "short"})
    assert "is denied" in peer.run("ps", expect=1).text


def test_the_python_api_runs_a_task_with_one(peer: Peer, server: Server) -> None:
    token = made(server, "program", "run", "project")
    seen = peer.python(Path(__file__).parent / "api_journey.py", token=token)
    assert seen["status"] == "running" and seen["ended"] == "terminated" and seen["got"] == "byapi"


def test_a_run_over_the_dollars_of_its_token_waits_and_says_so(tmp_path: Path) -> None:
    server = Server(tmp_path / "server", flags=("--fake-cloud", "--no-local-fleet"))
    server.home.mkdir()
    try:
        server.start()
        server.call("/api/project/main/fleets/apply", {"plan": {"spec": {"configuration": POOL}}, "force": False})
        wanted = {"name": "ci", "verbs": ["run"], "dollars_a_day": 0.01}
        token = server.call("/api/users/access_tokens/create", wanted)["token"]
        peer = joined(server, tmp_path / "home", token)
        peer.run("apply", "-y", "-d", "-f", write(peer, "dear.dstack.yml", DEAR))
        until("it to be spent", lambda: server.call("/api/users/access_tokens/list")[0]["spent_today"] >= 0.01)
        peer.run("apply", "-y", "-d", "-f", write(peer, "later.dstack.yml", LATER))
        waits = "".join("".join(row) for row in peer.run("ps", "-v").rows())
        assert "waiting for quota: the access token ci has spent its $0.01 of today" in " ".join(waits.split()), waits
    finally:
        server.close()
