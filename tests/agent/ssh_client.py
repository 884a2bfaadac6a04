"""The OpenSSH client of this machine against a job's own SSH server."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.agent.runtime_conformance import PATIENCE, Workshop

# OpenSSH's first choice takes 80 ms of CPU for each connection instead of 9. Clients of the product itself keep to it.
KEX = "curve25519-sha256"


def key_pair(folder: Path, name: str) -> tuple[Path, str]:
    folder.mkdir(exist_ok=True)
    path = folder / name
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", path], check=True)
    return path, path.with_suffix(".pub").read_text()


@dataclass
class Ssh:
    """Logs in to one task. The host key must be the one that the agent reported."""

    workshop: Workshop
    task: str
    key: Path

    def options(self, *more: str) -> list[str]:
        login = self.workshop.until(lambda: self.workshop.state(self.task).get("ssh"), self.task)
        assert "problem" not in login, login
        known = self.key.with_suffix(".known")
        known.write_text(f"[127.0.0.1]:{login['port']} {login['host_key']}\n")
        named = {
            "IdentityFile": self.key, "IdentitiesOnly": "yes", "UserKnownHostsFile": known, "BatchMode": "yes",
            "StrictHostKeyChecking": "yes", "Port": login["port"], "User": login["username"], "ConnectTimeout": "60",
            "KexAlgorithms": KEX,
        }  # fmt: skip
        return [
            "-F",
            "/dev/null",
            *(argument for item in named.items() for argument in ("-o", "{}={}".format(*item))),
            *more,
        ]

    def run(
        self, *command: str, stdin: bytes = b"", options: tuple[str, ...] = ()
    ) -> subprocess.CompletedProcess[bytes]:
        argv = ["ssh", *self.options(*options), "127.0.0.1", *command]
        return subprocess.run(argv, input=stdin, capture_output=True, timeout=PATIENCE, check=False)

    def output(self, *command: str, **more: Any) -> str:
        done = self.run(*command, **more)
        assert done.returncode == 0, (done, self.notes())
        return done.stdout.decode()

    def notes(self) -> str:
        """What the job's SSH server noted, and its processes' errors."""
        folder = Path(self.workshop.roster.folder(self.task).path)
        return "".join((folder / name).read_text() for name in ("sessions.log", "supervisor.log"))

    def start(self, *command: str, options: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
        argv = ["ssh", *self.options(*options), "127.0.0.1", *command]
        return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def copy(self, source: str, target: str) -> None:
        """Like scp, whose remote names begin with a colon."""
        there = [f"127.0.0.1{name}" if name.startswith(":") else name for name in (source, target)]
        argv = ["scp", *self.options("-q", "-r"), *there]
        done = subprocess.run(argv, capture_output=True, timeout=PATIENCE, check=False)
        assert done.returncode == 0, done

    def terminal(self, *command: str) -> Terminal:
        return Terminal(["ssh", *self.options("-tt"), "127.0.0.1", *command])


class Terminal:
    """A person at a terminal of 33 by 111."""

    def __init__(self, argv: list[str]) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvp("sh", ["sh", "-c", 'stty rows 33 cols 111; exec "$@"', "sh", *argv])
        self.seen = b""

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def sees(self, text: bytes) -> None:
        until = time.monotonic() + PATIENCE
        while text not in self.seen:
            assert time.monotonic() < until, self.seen
            if select.select([self.fd], [], [], 0.5)[0]:
                self.seen += self._read()

    def _read(self) -> bytes:
        try:
            return os.read(self.fd, 65536)
        except OSError:
            raise AssertionError(f"it has ended: {self.seen!r}") from None

    def resize(self, rows: int, columns: int) -> None:
        import fcntl
        import struct
        import termios

        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HH4x", rows, columns))
        os.kill(self.pid, signal.SIGWINCH)

    def status(self) -> int:
        """Reads to the end."""
        while True:
            try:
                part = os.read(self.fd, 65536)
            except OSError:
                break
            if not part:
                break
            self.seen += part
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
