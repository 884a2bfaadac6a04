"""The command line against a real server with a simulated cloud, as a person meets it: piped, and on a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shlex
import signal
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.screen.terminal import Terminal
from tests.cli.seed_documents import COMMANDS, CONFIGURATIONS
from tests.harness.server import PATIENCE, ROOT, Server, until
from tests.world.cli import Dstack, Ended

SMALL = "resources: {cpu: 1.., memory: 0.1GB.., disk: 1GB..}\n"
DSTACK = [sys.executable, "-m", "cli.main"]
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    one = Server(tmp_path_factory.mktemp("cli") / "home", ("--fake-cloud",), {"DSTACK_AGENT_RUNTIME": "process"})
    (one.home / ".ssh").mkdir(parents=True)
    key = one.home / ".ssh" / "id_rsa"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    one.start()
    until("this machine to join", lambda: "idle" in one.cli("fleet"))
    yield one
    one.close()


def environment(server: Server) -> dict[str, str]:
    return {**server.environment(), "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "PYTHONUNBUFFERED": "1"}


def run(server: Server, line: str, folder: Path, **env: str) -> Ended:
    """One command line, piped; a question is answered with n. In this process: that it runs as one of its own is shown
    on the screens below."""
    terminal = Terminal(env={**environment(server), **env}, home=server.home, cwd=folder, watched=False)
    return Dstack(terminal)(*shlex.split(line.replace("~", str(server.home)))[1:], answers="n\n")


class Screen:
    """A command on a terminal of 80 columns."""

    def __init__(self, server: Server, folder: Path, *args: str) -> None:
        self.text, self.code = "", -1
        self.pid, self.handle = pty.fork()
        if self.pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # who starts the suite in the background ignores it for all
            os.chdir(folder)
            os.execve(sys.executable, [*DSTACK, *args], environment(server))
        fcntl.ioctl(self.handle, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))

    def wait_for(self, text: str, seconds: float = PATIENCE) -> None:
        until(f"{text!r} on the screen:\n{self.text}", lambda: self._read() and text in self.text, seconds=seconds)

    def type(self, keys: str) -> None:
        os.write(self.handle, keys.encode())

    def end(self, seconds: float = PATIENCE) -> int:
        until(f"the command to end:\n{self.text}", lambda: not self._read(), seconds=seconds)
        self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.handle)
        return self.code

    @property
    def lines(self) -> list[str]:
        """What stays to be seen: without colours, and of what was written over only the last."""
        return [line.rstrip("\r").rpartition("\r")[2] for line in ESCAPES.sub("", self.text).split("\n")]

    def _read(self) -> bool:
        """Takes in what there is; whether the command may still write."""
        while select.select([self.handle], [], [], 0.02)[0]:
            try:
                data = os.read(self.handle, 65536)
            except OSError:  # Linux's way of saying that the other end is closed
                return False
            if not data:
                return False
            self.text += data.decode(errors="replace")
        return True


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """One that a job can look into, whoever it runs as."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_a_log_is_seen_while_its_job_runs(server: Server, tmp_path: Path, open_folder: Path) -> None:
    """Piped: the job waits for a file that is made only once its first line was seen."""
    sign = open_folder / "sign"
    commands = f"commands: ['echo seen', 'until [ -e {sign} ]; do sleep 0.1; done', 'echo ended', '(exit 5)']\n"
    (tmp_path / ".dstack.yml").write_text("type: task\nname: watched\n" + commands + SMALL)
    command = [*DSTACK, "apply", "-y"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment(server), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            if line == "seen\n":
                sign.touch()
    assert lines[-2:] == ["seen", "ended"] and process.returncode == 5


def test_a_short_job_is_followed_to_its_end(server: Server, tmp_path: Path) -> None:
    (tmp_path / ".dstack.yml").write_text("type: task\nname: short\ncommands: [echo hi]\n" + SMALL)
    assert run(server, "dstack apply -y", tmp_path).code == 0
    screen = Screen(server, tmp_path, "apply", "-y")
    assert screen.end() == 0 and "hi" in screen.lines


def test_ctrl_c_on_a_terminal_asks_and_stops(server: Server, tmp_path: Path) -> None:
    (tmp_path / ".dstack.yml").write_text("type: task\nname: long\ncommands: [echo here, sleep 600]\n" + SMALL)
    screen = Screen(server, tmp_path, "apply")
    screen.wait_for("Start the run long? [y/n]")
    screen.type("y\n")
    screen.wait_for("\nhere")
    screen.type("\x03")
    screen.wait_for("Stop the run long? [y/n]")
    screen.type("y\n")
    assert screen.end() == 1
    assert "long terminated (stopped)" in screen.lines[-2]
    assert max(map(len, screen.lines)) <= 80


def test_machines_of_a_fleet_are_waited_for_and_tables_fit(server: Server, tmp_path: Path) -> None:
    (tmp_path / "two.dstack.yml").write_text("type: fleet\nname: two\nnodes: {min: 0, target: 2, max: 3}\nblocks: 2\n")
    screen = Screen(server, tmp_path, "apply", "-y", "-f", "two.dstack.yml")
    assert screen.end() == 0
    assert "0..3 (2 at once)" in screen.text
    shown = [line for line in screen.lines if line.lstrip().startswith("instance=")]
    assert len(shown) == 2 and all("idle" in line for line in shown)
    for command in (
        ("fleet", "-v"),
        ("offer",),
        ("ps", "-a", "-v"),
        ("project", "list", "-v"),
        ("secret",),
        ("event", "-h"),
    ):
        screen = Screen(server, tmp_path, *command)
        assert screen.end() == 0
        assert max(map(len, screen.lines)) <= 80, screen.lines
    assert run(server, "dstack fleet delete two -y", tmp_path).code == 0


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_known_configuration_works_or_is_refused_by_name(server: Server, tmp_path: Path, name: str) -> None:
    shown = CONFIGURATIONS[name]
    (tmp_path / "shown.dstack.yml").write_text(shown.text)
    done = run(server, "dstack apply -f shown.dstack.yml", tmp_path, HUGGING_FACE_HUB_TOKEN="t", HF_TOKEN="t")
    if not shown.refused:
        assert done.code == 0 and "[y/n]" in done.out, done
        return
    assert done.code == 1 and shown.refused in done.err and "Traceback" not in done.err, done


def test_known_commands_work_or_are_refused_by_name(server: Server, tmp_path: Path) -> None:
    (tmp_path / ".dstack.yml").write_text("type: task\nname: my-run\ncommands: [echo hi]\n" + SMALL)
    fleet = "type: fleet\nname: my-fleet\nnodes: {min: 0, target: 1, max: 2}\n"
    (tmp_path / "my-fleet.dstack.yaml").write_text(fleet)
    assert run(server, "dstack apply -f my-fleet.dstack.yaml -y", tmp_path).code == 0
    assert run(server, "dstack apply -y", tmp_path).code == 0
    for line, refused in COMMANDS.items():
        if line == "dstack delete -f my-fleet.dstack.yaml":  # the fleet is gone by now: create it again
            until("the fleet to be gone", lambda: "my-fleet" not in server.cli("fleet"))
            assert run(server, "dstack apply -f my-fleet.dstack.yaml -y", tmp_path).code == 0
        if "delete-instance" in line or "remove" in line:  # one with a job stays, and a run has just begun
            until("the machines to have no jobs", lambda: " busy" not in server.cli("fleet"))
        done = run(server, line, tmp_path)
        printed = (done.out + done.err).replace("\r\n", "\n")  # jobs write to terminals of their own
        assert not set("\x1b\r\x08") & set(printed), "piped, it has no colour and no spinner"
        if line.startswith(("dstack run .", "dstack pool")) and not refused:
            assert "is an older spelling; today: dstack" in done.err.splitlines()[0], (line, done)
        assert (done.code == 0) is not bool(refused), (line, done)
        assert refused in done.err and "Traceback" not in done.err, (line, done)


def test_a_secret_that_is_not_typed_is_an_error_in_words(server: Server, tmp_path: Path) -> None:
    screen = Screen(server, tmp_path, "backend", "add", "aws", "--access-key", "A")
    screen.wait_for("Secret key: ")
    screen.type("\x04")
    assert screen.end() == 1
    assert "The input ended before the secret was given." in screen.text and "Traceback" not in screen.text
