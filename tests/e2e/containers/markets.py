"""`dstack server`, with markets of containers to be its backends: the tests' own answer on loopback, and what is rented
there is a container that an engine runs, whose socket the environment names."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace

from chalicelib.backends.simulated.cloud import Body, Boot
from chalicelib.domain.instants import DAY, SECOND, Micros
from chalicelib.domain.offers import Resources
from chalicelib.runtime.serve import serve
from tests.backends.fakes.books import GONE, Resource
from tests.backends.fakes.script import Answer
from tests.backends.fakes.server import Request
from tests.backends.fakes.transport import serving
from tests.backends.runpod.fake import Runpod
from tests.backends.vastai.fake import HOSTS, Vast
from tests.e2e.containers.cloud import ENGINE, EngineLauncher
from tests.e2e.containers.root import ContainersRoot, settings_of

KEY_INSIDE = "CONTAINER_API_KEY"  # Vast.ai's, in each of its containers


def now() -> Micros:
    return time.time_ns() // 1000


@dataclass(frozen=True)
class Market:
    """A fake whose machines start at once, and how to read them."""

    fake: Runpod | Vast
    wanted: Callable[[Resource], Body]  # the container that was rented
    explain: Callable[[Resource, str], None]  # why it has ended
    exited: str  # its state then
    ending: str  # and while it is being terminated


class OnEngine:
    """A machine's container is created with it and removed once it is terminated. A container that ends before ends its
    machine, too."""

    def __init__(self, market: Market, engine: EngineLauncher) -> None:
        market.fake.start, market.fake.run, market.fake.end = SECOND // 5, SECOND // 2, SECOND // 2
        self._market, self._engine, self._lock = market, engine, threading.Lock()
        self._started: dict[str, Resource] = {}

    def answer(self, request: Request) -> Answer:
        with self._lock:
            self._note_exits()
            found = self._market.fake.answer(request)
            self._launch_and_kill()
            return found

    def _note_exits(self) -> None:
        for name, machine in self._started.items():
            going = machine.state(now()) not in (GONE, self._market.ending, self._market.exited)
            if going and (why := self._engine.why_ended(name)):
                self._market.explain(machine, why)
                machine.goes(now(), (0, self._market.exited))

    def _launch_and_kill(self) -> None:
        for machine in self._market.fake.books.existing("vm"):
            if machine.id not in self._started:
                self._started[machine.id] = machine
                wanted = self._market.wanted(machine)
                self._engine.launch(Boot(machine.id, "", Resources(cpus=2, memory_mib=4096), 0, "", wanted))
        ended = [name for name, each in self._started.items() if each.state(now()) in (GONE, self._market.ending)]
        for name in ended:
            self._engine.kill(name)
            del self._started[name]


def _container(image: str, command: list[str], env: dict[str, str]) -> Body:
    return {"image": image, "command": command, "env": env, "user": "", "privileged": False, "shm_mib": 0}


def runpod() -> Market:
    def wanted(pod: Resource) -> Body:
        request = pod.facts["request"]
        args = json.loads(request["args"])
        return _container(request["image"], [*args["entrypoint"], *args["cmd"]], request["env"])

    def explain(pod: Resource, why: str) -> None:
        pod.facts["log"].append(why)

    return Market(Runpod(now), wanted, explain, "EXITED", "TERMINATED")


def vastai() -> Market:
    """With a key of Vast.ai's in each container, and what its stub of NVIDIA's tool has to know of the cards."""

    def wanted(instance: Resource) -> Body:
        request, host = instance.facts["request"], HOSTS[instance.facts["machine"]]
        own = {
            KEY_INSIDE: "of this instance",
            "CARDS": str(instance.facts["gpus"]),
            "CARD": f"{host.gpu}, {host.memory}",
        }
        return _container(request["image"], [request["onstart"], *request["args"]], {**request["env"], **own})

    def explain(instance: Resource, why: str) -> None:
        instance.facts["message"] = why

    fake = Vast(now)
    fake.like, fake.listed_for = 100, DAY
    return Market(fake, wanted, explain, "exited", "ending")


MARKETS = {"runpod": runpod, "vastai": vastai}


def main(arguments: list[str]) -> int:
    engine, settings = EngineLauncher(os.environ[ENGINE]), settings_of(arguments)
    with ExitStack() as stack:
        served = {kind: stack.enter_context(serving(OnEngine(made(), engine))) for kind, made in MARKETS.items()}
        return serve(replace(settings, endpoints=served), ContainersRoot)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
