"""Attaching to jobs of a real server: `ssh RUN`, forwarded ports, a cut, dev environments; at once, and through it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.kernel.process_tree import descendants
from tests.harness.debian import ssh_server
from tests.harness.ports import free_port
from tests.harness.server import PATIENCE, ROOT, Server, until

SMALL = {"cpu": "1..", "memory": "0.1GB..", "disk": "1GB.."}
DSTACK = [sys.executable, "-m", "cli.main"]
HEEDS_CTRL_C = ("env", "--default-signal=INT")  # also if the suite was started in the background of a shell
PYTHON = "/usr/bin/python3"  # of the job, whose user may not look into our environment

# The client of somebody to whom this machine is another: nothing of it answers, so the server carries the bytes.
ELSEWHERE = """
import sys
from cli import main
from cli.screen import terminal
from cli.ssh import tunnel
class Ssh(tunnel.OpenSsh):
    def answers(self, hop): return False
one = terminal.Terminal()
sys.exit(main.invoke(sys.argv[1:], terminal.Terminal(ssh=Ssh(one.env))))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    ssh_server()
    one = Server(tmp_path_factory.mktemp("attach") / "home", (), {"DSTACK_AGENT_RUNTIME": "process"})
    with contextlib.closing(one):
        one.start()
        until("this machine to join", lambda: "idle" in one.cli("fleet"))
        yield one


def environment(server: Server) -> dict[str, str]:
    return {**server.environment(), "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


class Client:
    """A `dstack` command that stays, and what it has said so far."""

    def __init__(self, server: Server, folder: Path, *arguments: str, program: list[str] = DSTACK) -> None:
        self.file = folder / f"said-{time.monotonic_ns()}"
        with self.file.open("wb") as output:
            self.process = subprocess.Popen(
                [*HEEDS_CTRL_C, *program, *arguments],
                cwd=folder,
                env=environment(server),
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def shown(self) -> str:
        return self.file.read_text()

    def wait_for(self, text: str, times: int = 1) -> None:
        def seen() -> bool:
            assert self.process.poll() is None or self.shown.count(text) >= times, self.shown
            return self.shown.count(text) >= times

        until(f"{text!r} in:\n{self.shown}", seen)

    def detach(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(PATIENCE)


@contextlib.contextmanager
def client(server: Server, folder: Path, *arguments: str, program: list[str] = DSTACK) -> Iterator[Client]:
    with contextlib.closing(Client(server, folder, *arguments, program=program)) as one:
        yield one


def write(folder: Path, name: str, configuration: dict[str, Any]) -> None:
    (folder / ".dstack.yml").write_text(json.dumps({"name": name, "resources": SMALL, **configuration}))


def start(server: Server, folder: Path, name: str, configuration: dict[str, Any]) -> None:
    write(folder, name, configuration)
    line = [*DSTACK, "apply", "-y", "-d"]
    subprocess.run(line, cwd=folder, env=environment(server), check=True, stdout=subprocess.DEVNULL)
    until(f"{name} to run", lambda: status(server, name) == "running")


def status(server: Server, name: str) -> str:
    return str(server.call("/api/project/main/runs/get", {"run_name": name})["status"])


def ssh(server: Server, *arguments: str) -> str:
    """What a user types, with the configuration of this user's home."""
    done = subprocess.run(
        ["ssh", "-F", str(server.home / ".ssh" / "config"), *arguments],
        env=environment(server),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def hello_at(port: int) -> str:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as one:
        return one.recv(100).decode()


def listens(port: int) -> bool:
    with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), timeout=PATIENCE):
        return True
    return False


def tunnel_of(client: int) -> int:
    """The process that forwards its ports; 0: none."""
    for pid in descendants(client):
        with contextlib.suppress(OSError):
            if b"-L" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
    return 0


GREETER = """\
import socket
with socket.create_server(("127.0.0.1", {port})) as server:
    print("listening", flush=True)
    while True:
        with server.accept()[0] as one: one.sendall(b"hello from the job")
"""


def greeting(local: int, port: int) -> dict[str, Any]:
    command = f"{PYTHON} -c {shlex.quote(GREETER.format(port=port))}"
    return {"type": "task", "ports": [f"{local}:{port}"], "commands": [command]}


@pytest.mark.parametrize("program", [DSTACK, [sys.executable, "-c", ELSEWHERE]], ids=["at once", "through the server"])
def test_a_run_is_logged_in_to_and_its_ports_are_here(server: Server, tmp_path: Path, program: list[str]) -> None:
    name, local, port = f"web{program is DSTACK:d}", free_port(), free_port()
    start(server, tmp_path, name, greeting(local, port))
    with client(server, tmp_path, "attach", name, "--logs", program=program) as one:
        one.wait_for(f"ssh {name}\n")
        one.wait_for("listening")
        assert ("directly" if program is DSTACK else "through the server") in one.shown
        assert f"localhost:{local} → port {port} of the job" in one.shown
        assert hello_at(local) == "hello from the job"
        assert ssh(server, name, "echo $DSTACK_RUN_NAME; exit") == f"{name}\n"

        os.kill(until("its tunnel", lambda: tunnel_of(one.process.pid)), signal.SIGKILL)
        one.wait_for("attaching again")
        one.wait_for("Attached to", times=2)
        assert hello_at(local) == "hello from the job"
        assert one.shown.count("listening") == 1, "the log goes on without repeating itself"

        assert one.detach() == 0 and "Detached" in one.shown
    assert list((server.home / ".dstack" / "ssh" / "runs").iterdir()) == []
    until("its port to be free", lambda: not listens(local))
    assert status(server, name) == "running"
    server.cli("stop", name, "-y", "-x")


def test_an_attached_apply_shows_lines_as_they_come_and_ends_with_the_run(server: Server, tmp_path: Path) -> None:
    local, port = free_port(), free_port()
    write(tmp_path, "watched", greeting(local, port))
    with client(server, tmp_path, "apply", "-y") as one:
        one.wait_for("ssh watched\n")
        one.wait_for("listening")
        assert hello_at(local) == "hello from the job"
        until("the port to be told as in use", lambda: refused(server, tmp_path, local))
        server.cli("stop", "watched", "-y", "-x")
        assert one.process.wait(PATIENCE) == 1 and "watched terminated" in one.shown
    assert one.shown.count("listening") == 1


def refused(server: Server, folder: Path, port: int) -> bool:
    line = [*DSTACK, "attach", "watched"]
    done = subprocess.run(line, cwd=folder, env=environment(server), capture_output=True, text=True, timeout=PATIENCE)
    return done.returncode == 1 and f"Port {port} of this machine is in use" in done.stderr


def test_a_dev_environment_is_worked_in_until_it_is_stopped(server: Server, tmp_path: Path) -> None:
    init = ["echo prepared > note", "echo ready"]
    write(tmp_path, "work", {"type": "dev-environment", "ide": "vscode", "init": init})
    with client(server, tmp_path, "apply", "-y") as one:
        one.wait_for("Open it in VS Code:")
        one.wait_for("ssh work\n")
        link = re.search(r"vscode://vscode-remote/ssh-remote\+work(/\S+)", one.shown)
        assert link and ssh(server, "work", f"cat {link[1]}/note") == "prepared\n"
        assert one.detach() == 0
    with client(server, tmp_path, "attach", "work") as one:
        one.wait_for("vscode://vscode-remote/ssh-remote+work/")
        server.cli("stop", "work", "-y")
        assert one.process.wait(PATIENCE) == 1, "a stopped run is no success"
    assert "work terminated" in one.shown
