"""`dstack server` with Runpod as a backend: the tests' Runpod answers on loopback, and its pods are containers that an
engine runs, whose socket the environment names."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from chalicelib.backends.simulated.cloud import Boot
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.offers import Resources
from chalicelib.runtime.carriers import Make
from chalicelib.runtime.embedded import EmbeddedRoot
from chalicelib.runtime.serve import serve
from chalicelib.runtime.settings import server_settings
from tests.backends.fakes.books import Resource
from tests.backends.fakes.script import Answer
from tests.backends.fakes.server import Request
from tests.backends.fakes.transport import serving
from tests.backends.runpod.fake import Runpod
from tests.e2e.containers.cloud import ENGINE, EngineLauncher
from tests.harness.carriers import carrier

OVER = (None, "TERMINATED", "EXITED")


def now() -> Micros:
    return time.time_ns() // 1000


class RunpodOnEngine(Runpod):
    """A pod's container is created with it, is killed once it is terminated, and stops it by its own end."""

    def __init__(self, socket: str) -> None:
        super().__init__(now)
        self.start, self.run, self.end = SECOND // 5, SECOND // 2, SECOND // 2
        self._engine, self._started = EngineLauncher(socket), dict[str, Resource]()

    def answer(self, request: Request) -> Answer:
        with self._lock:
            self._note_exits()
            found = super().answer(request)
            self._launch_and_kill()
            return found

    def _note_exits(self) -> None:
        for name, pod in self._started.items():
            if pod.state(now()) not in OVER and (why := self._engine.why_ended(name)):
                pod.facts["log"].append(why)
                pod.goes(now(), (0, "EXITED"))

    def _launch_and_kill(self) -> None:
        for pod in self.books.existing("vm"):
            if pod.id not in self._started:
                self._started[pod.id] = pod
                self._engine.launch(
                    Boot(pod.id, "", Resources(cpus=2, memory_mib=4096), 0, "", _wanted(pod.facts["request"]))
                )
        for name in [name for name, pod in self._started.items() if pod.state(now()) in (None, "TERMINATED")]:
            self._engine.kill(name)
            del self._started[name]


def _wanted(request: Any) -> dict[str, Any]:
    args = json.loads(request["args"])
    command = [*args["entrypoint"], *args["cmd"]]
    image, env = request["image"], request["env"]
    return {"image": image, "command": command, "env": env, "user": "", "privileged": False, "shm_mib": 0}


class WithCarriers(EmbeddedRoot):
    def makes_carriers(self) -> Make:
        return lambda architecture: carrier()  # of packages that apt fetches


def main(arguments: list[str]) -> int:
    options = dict(zip(arguments[::2], arguments[1::2], strict=True))
    settings = server_settings(
        port=int(options["--port"]), data_dir=Path(options["--data-dir"]), local_fleet=False, enter_project=True
    )
    with serving(RunpodOnEngine(os.environ[ENGINE])) as endpoint:
        return serve(replace(settings, endpoints={"runpod": endpoint}), WithCarriers)


if __name__ == "__main__":
    sys.exit(main(sys.argv[2:]))
