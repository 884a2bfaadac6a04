"""Commands of `dstack` as copies of one process that has imported what they need (`fork_server.py`)."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[2]
MODULE, SERVER = "tests.harness.fork_server", str(ROOT / "tests" / "harness" / "fork_server.py")
AT_START = {"PYTHONUNBUFFERED", "PYTHONHASHSEED", "PYTHONUTF8", "PYTHONIOENCODING", "PYTHONWARNINGS"}
PADDING = "x" * 4000  # room for the command lines and the environments of copies


class Ended(AssertionError):
    """The process that is copied has ended."""


@dataclass
class _Origin:
    """The process that is copied, of one process of the tests, and what all ended copies took."""

    control: socket.socket
    process: subprocess.Popen[bytes]
    spent: float = 0.0  # seconds of CPU


# By the number of the process that started it, for it doesn't survive a fork, and the installed program, if it has one.
_ORIGINS: dict[tuple[int, Path | None], _Origin] = {}
_STARTING = threading.Lock()


def spent() -> float:
    """The CPU of the copies that have ended, in seconds: they aren't children of this process."""
    return sum(origin.spent for (starter, _), origin in _ORIGINS.items() if starter == os.getpid())


def _origin(program: Path | None) -> _Origin:
    """Of this checkout, or of what is installed, by the Python that it is installed for."""
    python = [str(program.parent / "python"), "-P", SERVER] if program else [sys.executable, "-m", MODULE]
    with _STARTING:
        if (os.getpid(), program) not in _ORIGINS:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                process = subprocess.Popen(
                    [*python, str(theirs.fileno()), PADDING, *([str(program)] if program else [])],
                    cwd="/" if program else ROOT,
                    env={**{name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}, "_": PADDING},
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            _ORIGINS[os.getpid(), program] = _Origin(ours, process)
        return _ORIGINS[os.getpid(), program]


@dataclass
class Fork:
    """What a test needs of `subprocess.Popen`."""

    pid: int
    stdout: IO[str]
    _report: IO[str]
    _origin: _Origin
    returncode: int | None = field(default=None, init=False)

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._report], [], [], 0)[0]:
            return self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._report], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            said = self._report.readline()
            if not said:
                raise Ended(f"nobody waits for process {self.pid} any more")
            status, cpu = said.split()
            self._origin.spent += float(cpu)
            self.returncode = int(status)
            self._report.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


@dataclass(frozen=True)
class Place:
    """What a command is of, and where it runs."""

    program: Path | None = None  # as pip installed it; without one, this checkout's
    network: Path | None = None  # a namespace; without one, that of the tests
    module: str = "cli.main"  # of the checkout, that is run


HERE = Place()


def fork(
    argv: list[str],
    cwd: Path,
    env: Mapping[str, str],
    place: Place = HERE,
    *,
    typed: IO[str] | None = None,
    errors: IO[str] | None = None,
    session: bool = False,
    seconds: int = 0,
) -> Fork:
    """`dstack` with these arguments; its output in a pipe, and its errors, too, unless `errors` gets them. `typed`: its
    standard input. `seconds`: until a signal ends it."""
    with Path(os.devnull).open("rb") as nothing:
        return _forked(argv, cwd, env, place, typed or nothing, errors, session, seconds)


def run(
    argv: list[str], cwd: Path, env: Mapping[str, str], place: Place = HERE, *, input: str | None = None, seconds: int
) -> tuple[int, str]:
    """Status and output of `dstack` with these arguments; its errors are among the output."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as typed:
        typed.write(input or "")
        typed.seek(0)
        return _read(_forked(argv, cwd, env, place, typed, None, False, seconds))


def streams(
    argv: list[str], cwd: Path, env: Mapping[str, str], place: Place = HERE, *, seconds: int
) -> tuple[int, str, str]:
    """Status, output and errors."""
    with Path(os.devnull).open("rb") as nothing, tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
        status, text = _read(_forked(argv, cwd, env, place, nothing, errors, False, seconds))
        errors.seek(0)
        return status, text, errors.read()


def _read(done: Fork) -> tuple[int, str]:
    with done.stdout as said:
        text = said.read()
    return done.wait(), text


def _forked(
    argv: list[str],
    cwd: Path,
    env: Mapping[str, str],
    place: Place,
    typed: IO[Any],
    errors: IO[str] | None,
    session: bool,
    seconds: int,
) -> Fork:
    assert AT_START.isdisjoint(env), f"only a real start heeds {AT_START & set(env)}"
    origin = _origin(place.program)
    job = {"argv": argv, "cwd": str(cwd), "env": dict(env), "session": session, "seconds": seconds}
    job |= {"network": str(place.network or ""), "module": place.module}
    ours, theirs = socket.socketpair()
    source, sink = os.pipe()
    try:
        given = [typed.fileno(), sink, errors.fileno() if errors else sink, theirs.fileno()]
        socket.send_fds(origin.control, [json.dumps(job).encode()], given)
    finally:
        theirs.close()
        os.close(sink)
    with ours:
        report = ours.makefile("r", encoding="ascii")
    said = report.readline()
    if not said:
        raise Ended(f"the process that is copied ended with {origin.process.wait(120)}")
    return Fork(int(said), os.fdopen(source, encoding="utf-8"), report, origin)
