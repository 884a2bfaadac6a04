"""A runtime without containers: a test says what becomes of them, and the clock when."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chalicelib.domain.instants import Micros
from tests.backends.kubernetes.fake import errors
from tests.backends.kubernetes.fake.controllers import NEVER
from tests.backends.kubernetes.fake.kubelet import Exit, NotYet, Trouble, Wanted
from tests.backends.kubernetes.fake.schema import Object

WELL, TERMINATED = Exit(0), Exit(143)


@dataclass(frozen=True)
class Life:
    """What becomes of a container."""

    pulling: Micros = 0  # until it runs
    trouble: Trouble | None = None  # why it doesn't start
    runs: Micros = NEVER  # until it ends by itself
    end: Exit = WELL
    stops: Micros | None = 0  # how long after it's asked to; None: it has to be killed
    stopped: Exit = TERMINATED
    log: bytes = b""


Script = Callable[[Object, Mapping[str, Any]], Life | None]


def no_image(image: str, why: str = "not found") -> Life:
    message = f'failed to pull and unpack image "{image}": failed to resolve reference "{image}": {image}: {why}'
    return Life(trouble=Trouble("ErrImagePull", message))


@dataclass
class _One:
    life: Life
    pulled: Micros = NEVER
    started: Micros = NEVER
    stopped_at: Micros = NEVER
    exit: Exit | None = None
    wanted: Wanted | None = None


class Scripted:
    def __init__(self, now: Callable[[], Micros]) -> None:
        self._now = now
        self.life: Script = lambda pod, container: None  # None: an init container ends well at once, others never end
        self.ports: dict[tuple[str, int], int] = {}  # of pods, by name, to those of this machine
        self.commands: Callable[[str, str, Sequence[str]], Sequence[str]] | None = None  # what runs here for one there
        self.probes: Callable[[Object, str], str] = lambda pod, path: ""  # why that of a path fails
        self._all: dict[tuple[str, str], _One] = {}
        self._addresses: dict[str, str] = {}

    # --- what a test does --------------------------------------------------------------------------------------------

    def end(self, pod: Object, end: Exit, container: str = "") -> None:
        """It ends now. `cluster.wake()` after it, or any change, has the cluster notice."""
        name = container or pod["spec"]["containers"][0]["name"]
        self._all[pod["metadata"]["uid"], name].exit = end

    def started(self, pod: Object, container: str = "") -> Wanted:
        """A container as its kubelet started it."""
        found = self._all[pod["metadata"]["uid"], container or pod["spec"]["containers"][0]["name"]].wanted
        assert found is not None
        return found

    # --- what kubelets do --------------------------------------------------------------------------------------------

    def start(self, wanted: Wanted) -> None:
        key, now = (wanted.pod["metadata"]["uid"], wanted.spec["name"]), self._now()
        life = self.life(wanted.pod, wanted.spec) or Life(runs=0 if wanted.first else NEVER)
        before = self._all.get(key)
        pulled = now + life.pulling if before is None else before.pulled
        one = self._all[key] = _One(life, pulled, wanted=wanted)
        if now < pulled:
            raise NotYet(pulled)
        if life.trouble is not None:
            raise life.trouble
        one.started = now

    def state(self, pod: Object, container: str) -> Exit | Micros:
        one, now = self._all[pod["metadata"]["uid"], container], self._now()
        if one.exit is not None:
            return one.exit
        if now >= (over := min(NEVER, one.started + one.life.runs)):
            return one.life.end
        stopped = NEVER if one.life.stops is None or one.stopped_at == NEVER else one.stopped_at + one.life.stops
        return one.life.stopped if now >= stopped else min(over, stopped)

    def stop(self, pod: Object, container: str) -> None:
        one = self._all[pod["metadata"]["uid"], container]
        one.stopped_at = min(one.stopped_at, self._now())

    def remove(self, pod: Object) -> None:
        for key in [each for each in self._all if each[0] == pod["metadata"]["uid"]]:
            del self._all[key]

    def address(self, pod: Object) -> str:
        number = len(self._addresses) + 1
        return self._addresses.setdefault(pod["metadata"]["uid"], f"10.244.{number // 250}.{number % 250 + 1}")

    def log(self, pod: Object, container: str) -> list[tuple[Micros, bytes]]:
        one = self._all.get((pod["metadata"]["uid"], container))
        return [(one.started, line) for line in one.life.log.splitlines(keepends=True)] if one else []

    def execute(self, pod: Object, container: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        if self.commands is None:
            raise errors.not_implemented("commands in containers that nothing runs: set `scripted.commands`")
        here = self.commands(pod["metadata"]["name"], container, command)
        pipe = subprocess.PIPE
        return subprocess.Popen(list(here), stdin=pipe, stdout=pipe, stderr=pipe)

    def probe(self, pod: Object, probe: Mapping[str, Any]) -> str:
        return self.probes(pod, probe.get("httpGet", {}).get("path", ""))

    def dial(self, pod: Object, port: int) -> socket.socket:
        here = self.ports.get((pod["metadata"]["name"], port))
        if here is None:
            raise ConnectionRefusedError(f"nothing listens on port {port}")
        return socket.create_connection(("127.0.0.1", here))
