"""A real `dstack server` process with its own home and data folder."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chalicelib.agent.kernel.process_tree import all_pids, read_stat
from tests.harness import forks

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "test-admin-token"
PATIENCE = 300.0  # seconds to wait for anything real: two busy cores are slow, and this only ends a test that hangs


def until(what: str, check: Callable[[], Any], *, seconds: float = PATIENCE, every: float = 0.05) -> Any:
    """The first truthy result of `check`; fails the test if there is none in time. A check that takes long pauses as
    long: those that wait leave the cores to what they wait for."""
    end = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        answer = check()
        if answer:
            return answer
        now = time.monotonic()
        if now > end:
            raise AssertionError(f"waited {seconds:.0f} s in vain for {what}; last answer: {answer!r}")
        time.sleep(max(every, now - began))


@dataclass
class Server:
    home: Path
    flags: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    token: str = TOKEN
    network: Path | None = None  # the namespace that its processes are in, and the opener that calls it there
    opener: urllib.request.OpenerDirector | None = None
    before: tuple[str, ...] = ()  # a command that runs them in yet another place
    program: str = "cli.main"  # the module that runs it,
    command: tuple[str, ...] = ()  # or what runs it instead, from its own home
    url: str = ""
    lines: list[str] = field(default_factory=list)
    process: subprocess.Popen[str] | forks.Fork | None = None
    fork: bool = True  # its processes begin as copies of one that has imported everything, or as a user's do

    @property
    def data(self) -> Path:
        return self.home / "server"

    @property
    def prefix(self) -> tuple[str, ...]:
        """What to put before a command to run it where the server runs."""
        return (*(("nsenter", f"--net={self.network}", "--") if self.network else ()), *self.before)

    @property
    def forked(self) -> bool:
        """Whether the commands of its users are forks."""
        return self.fork and not self.before

    def place(self, command: tuple[str, ...] = (), module: str = "cli.main") -> forks.Place:
        """For a fork of this checkout, or of what is installed as this command."""
        return forks.Place(Path(*command) if command else None, self.network, module)

    def environment(self) -> dict[str, str]:
        """The environment of a user of this server, isolated from ours in both directions."""
        inherited = {name: os.environ[name] for name in ("PATH", "LANG", "TERM") if name in os.environ}
        return {
            **inherited,
            "HOME": str(self.home),
            "DSTACK_SERVER_ADMIN_TOKEN": self.token,
            "https_proxy": "http://127.0.0.1:9",  # any outside connection fails at once
            "http_proxy": "http://127.0.0.1:9",
            "no_proxy": "127.0.0.1,localhost",
            **self.env,
        }

    def start(self, *flags: str, port: int = 0) -> Server:
        words = ["server", "--port", str(port), "--data-dir", str(self.data), *self.flags, *flags]
        where = self.home if self.command else ROOT
        if self.forked:
            place = self.place(self.command, self.program)
            self.process = forks.fork(words, where, self.environment(), place, session=True)
        else:
            self.process = subprocess.Popen(
                [*self.prefix, *(self.command or (sys.executable, "-m", self.program)), *words],
                cwd=where,
                env=self.environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        self.lines = []
        threading.Thread(target=self._read, args=(self.process,), daemon=True).start()
        until("the server to come up", self._came_up)
        return self

    def _read(self, process: subprocess.Popen[str] | forks.Fork) -> None:
        """Take what is written at once as one, so that whoever sees the first line of a message sees all of it."""
        assert isinstance(process.stdout, io.TextIOWrapper)
        rest = b""
        while chunk := process.stdout.buffer.read1():
            *lines, rest = (rest + chunk).split(b"\n")
            self.lines += [line.decode() for line in lines]
        self.lines += [rest.decode()] if rest else []

    def _came_up(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError("the server ended:\n" + "\n".join(self.lines))
        for line in self.lines:
            found = re.search(r"running at (http\S+)", line)
            if found:
                self.url = found[1]
                return True
        return False

    def stop(self, number: int = signal.SIGTERM) -> int:
        if self.process is None:
            return 0
        self.process.send_signal(number)
        return self.process.wait(timeout=PATIENCE)

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    def close(self) -> None:
        """End the server, its agent, and whatever they started, however the test went."""
        if self.process is not None and self.process.poll() is None:
            self.kill()
        for pid in processes_of(self.home):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def call(self, path: str, body: Any = None, *, token: str | None = None, method: str = "POST") -> Any:
        """The JSON response; raises HttpError for anything but 200."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token or self.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data=data, headers=headers, method=method)
        call = self.opener.open if self.opener else urllib.request.urlopen
        try:
            with call(request, timeout=PATIENCE) as reply:
                return json.loads(reply.read() or b"null")
        except urllib.error.HTTPError as error:
            raise HttpError(error.code, error.read().decode()) from None

    @contextmanager
    def attached(self, *args: str) -> Iterator[Iterator[str]]:
        """The lines of our own CLI as they come; it is ended with the block if it hasn't by then."""
        process = subprocess.Popen(
            [*self.prefix, sys.executable, "-u", "-m", "cli.main", *args],
            cwd=self.home,
            env={**self.environment(), "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        try:
            yield iter(process.stdout.readline, "")
        finally:
            process.kill()
            process.stdout.close()
            process.wait()

    def cli(self, *args: str, check: bool = True, input: str | None = None, cwd: Path | None = None) -> str:
        """Our own CLI as this server's user; stdout and stderr together."""
        where, env = cwd or self.home, {**self.environment(), "PYTHONPATH": str(ROOT)}
        if self.forked:
            status, said = forks.run([*args], where, env, self.place(), input=input, seconds=int(2 * PATIENCE))
        else:
            done = subprocess.run(
                [*self.prefix, sys.executable, "-m", "cli.main", *args],
                cwd=where,
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                input=input,
                timeout=2 * PATIENCE,
            )
            status, said = done.returncode, done.stdout
        if check and status != 0:
            raise AssertionError(f"dstack {' '.join(args)} ended with {status}:\n{said}")
        return said


class HttpError(AssertionError):
    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"HTTP {status}: {body}")
        self.status, self.body = status, body


def read_of_processes(home: Path, name: str) -> list[bytes]:
    """A file below /proc of each of these processes: `cmdline`, for instance. One that ends meanwhile has none."""
    found = []
    for pid in processes_of(home):
        with suppress(OSError):
            found.append(Path(f"/proc/{pid}/{name}").read_bytes())
    return found


def processes_of(home: Path) -> list[int]:
    """Processes whose command line or environment names this folder or a task in it, and those below them: the agent,
    its supervisors, their jobs."""
    named: list[int] = []
    needles = [str(home).encode(), *(path.name.encode() for path in home.glob("*/agent*/tasks/*"))]
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue
        if any(needle in text for needle in needles):
            named.append(int(entry.name))
    return _with_those_below(named) if named else []


def _with_those_below(named: list[int]) -> list[int]:
    """Without zombies. All processes are read once, for this is asked at the end of each server."""
    below: dict[int, list[int]] = {}
    dead = set()
    for pid in all_pids():
        if fields := read_stat(pid):
            below.setdefault(int(fields[1]), []).append(pid)
            if fields[0] in "ZX":
                dead.add(pid)
    found, todo = dict.fromkeys(named), [*named]
    while todo:
        children = [pid for pid in below.get(todo.pop(), ()) if pid not in found]
        found |= dict.fromkeys(children)
        todo += children
    return [pid for pid in found if pid not in dead]
