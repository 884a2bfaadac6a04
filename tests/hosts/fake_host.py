"""A host that knows what our scripts do, without a shell: for tests about the order of steps and not about SSH."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from chalicelib.errors import Transient
from chalicelib.hosts import install
from chalicelib.hosts.connection import Login, Ran
from chalicelib.hosts.look import OWNER, SCRIPT

KEY = "ssh-ed25519 AAAAHOST"


@dataclass
class FakeHost:
    """`files` by path, and whether the agent runs. It is what a removal must leave as it was."""

    files: dict[str, bytes] = field(default_factory=dict)
    running: bool = False
    away: bool = False
    reaches: bool = True  # the server
    key: str = KEY
    lacking: dict[str, str] = field(default_factory=dict)  # by a name of the report: what it says instead
    logins: list[Login] = field(default_factory=list)

    @contextmanager
    def connect(self, login: Login) -> Iterator[FakeConnection]:
        self.logins.append(login)
        if self.away:
            raise Transient("no answer")
        yield FakeConnection(self, login)


@dataclass
class FakeConnection:
    host: FakeHost
    login: Login

    @property
    def shown(self) -> tuple[str, ...]:
        return (self.host.key,)

    def put(self, path: str, data: bytes, mode: int, *, sudo: str = "", timeout: float = 0) -> None:
        self.host.files[path] = data

    def run(self, command: str, *, stdin: bytes = b"", timeout: float = 0) -> Ran:
        if command == SCRIPT:
            return Ran(0, self._look(), "")
        *before, script = shlex.split(command)
        assert before in (["sh", "-c"], ["sudo", "-n", "sh", "-c"]), before
        return self._script(script)

    def _look(self) -> str:
        owner = self.host.files.get(OWNER, b"").decode()
        found = {
            **{"sudo": "yes", "kernel": "Linux", "arch": "x86_64", "python": "3.11", "systemd": "yes"},
            **{"docker_client": "yes", "docker": "24.0", "disk_kib": "50000000", "owner": owner, "forwarding": "yes"},
            **self.host.lacking,
        }
        return "".join(f"{name}={value}\n" for name, value in {**found, "end": "yes"}.items())

    def _script(self, script: str) -> Ran:
        host, files = self.host, self.host.files
        if "/healthcheck" in script:
            return Ran(0 if host.reaches else 1, "", "")
        if claimed := re.search(r"printf %s (\S+) >", script):
            (owner,) = shlex.split(claimed[1])
            if files.setdefault(OWNER, owner.encode()) != owner.encode():
                return Ran(1, "", "it belongs to somebody else")
        elif script == install.START:
            host.running = install.UNIT_FILE in files
        elif script == install.STOP:
            host.running = False
            files.pop(install.UNIT_FILE, None)
        elif "clear --data" in script:
            for path in [path for path in files if path.startswith(install.HOME)]:
                del files[path]
        else:
            assert script == install.LOG_END, script
        return Ran(0, "", "")
