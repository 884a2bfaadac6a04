"""What a member's job can take from the server that runs it, and what the server says about that when it starts."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from chalicelib.runtime.local_host import isolation_here
from chalicelib.runtime.settings import ServerSettings
from tests.harness.server import HttpError, Server
from tests.runtime.live import log_of, wait_for

root_only = pytest.mark.skipif(os.getuid() != 0, reason="only root may run jobs as somebody else")
NO_ENGINE = Path("/no/docker.sock")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    one = Server(tmp_path / "home", env={"DSTACK_AGENT_RUNTIME": "process"})
    one.home.mkdir()
    yield one
    one.close()


def member(server: Server) -> str:
    token: str = server.call("/api/users/create", {"username": "mallory", "global_role": "user"})["creds"]["token"]
    members = [{"username": "admin", "project_role": "admin"}, {"username": "mallory", "project_role": "user"}]
    server.call("/api/projects/main/set_members", {"members": members})
    return token


def submit(server: Server, token: str, name: str, *commands: str) -> None:
    configuration = {"type": "task", "name": name, "commands": list(commands), "resources": {"cpu": {"min": 1}}}
    spec = {"run_name": name, "repo_id": "none", "configuration": {**configuration, "resources": {"disk": None}}}
    plan = {"run_spec": spec, "current_resource": None}
    server.call("/api/project/main/runs/apply", {"plan": plan, "force": False}, token=token)


@root_only
def test_a_members_job_reads_neither_the_servers_keys_nor_its_token(server: Server) -> None:
    server.start()
    assert "Jobs on this machine run as plain processes, each as a user of its own" in server.lines
    pids = f"{server.process.pid}" if server.process else ""
    loot = " ".join(str(server.data / name) for name in ("install.key", "master.key", "plane.db", "agent/credential"))
    submit(server, member(server), "loot", f"cat {loot} /proc/{pids}/environ; ls {server.data}; echo at the end")
    wait_for(server, "loot", "done", "failed")
    log = log_of(server, "loot")
    assert log.count("Permission denied") == 6 and log.rstrip().endswith("at the end")
    keys = [(server.data / name).read_text() for name in ("install.key", "master.key")]
    assert not [secret for secret in (server.token, *keys) if secret in log]


@root_only
def test_trusted_jobs_run_as_the_servers_user(server: Server) -> None:
    server.start("--trust-jobs")
    warning = (
        "Jobs on this machine run as plain processes of the server's own user, without isolation, whoever submits them"
    )
    assert any(line.startswith(warning) for line in server.lines)
    submit(server, member(server), "mine", "id -u")
    wait_for(server, "mine", "done")
    assert log_of(server, "mine").split() == ["0"]


@root_only
def test_a_privileged_container_is_refused_before_it_is_planned(server: Server) -> None:
    server.start("--no-local-fleet")
    configuration = {"type": "task", "commands": ["id"], "image": "i", "privileged": True}
    spec = {"run_name": "x", "repo_id": "none", "configuration": configuration}
    with pytest.raises(HttpError, match="allow_non_admins_run_privileged"):
        server.call("/api/project/main/runs/get_plan", {"run_spec": spec}, token=member(server))


def isolation_text(**settings: object) -> str:
    return isolation_here(ServerSettings(**{"docker_socket": NO_ENGINE, **settings}))  # type: ignore[arg-type]


def isolation_text_without_root(**settings: object) -> str:
    """What a server says that somebody else than root runs."""
    if os.getuid():
        return isolation_text(**settings)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setresuid(61997, 61997, 61997)
            os.write(writer, isolation_text(**settings).encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as output:
        return output.read()


@root_only
def test_what_root_says_at_its_start() -> None:
    start = "Jobs on this machine run as plain processes"
    assert isolation_text(agent_runtime="process") == f"{start}, each as a user of its own"
    assert isolation_text() == f"{start}, each as a user of its own (there is no Docker engine at /no/docker.sock)"
    assert (
        isolation_text(agent_runtime="docker")
        == "Jobs can't run on this machine: there is no Docker engine at /no/docker.sock"
    )


def test_what_others_say_at_their_start() -> None:
    start = "Jobs on this machine run as plain processes of the server's own user, without isolation"
    assert isolation_text_without_root(agent_runtime="process") == (
        f"{start}; only those of admins.\n  For other members' jobs, install Docker, run the server as root, or "
        "start it with --trust-jobs if you trust them all"
    )
    trusting = isolation_text_without_root(agent_runtime="process", trust_jobs=True)
    assert trusting == f"{start}, whoever submits them: --trust-jobs"
    assert "(there is no Docker engine at /no/docker.sock)" in isolation_text_without_root()


def test_an_engine_that_answers_is_used() -> None:
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as engine:
        engine.bind(f"{folder}/d.sock")
        engine.listen()
        child = os.fork()
        if child == 0:
            connection, _ = engine.accept()
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK")
            os._exit(0)
        assert isolation_text(docker_socket=Path(f"{folder}/d.sock")) == "Jobs on this machine run in containers"
        os.waitpid(child, 0)
