"""What a first start makes, and what a start that can't be says."""

from __future__ import annotations

import socket
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.bench.measure import submit, task
from tests.harness import forks
from tests.harness.ports import free_port
from tests.harness.server import PATIENCE, ROOT, HttpError, Server, read_of_processes, until
from tests.runtime.live import wait_for


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    one = Server(tmp_path / "home", flags=("--no-local-fleet",))
    one.home.mkdir()
    yield one
    one.close()


def refused(server: Server, *flags: str) -> str:
    """What a start says that must fail."""
    words = ["server", "--data-dir", str(server.data), "--no-local-fleet", *flags]
    status, _, said = forks.streams(words, ROOT, server.environment(), seconds=int(PATIENCE))
    assert status == 1 and "Traceback" not in said, said
    return said


def test_the_first_start_makes_everything_private_and_prints_the_token_once(server: Server) -> None:
    server.start()
    shown = "\n".join(server.lines)
    assert server.url in shown and server.token in shown
    config = yaml.safe_load((server.home / ".dstack" / "config.yml").read_text())
    assert config["projects"] == [{"name": "main", "url": server.url, "token": server.token, "default": True}]
    for path in (server.data, *server.data.rglob("*")):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, f"{path} can be read by others"
    assert server.call("/api/users/get_my_user")["username"] == "admin"
    server.stop()
    server.start()
    assert server.token not in "\n".join(server.lines)


@pytest.mark.parametrize("sign", ["server.lock", "plane.db", "install.key", "agent.pyz", "master.key", "blobs"])
def test_a_first_start_that_is_killed_is_made_good_by_the_next(server: Server, sign: str) -> None:
    """It is killed as soon as it has created something."""
    words = ["server", "--port", "0", "--data-dir", str(server.data)]
    process = forks.fork(words, ROOT, server.environment())
    until(sign, (server.data / sign).exists, every=0.001)
    process.kill()
    process.wait()
    process.stdout.close()
    server.start()
    assert server.call("/api/users/get_my_user")["username"] == "admin"
    assert [project["project_name"] for project in server.call("/api/projects/list", {})] == ["main"]


def test_a_token_that_was_lost_is_replaced_by_another_start(server: Server) -> None:
    server.env["DSTACK_SERVER_ADMIN_TOKEN"] = ""
    server.start()
    server.stop()
    server.env["DSTACK_SERVER_ADMIN_TOKEN"] = server.token = "another-token"
    server.start()
    assert server.call("/api/users/get_my_user")["username"] == "admin"


def test_a_port_in_use_is_said_in_one_line(server: Server) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        said = refused(server, "--port", str(taken.getsockname()[1]))
    assert "in use" in said and "--port" in said


def test_a_second_server_on_the_same_folder_is_refused(server: Server) -> None:
    server.start()
    assert "--data-dir" in refused(server, "--port", "0")


def test_a_data_folder_of_a_newer_version_is_left_alone(server: Server) -> None:
    server.start()
    server.stop()
    database = server.data / "plane.db"
    with sqlite3.connect(database) as connection:
        connection.execute("PRAGMA user_version = 9999")
    connection.close()
    content = database.read_bytes()
    assert "newer" in refused(server, "--port", "0")
    assert database.read_bytes() == content


def test_a_body_over_the_limit_is_refused_by_size_and_nothing_else_suffers(server: Server) -> None:
    server.start()
    with pytest.raises(HttpError) as refused:
        server.call("/api/project/main/runs/get_plan", {"run_spec": "x" * 10_000_000})
    assert refused.value.status == 400 and "MB" in refused.value.body
    assert server.call("/api/users/get_my_user")["username"] == "admin"


def test_unknown_paths_and_methods_are_json(server: Server) -> None:
    server.start()
    for path, method, status in (("/api/nothing", "POST", 404), ("/api/users/list", "GET", 405)):
        with pytest.raises(HttpError) as refused:
            server.call(path, method=method)
        assert refused.value.status == status
        assert refused.value.body.startswith("{")


def test_what_is_bought_reports_to_the_public_url_and_this_machine_to_loopback(tmp_path: Path) -> None:
    """`localhost` leads here too, but isn't what the server listens on, so whoever uses it was told to."""
    port = free_port()
    public = f"http://localhost:{port}"
    server = Server(tmp_path / "home", ("--fake-cloud", "--public-url", public), {"DSTACK_AGENT_RUNTIME": "process"})
    server.home.mkdir()
    try:
        server.start(port=port)
        assert f"Remote machines will be given {public}" in server.lines
        spec = {"configuration": {"type": "fleet", "name": "cloud", "nodes": 1, "resources": {"cpu": "1.."}}}
        server.call("/api/project/main/fleets/apply", {"plan": {"spec": spec}, "force": False})

        def statuses() -> list[str]:
            fleets = server.call("/api/project/main/fleets/list", {})
            return [instance["status"] for fleet in fleets for instance in fleet["instances"]]

        until("both machines to join", lambda: statuses() == ["idle", "idle"])
        commands = [line.decode().split("\0") for line in read_of_processes(server.home, "cmdline")]
        urls = {
            command[command.index("--data") + 1]: command[command.index("--server") + 1]
            for command in commands
            if "--server" in command and "--data" in command
        }
        local = str(server.data / "agent")
        assert urls.pop(local) == server.url == f"http://127.0.0.1:{port}"
        assert set(urls.values()) == {public}
    finally:
        server.close()


def test_the_simulated_clouds_machines_end_with_the_server_and_what_goes_on_is_said(tmp_path: Path) -> None:
    server = Server(tmp_path / "home", ("--fake-cloud",), {"DSTACK_AGENT_RUNTIME": "process"})
    server.home.mkdir()
    try:
        server.start()
        fleet = {"type": "fleet", "name": "cloud", "nodes": 1, "resources": {"cpu": "1.."}}
        server.call("/api/project/main/fleets/apply", {"plan": {"spec": {"configuration": fleet}}, "force": False})
        for name, where in (("here", "local"), ("there", "cloud")):
            submit(server, task(name, "sleep 600", fleets=[where]))
        for name in ("here", "there"):
            wait_for(server, name, "running")
        server.stop()
        until("its last words", lambda: any("--stop-jobs" in line for line in server.lines))
        assert "1 machine of the simulated cloud ended with the server." in server.lines
        assert "1 run goes on without the server: here." in server.lines
        until("its machines to end", lambda: b"/fake-cloud/" not in b"".join(read_of_processes(server.home, "cmdline")))
        assert b"sleep" in b"".join(read_of_processes(server.home, "cmdline"))
    finally:
        server.close()
