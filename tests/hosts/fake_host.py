"""A host that knows what our scripts do, without a shell: for tests about the order of steps and not about SSH."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from chalicelib.errors import Transient
from chalicelib.hosts import install
from chalicelib.hosts.connection import File, HostLogin, Ran
from chalicelib.hosts.inspection import HOME, OWNER, RELAYING, SHORT, HostReport

KEY = "ssh-ed25519 AAAAHOST"


@dataclass
class FakeHost:
    """`files` by path, and whether the agent runs. It is what a removal must leave as it was."""

    files: dict[str, bytes] = field(default_factory=dict)
    running: bool = False
    away: bool = False
    reaches: bool = True  # the server
    relayed: bool = True  # it can connect to what its head node set up
    key: str = KEY
    lacking: dict[str, str] = field(default_factory=dict)  # by a name of the report: what it says instead
    logins: list[HostLogin] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)  # on its loopback, given to whoever asked

    @contextmanager
    def connect(self, login: HostLogin, *, again: bool = False) -> Iterator[FakeConnection]:
        self.logins.append(login)
        if self.away:
            raise Transient("no answer")
        yield FakeConnection(self, login)


@dataclass
class FakeConnection:
    host: FakeHost
    login: HostLogin
    report: HostReport | None = field(default=None, kw_only=True)

    @property
    def shown(self) -> tuple[str, ...]:
        return (self.host.key,)

    def listen(self) -> int:
        self.host.ports.append(4321 + len(self.host.ports))
        return self.host.ports[-1]

    def put(self, *files: File, sudo: str = "", first: str = "", then: str = "", timeout: float = 0) -> None:
        if first and (ran := self._script(first)).status:
            raise Transient(ran.last_line)
        self.host.files.update({file.path: file.data for file in files})
        if then and (ran := self._script(then)).status:
            raise Transient(ran.last_line)

    def run(self, command: str, *, stdin: bytes = b"", timeout: float = 0) -> Ran:
        if command in (SHORT, RELAYING) or "docker_says" in command:
            return Ran(0, self._inspection(), "")
        *before, script = shlex.split(command)
        assert before in (["sh", "-c"], ["sudo", "-n", "sh", "-c"]), before
        if "sha256sum" in script:
            first, then = (
                re.search(rf"^{before}\(\n(.*?)\n\) </dev/null", script, re.DOTALL | re.MULTILINE)
                for before in ("set -e; ", "")
            )
            if first and (ran := self._script(first[1])).status:
                return ran
            paths = re.findall(r"; mv -f \S+ (\S+)$", script, re.MULTILINE)
            sizes = [int(size) for size in re.findall(r"\| head -c (\d+) > ", script)]
            for path, size in zip(paths, [*sizes, len(stdin) - sum(sizes)], strict=True):
                self.host.files[path], stdin = stdin[:size], stdin[size:]
            return self._script(then[1]) if then else Ran(0, "", "")
        return self._script(script)

    def _inspection(self) -> str:
        owner = self.host.files.get(OWNER, b"").decode()
        found = {
            **{"sudo": "yes", "kernel": "Linux", "arch": "x86_64", "python": "3.11", "systemd": "yes"},
            **{"reaches": "yes" if self.host.reaches else ""},
            **{"docker_client": "yes", "docker": "yes", "disk_kib": "50000000", "owner": owner, "forwarding": "yes"},
            **{"seen_at": "10.0.0.1", "proxyd": "/lib/systemd/systemd-socket-proxyd"},
            **self.host.lacking,
        }
        return "".join(f"{name}={value}\n" for name, value in {**found, "end": "yes"}.items())

    def _script(self, script: str) -> Ran:
        host, files = self.host, self.host.files
        if "/healthcheck" in script:
            to, _, _, call, _ = shlex.split(script)[-5:]
            straight = f"Host: {to}\r\n" in call
            return Ran(0, "", "") if (host.reaches if straight else host.relayed) else Ran(1, "", "refused")
        if claimed := re.search(r"printf %s (\S+) >", script):
            (owner,) = shlex.split(claimed[1])
            if files.setdefault(OWNER, owner.encode()) != owner.encode():
                return Ran(1, "", "it belongs to somebody else")
        elif script.endswith(install.START):
            if environment := re.search(r"^echo (\S+) > (\S+)\.new$", script, re.MULTILINE):
                files[environment[2]] = environment[1].encode()
            host.running = install.UNIT_FILE in files
        elif install.STOP in script or "clear --data" in script:
            self._take_away(script)
        elif marked := re.search(r"^: > (\S+)$", script, re.MULTILINE):
            files[marked[1]] = b""
            files.update(dict.fromkeys(_units(script), b"a unit"))
        elif given_up := re.search(r"^rm -f ((/var/lib/dstack-relay/\S+)/\S+)$", script, re.MULTILINE):
            files.pop(given_up[1], None)
            if not any(path.startswith(given_up[2]) for path in files):
                for path in _units(script):
                    files.pop(path, None)
        else:
            assert script == install.LOG_END, script
        return Ran(0, "", "")

    def _take_away(self, script: str) -> None:
        """Only from the owner whom the script names; one that evicts, only if that is on the host."""
        host, evicts = self.host, script.lstrip().startswith("[")
        (quoted,) = set(re.findall(r" != (\S+) \]; then exit 0", script))
        (owner,) = shlex.split(quoted)
        if host.files.get(OWNER, b"" if evicts else owner.encode()) != owner.encode():
            return
        if install.STOP in script:
            host.running = False
            host.files.pop(install.UNIT_FILE, None)
        if "clear --data" in script:
            host.files = {path: data for path, data in host.files.items() if not path.startswith(HOME)}


def _units(script: str) -> list[str]:
    return re.findall(r"/etc/systemd/system/dstack-relay-[\w-]+\.\w+", script)


@dataclass
class HeadAndHost:
    """A host, and the one called `head` through which it may be reached."""

    head: FakeHost
    host: FakeHost

    @contextmanager
    def connect(self, login: HostLogin, *, again: bool = False) -> Iterator[FakeConnection]:
        if login.hostname == "head":
            with self.head.connect(login) as connection:
                yield connection
            return
        if login.jump is not None and self.head.away:
            raise Transient("no answer")
        with self.host.connect(login):
            yield _Behind(self.host, login, self.head)


@dataclass
class _Behind(FakeConnection):
    head: FakeHost

    @property
    def shown(self) -> tuple[str, ...]:
        return (self.host.key,) if self.login.jump is None else (self.head.key, self.host.key)
