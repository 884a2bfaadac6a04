"""What the suite of doors asks of one: to be told of services and tokens, and where it listens.

`Replica` is a process of the work-horse (`app.py`), `service` a `Served` that names such replicas.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from chalicelib.domain.services import Traffic
from chalicelib.domain.serving import Served, ServedReplica
from tests.serving.caller import PATIENCE, Answer, Caller

ROOT = Path(__file__).resolve().parents[2]
TOKEN, STRANGER = "a-member-of-main", "a-member-of-other"  # the tokens of two users, each in one project


@dataclass(frozen=True)
class DoorFacts:
    name: str
    paths: bool = False  # services also have paths under /proxy/services/, not only hosts of their own
    hints: bool = False  # it understands replicas that send early hints
    models: bool = False  # it has one address for all models of a project
    tokens: bool = False  # it counts the tokens of models
    off: bool = False  # it refuses requests to services that are to have no replicas


class Door(Protocol):
    """An implementation under test. All its methods take effect before they return."""

    address: tuple[str, int]

    def serve(self, *services: Served) -> None:
        """From now on there are these services, and no others."""

    def allow(self, token: str, *projects: str) -> None:
        """This token is of a member of these projects, by their names; of none: it is revoked."""

    def host_of(self, service: Served) -> str:
        """The value of `Host` under which it is reached."""

    def models_of(self, project: str) -> tuple[str, str]:
        """Where all models of a project are: the value of `Host`, and a path that ends in a slash."""

    def traffic(self, service: Served) -> Traffic | None:
        """What it last reported of the service, as of now: a door that reports from time to time does so now."""

    def memory(self) -> int:
        """The resident bytes of its processes."""


def _new_origin() -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.serving.replicas"]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@cache
def _origin(_starter: int) -> subprocess.Popen[str]:
    """What replicas are copies of, of this process of the tests: it ends when the process does, and they with it."""
    return _new_origin()


def _elsewhere() -> bool:
    """Whether this thread has entered another network than the process is in."""
    here, there = (Path(f"/proc/{which}/ns/net").readlink() for which in ("self", "thread-self"))
    return here != there


_STARTING = threading.Lock()


class Replica:
    """A process of the work-horse."""

    def __init__(self, name: str = "replica", *, unix: str = "", host: str = "127.0.0.1") -> None:
        self.name, self.id = name, str(uuid4())
        with _STARTING:
            self._own = _new_origin() if _elsewhere() else None
            origin = self._own or _origin(os.getpid())
            assert origin.stdin is not None and origin.stdout is not None
            origin.stdin.write(f"{name}\t{host}\t{unix}\n")
            origin.stdin.flush()
            _, port, pid = origin.stdout.readline().split()
            self._process = os.pidfd_open(int(pid))
        self.port = int(port)

    def kill(self) -> None:
        """It has ended when this returns."""
        signal.pidfd_send_signal(self._process, signal.SIGKILL)
        assert select.select([self._process], [], [], PATIENCE)[0]

    def stop(self) -> None:
        if self._process >= 0:
            with suppress(ProcessLookupError):  # it was killed
                self.kill()
            os.close(self._process)
            self._process = -1
        if self._own is not None and self._own.stdin is not None and self._own.stdout is not None:
            self._own.stdin.close()
            self._own.stdout.close()
            self._own.wait()

    def seen(self) -> dict[str, Any]:
        """Its own counts, asked directly."""
        with Caller(("127.0.0.1", self.port)) as caller:
            caller.head("GET", "/seen", "direct")
            found: dict[str, Any] = caller.answer().json()
            return found

    def step(self, key: str) -> None:
        """Let the stream with this key go on by one event."""
        with Caller(("127.0.0.1", self.port)) as caller:
            caller.head("GET", f"/step?key={key}", "direct")
            assert caller.answer().status == 200

    def served(self, **changes: Any) -> ServedReplica:
        fields = {"job_id": self.id, "instance_id": "i1", "port": self.port, "address": "127.0.0.1", "ready": True}
        return ServedReplica(**{**fields, **changes})


def service(replicas: Sequence[Replica | ServedReplica] = (), *, name: str = "app", **fields: Any) -> Served:
    """A service of the project `main`. Without `auth`, so that most cases needn't speak of tokens."""
    project = fields.pop("project", "main")
    return Served(
        run_id=str(uuid4()),
        run_name=name,
        project_id=f"id-of-{project}",
        project_name=project,
        port=8000,
        replicas=tuple(each.served() if isinstance(each, Replica) else each for each in replicas),
        **{"auth": False, **fields},
    )


class Visitor:
    """Calls one service by its host, a new connection each time."""

    def __init__(self, door: Door, service: Served) -> None:
        self.door, self.service, self.host = door, service, door.host_of(service)

    def connect(self, patience: float = PATIENCE) -> Caller:
        return Caller(self.door.address, patience)

    def ask(
        self, target: str = "/", method: str = "GET", headers: Iterable[tuple[str, str]] = (), body: bytes = b""
    ) -> Answer:
        headers = list(headers)
        if body and not any(name.lower() in ("content-length", "transfer-encoding") for name, _ in headers):
            headers.append(("Content-Length", str(len(body))))
        with self.connect() as caller:
            caller.head(method, target, self.host, headers)
            if body:
                caller.send(body)
            return caller.answer(method)

    def echo(self, target: str = "/echo", **request: Any) -> Any:
        """What the replica says it got."""
        answer = self.ask(target, **request)
        assert answer.status == 200, answer
        return answer.json()


def bearer(token: str) -> tuple[str, str]:
    return ("Authorization", f"Bearer {token}")


def values(echo: Any, name: str) -> list[str]:
    """What the replica got in this header."""
    return [value for key, value in echo["headers"] if key == name]


def resident(*pids: int) -> int:
    """The bytes of memory that these processes have in RAM."""
    found = [re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text()) for pid in pids]
    return sum(int(each[1]) * 1024 for each in found if each)


def own_memory() -> int:
    return resident(os.getpid())
