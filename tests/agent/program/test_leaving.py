"""Leaving a fleet: what the server is told, what goes, and what keeps a machine from leaving. On a real host, with a
real systemd, `test_join_real` shows it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import tempfile
import threading
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.kernel.tasks import take_lock
from chalicelib.agent.program import leaving
from chalicelib.agent.program.main import main
from tests.agent.desk import Desk

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root may clear a machine")


class ScriptedServer(HTTPServer):
    """A server that answers with these statuses in turn, the last of them for ever."""

    def __init__(self, *statuses: int) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.statuses, self.received = list(statuses), list[tuple[str, str, Any]]()


class Answers(BaseHTTPRequestHandler):
    server: ScriptedServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append((self.path, self.headers["Authorization"], json.loads(body)))
        statuses = self.server.statuses
        self.send_response(statuses.pop(0) if len(statuses) > 1 else statuses[0])
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing: the tests look at what was heard."""


@pytest.fixture
def control_plane(request: pytest.FixtureRequest) -> Iterator[ScriptedServer]:
    server = ScriptedServer(*request.param)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def folder(at: Path, url: str) -> str:
    for name, text in {
        "server": f"{url}/\n",
        "credential": "i.secret\n",
        "instance": "i\n",
        "unit": "u.service",
    }.items():
        (at / name).write_text(text)
    return str(at)


@pytest.mark.parametrize("control_plane", [(200,), (503, 200), (403,), (404,)], indirect=True, ids=str)
def test_the_server_hears_it_once_it_answers(control_plane: ScriptedServer, tmp_path: Path) -> None:
    """One that knows nothing of the machine has nothing to hear."""
    calls = len(control_plane.statuses)
    patience = 60.0 if calls > 1 else 0.0
    assert (
        leaving.notify_server(folder(tmp_path, f"http://127.0.0.1:{control_plane.server_port}"), patience, every=0.01)
        == ""
    )
    assert control_plane.received == [("/agent/left", "Bearer i.secret", {"instance": "i"})] * calls


@pytest.mark.parametrize("control_plane", [(500,)], indirect=True)
def test_a_server_that_fails_hasnt_heard_it(control_plane: ScriptedServer, tmp_path: Path) -> None:
    assert "HTTP 500" in leaving.notify_server(folder(tmp_path, f"http://127.0.0.1:{control_plane.server_port}"), 0.0)
    assert "can't be notified" in leaving.notify_server(folder(tmp_path, "http://127.0.0.1:1"), 0.0)


def test_what_isnt_http_hasnt_heard_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            accepted, _ = listener.accept()
            with accepted:
                accepted.recv(65536)
                accepted.sendall(b"220 mail\r\n")
                accepted.shutdown(socket.SHUT_WR)
                while accepted.recv(65536):
                    """Until it has read that: what is left unread here would break the connection first."""

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        assert "can't be notified (220 mail" in leaving.notify_server(
            folder(tmp_path, f"http://127.0.0.1:{listener.getsockname()[1]}"), 0.0
        )
        thread.join()


def test_only_a_machine_that_joined_by_itself_leaves_by_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["leave", "--data", str(tmp_path)]) == 1
    assert "isn't the folder of an agent that joined by itself" in capsys.readouterr().err


@root_only
@pytest.mark.slow
def test_only_root_clears_a_machine() -> None:
    with tempfile.TemporaryDirectory() as place:  # others may look into this one
        Path(place).chmod(0o755)
        folder(Path(place), "http://127.0.0.1:1")
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.setresuid(62997, 62997, 62997)
                with contextlib.redirect_stderr(io.StringIO()) as output:
                    status = 0 if main(["leave", "--data", place]) == 1 and "use sudo" in output.getvalue() else 1
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0


@pytest.mark.slow
def test_it_outlives_the_session_of_the_agent_that_starts_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "said")
    script = "print(os.getpid(), os.getsid(0), os.getcwd(), *sys.argv[1:])"
    program = f"import os, sys\nsys.stdout = open(os.path.dirname(__file__) + '/said', 'w')\n{script}\n"
    (tmp_path / "agent.pyz").write_text(program)
    leaving.start(str(tmp_path))
    pid, *arguments = (tmp_path / "said").read_text().split()
    assert arguments == [pid, "/", "leave", "--data", str(tmp_path)]
    os.waitpid(int(pid), 0)


