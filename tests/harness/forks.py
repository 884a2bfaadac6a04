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
from typing import IO

ROOT = Path(__file__).resolve().parents[2]
PADDING = "x" * 4000  # room for the command lines and the environments of copies


class Ended(AssertionError):
    """The process that is copied has ended."""


@dataclass
class _Origin:
    """The process that is copied, of one process of the tests, and what all ended copies took."""

    control: socket.socket
    process: subprocess.Popen[bytes]
    spent: float = 0.0  # seconds of CPU


_ORIGINS: dict[int, _Origin] = {}  # by the number of the process that started it: it doesn't survive a fork
_STARTING = threading.Lock()


def spent() -> float:
    """The CPU of the copies that have ended, in seconds: they aren't children of this process."""
    origin = _ORIGINS.get(os.getpid())
    return origin.spent if origin else 0.0


def _origin() -> _Origin:
    with _STARTING:
        if os.getpid() not in _ORIGINS:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                process = subprocess.Popen(
                    [sys.executable, "-m", "tests.harness.fork_server", str(theirs.fileno()), PADDING],
                    cwd=ROOT,
                    env={**{name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}, "_": PADDING},
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            _ORIGINS[os.getpid()] = _Origin(ours, process)
        return _ORIGINS[os.getpid()]


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


def fork(argv: list[str], cwd: Path, env: Mapping[str, str], *, session: bool = False, seconds: int = 0) -> Fork:
    """`dstack` with these arguments; its output and its errors in one pipe. `seconds`: until a signal ends it."""
    return _forked(argv, cwd, env, None, session, seconds)


def run(
    argv: list[str], cwd: Path, env: Mapping[str, str], *, input: str | None = None, seconds: int
) -> tuple[int, str]:
    """Status and output of `dstack` with these arguments."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as typed:
        typed.write(input or "")
        typed.seek(0)
        done = _forked(argv, cwd, env, typed if input is not None else None, False, seconds)
        with done.stdout as said:
            text = said.read()
        return done.wait(), text


def _forked(
    argv: list[str], cwd: Path, env: Mapping[str, str], typed: IO[str] | None, session: bool, seconds: int
) -> Fork:
    origin = _origin()
    job = {"argv": argv, "cwd": str(cwd), "env": dict(env), "session": session, "seconds": seconds}
    ours, theirs = socket.socketpair()
    source, sink = os.pipe()
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        given = nothing if typed is None else typed.fileno()
        socket.send_fds(origin.control, [json.dumps(job).encode()], [given, sink, theirs.fileno()])
    finally:
        theirs.close()
        os.close(sink)
        os.close(nothing)
    with ours:
        report = ours.makefile("r", encoding="ascii")
    said = report.readline()
    if not said:
        raise Ended(f"the process that is copied ended with {origin.process.wait(10)}")
    return Fork(int(said), os.fdopen(source, encoding="utf-8"), report, origin)
