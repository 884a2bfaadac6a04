"""Where a secret may be seen while a real job uses it: in the job itself, and nowhere that outlives it."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.measure import submit, task, wait_local_host
from tests.harness.gates import Gate, gate
from tests.harness.server import Server, read_of_processes, until
from tests.runtime.live import log_of, wait_for

SECRET, GIT_TOKEN = "s3cret-value-xyzzy", "ghp_git-token-plugh"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    one = Server(tmp_path / "home", env={"DSTACK_AGENT_RUNTIME": "process"})
    one.home.mkdir()
    try:
        wait_local_host(one.start("--log-level", "debug"))
        yield one
    finally:
        one.close()


@pytest.fixture
def seen() -> Iterator[Gate]:
    with gate() as one:
        yield one


def files_with(folder: Path, text: str) -> set[Path]:
    found = set()
    for path in folder.rglob("*"):
        try:
            if path.is_file() and text.encode() in path.read_bytes():
                found.add(path)
        except FileNotFoundError:  # the agent tidies up meanwhile
            continue
    return found


def test_secrets_and_tokens_are_in_no_file_log_event_or_command_line(server: Server, seen: Gate) -> None:
    project = "/api/project/main"
    server.call(f"{project}/secrets/create_or_update", {"name": "k", "value": SECRET})
    creds = {"clone_url": "https://example.com/r.git", "private_key": None, "oauth_token": GIT_TOKEN}
    server.call(
        f"{project}/repos/init", {"repo_id": "none", "repo_info": {"repo_type": "virtual"}, "repo_creds": creds}
    )
    made = server.call("/api/users/create", {"username": "bob", "global_role": "user"})["creds"]["token"]
    private = server.call("/api/users/get_my_user")["ssh_private_key"].splitlines()[2]
    submit(server, task("uses", "echo has ${#K} characters", seen.command, env={"K": "${{ secrets.k }}"}))
    wait_for(server, "uses", "running")

    for path in files_with(server.data, SECRET):  # what the job is started from, for as long as it lives
        assert "tasks" in path.parts and not stat.S_IMODE(path.stat().st_mode) & 0o077, path
    lines = read_of_processes(server.home, "cmdline")
    for secret in (SECRET, GIT_TOKEN, made, private, server.token):
        assert not any(secret.encode() in line for line in lines), "in a command line"
        assert secret not in json.dumps(server.call("/api/events/list", {})), "in an event"
        if secret != SECRET:
            assert files_with(server.data, secret) == set()
        logged = [line for line in server.lines if secret in line]
        assert all(line == f"The admin token is {secret}" for line in logged), logged

    seen.open()
    assert wait_for(server, "uses", "done", "failed")["status"] == "done"
    assert log_of(server, "uses").split() == ["has", str(len(SECRET)), "characters"]
    assert until("the task's folder to go", lambda: not files_with(server.data, SECRET))


def test_nothing_that_the_server_starts_inherits_the_admin_token(server: Server) -> None:
    """A job may read the environments of the processes above it."""
    submit(server, task("waits", "sleep 600"))
    wait_for(server, "waits", "running")
    environments = read_of_processes(server.home, "environ")
    assert len(environments) >= 4, "the server, the agent, a supervisor and a job"
    with_it = [each for each in environments if server.token.encode() in each]
    assert len(with_it) == 1, "the server's own"