def test_what_systemctl_says_of_units_that_arent_there_is_left_unsaid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "systemctl").write_text(
        f'#!/bin/sh\necho "$@" >{tmp_path}/asked; echo no unit | tee /dev/stderr; exit 5\n'
    )
    (tmp_path / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    leaving.systemctl("disable", "u.service")
    assert (tmp_path / "asked").read_text() == "--quiet disable u.service\n"
    assert capfd.readouterr() == ("", "")


# --- the whole ------------------------------------------------------------------------------------------------------


@dataclass
class Machine:
    """A machine with one unit of ours and another, whose systemd writes down what it is told."""

    at: Path
    url: str
    commands: list[tuple[str, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.desk = Desk(self.at / "data")
        self.units = self.at / "units"
        self.units.mkdir()
        for name in ("u.service", "other.service"):
            (self.units / name).touch()
        self.desk.create("over")
        folder(self.desk.data, self.url)
        self.desk.state("over", state="exited")

    def leave(self, force: bool = False) -> int:
        given = Namespace(data=str(self.desk.data), docker_socket="/d.sock", users="", force=force)

        def systemctl(*arguments: str) -> None:
            self.commands.append(arguments)

        return leaving.leave(given, lambda data, options: dict(self.desk.runtimes), systemctl, str(self.units), 0.0)


GONE = [("stop", "u.service"), ("disable", "u.service"), ("daemon-reload",), ("reset-failed", "u.service")]


@root_only
@pytest.mark.parametrize("control_plane", [(200,)], indirect=True)
def test_nothing_of_the_agent_is_left_once_the_server_knows(control_plane: ScriptedServer, tmp_path: Path) -> None:
    machine = Machine(tmp_path, f"http://127.0.0.1:{control_plane.server_port}")
    assert machine.leave() == 0
    assert control_plane.received == [("/agent/left", "Bearer i.secret", {"instance": "i"})]
    assert machine.commands == GONE
    assert [path.name for path in machine.units.iterdir()] == ["other.service"]
    assert not machine.desk.data.exists()
    assert machine.desk.runtimes["docker"].removed == ["over"]


@root_only
def test_a_server_that_is_away_keeps_a_machine_unless_forced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = Machine(tmp_path, "http://127.0.0.1:1")
    assert machine.leave() == 1
    assert machine.commands == [("stop", "u.service"), ("start", "u.service")], "the agent goes on"
    output = capsys.readouterr().err
    assert "(--force leaves without it); nothing else was removed" in output
    assert (machine.desk.data / "credential").exists() and len(list(machine.units.iterdir())) == 2
    assert machine.leave(force=True) == 0
    assert "it still lists this machine" in capsys.readouterr().err
    assert machine.commands[2:] == GONE and not machine.desk.data.exists()


@root_only
def test_a_machine_on_which_jobs_run_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = Machine(tmp_path, "http://127.0.0.1:1")
    machine.desk.create("one")
    machine.desk.state("one", state="running")
    assert machine.leave() == 1
    assert "jobs still run here (1): stop them first" in capsys.readouterr().err
    assert machine.commands == [] and machine.desk.roster.tasks() == ["one", "over"]


@root_only
@pytest.mark.parametrize("control_plane", [(200,)], indirect=True)
def test_a_machine_that_carries_a_gateway_stays_unless_forced(
    control_plane: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = Machine(tmp_path, f"http://127.0.0.1:{control_plane.server_port}")
    (machine.desk.data / "gateway.json").write_text("{}")
    assert machine.leave() == 1
    assert "a gateway runs here: delete it first (dstack gateway delete)" in capsys.readouterr().err
    assert machine.commands == [] and control_plane.received == []
    assert machine.leave(force=True) == 0
    assert machine.commands == GONE and not machine.desk.data.exists()


@root_only
def test_a_machine_whose_agent_goes_on_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = Machine(tmp_path, "http://127.0.0.1:1")
    held = take_lock(str(machine.desk.data / "lock"))
    assert held is not None
    assert machine.leave(force=True) == 1
    os.close(held)
    assert "an agent still runs on" in capsys.readouterr().err
    assert machine.desk.roster.tasks() == ["over"]
