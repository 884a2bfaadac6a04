"""`dstack server --fake-cloud`, with containers that an engine runs, whose socket the environment names."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from chalicelib.agent.runtimes.docker_client import DockerClient, DockerError, DockerUnreachable
from chalicelib.backends.simulated.cloud import FACTS, Body, Boot, FakeCloud, Launcher
from chalicelib.backends.simulated.script import Script
from chalicelib.backends.simulated.state import FolderResources
from chalicelib.backends.spi import Machine
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import SECOND
from chalicelib.errors import BackendError, Transient
from chalicelib.runtime.embedded import EmbeddedRoot
from chalicelib.runtime.settings import ServerSettings
from tests.e2e.containers.root import ContainersRoot, run_server

ENGINE = "CONTAINERS_ENGINE"
SOLD = "sold"  # the label of what it has sold
CLOUD = "runpod"  # whose place it takes


@contextmanager
def reachable() -> Iterator[None]:
    try:
        yield
    except DockerUnreachable as problem:
        raise Transient(f"the engine doesn't answer: {problem.message}") from None


class Containers(Launcher, Protocol):
    def why_ended(self, machine_id: str) -> str:
        """Empty while it may run."""


class EngineLauncher:
    """Runs each container as it was requested: the image is the one that was named, and so is all the rest."""

    def __init__(self, socket: str) -> None:
        self._engine = DockerClient(socket)
        self._refused: dict[str, str] = {}

    def launch(self, boot: Boot) -> None:
        wanted = boot.container
        assert wanted is not None, "this cloud sells nothing but containers here"
        with reachable():
            try:
                if self._engine.container(boot.machine_id) is None:
                    self._create(boot.machine_id, wanted)
                self._engine.call("POST", f"/containers/{boot.machine_id}/start")
            except DockerUnreachable:
                raise
            except DockerError as problem:
                self._refused[boot.machine_id] = problem.message

    def _create(self, name: str, wanted: Body) -> None:
        body = {
            "Image": wanted["image"],
            "Entrypoint": [],
            "Cmd": list(wanted["command"]),
            "Env": [f"{key}={value}" for key, value in wanted["env"].items()],
            "User": wanted["user"],
            "Labels": {SOLD: name},
            "HostConfig": {
                "NetworkMode": "bridge",
                "Privileged": wanted["privileged"],
                **({"ShmSize": wanted["shm_mib"] << 20} if wanted["shm_mib"] else {}),
            },
        }
        self._engine.call("POST", "/containers/create", {"name": name}, body)

    def kill(self, machine_id: str) -> None:
        with reachable():
            self._engine.remove(machine_id)

    def address(self, machine_id: str) -> str:
        """In the network of all containers; empty until it runs."""
        with reachable():
            found = self._engine.container(machine_id)
        return "" if found is None else str(found["NetworkSettings"]["IPAddress"])

    def why_ended(self, machine_id: str) -> str:
        """Empty while it may run."""
        with reachable():
            found = self._engine.container(machine_id)
        if machine_id in self._refused or found is None or found["State"]["Status"] != "exited":
            return self._refused.get(machine_id, "")
        return f"the container has exited ({found['State']['ExitCode']})"


class Market(FakeCloud):
    """Describes a container as whatever runs it has it."""

    def __init__(self, folder: Path, containers: Containers) -> None:
        self._containers = containers
        super().__init__(
            lambda: time.time_ns() // 1000,
            store=FolderResources(folder / "resources"),
            launcher=containers,
            script=Script(boot=SECOND // 2, end=SECOND // 2),
            facts=FACTS.with_(name=CLOUD, containers=True),
        )

    def describe(self, handles: Sequence[Handle]) -> Machine:
        self._note_exits()
        return super().describe(handles)

    def describe_several(self, machines: Sequence[Sequence[Handle]]) -> Sequence[Machine | BackendError]:
        self._note_exits()
        return super().describe_several(machines)

    def _described(self, handles: Sequence[Handle]) -> Machine:
        machine = super()._described(handles)
        return replace(machine, internal_ip=self._engine.address(machine.hostname))

    def _note_exits(self) -> None:
        for machine in self.machines():
            if why := self._containers.why_ended(machine["id"]):
                self.exit(dict(machine["tags"])["dstack-instance"], why)


class OfContainers(ContainersRoot):
    @staticmethod
    def simulated(settings: ServerSettings, server_url: str, program: Path) -> FakeCloud:
        return Market(settings.data_dir / "fake-cloud", EngineLauncher(os.environ[ENGINE]))


def sell(arguments: list[str], root: type[EmbeddedRoot]) -> int:
    return run_server(arguments, root, fake_cloud=True, fake_cloud_name=CLOUD)


if __name__ == "__main__":
    sys.exit(sell(sys.argv[1:], OfContainers))
