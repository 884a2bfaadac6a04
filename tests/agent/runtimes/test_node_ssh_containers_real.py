"""The nodes of a job log in to each other where they are containers in their host's network."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from chalicelib.agent.program import build
from chalicelib.agent.program.roster import Roster
from chalicelib.agent.runtimes.docker import DockerRuntime
from tests.agent.attempt import Attempt, addresses
from tests.agent.runtime_conformance import Workshop
from tests.agent.session_conformance import HOLD
from tests.agent.ssh_client import Ssh, key_pair
from tests.harness.debian import NotHere, ssh_server
from tests.harness.docker import DockerEngine, bring
from tests.harness.images import BUSYBOX, Image, mpi_image
from tests.harness.mpi import on_each_node

ENTER = """
import ctypes, os, sys
network = os.open({network!r}, os.O_RDONLY)
assert ctypes.CDLL(None).setns(network, 0) == 0
os.execv(sys.executable, [sys.executable, "-I", "-S", {program!r}, *sys.argv[1:]])
"""


@dataclass
class OnTheEnginesHost(Workshop):
    """The engine has a network namespace of its own: that of the machine, as its containers see it. So the agent's
    programs enter it, too."""

    network: str = ""

    def new_roster(self, users: str = "") -> Roster:
        program, enter = build.unpack(str(self.data)), self.data / "enter.py"
        enter.write_text(ENTER.format(network=self.network, program=program))
        return Roster(
            str(self.data), {self.runtime.name: self.runtime}, self.runtime.name, lambda: str(enter), self.socket
        )


@pytest.fixture(scope="module")
def image(docker_engine: DockerEngine) -> Image:
    try:
        ssh_server()
        found = mpi_image()
    except NotHere as problem:
        pytest.skip(str(problem))
    bring(docker_engine, found)
    return found


@pytest.fixture
def workshop(tmp_path: Path, docker_engine: DockerEngine, image: Image) -> Iterator[OnTheEnginesHost]:
    runtime = DockerRuntime(str(tmp_path), docker_engine.socket)
    network = f"/run/netns/{docker_engine.folder.name}"
    base = {"image": image.name, "user": "somebody"}
    workshop = OnTheEnginesHost(tmp_path / "data", runtime, docker_engine.socket, base, network=network)
    yield workshop
    workshop.end()


def test_mpirun_starts_a_process_in_each_container(workshop: Workshop) -> None:
    attempt = Attempt(workshop, addresses(2))
    attempt.start(1)
    there, name = attempt.addresses[1], attempt.names[1]
    ranks = "echo rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on node $RANK"
    output = attempt.output_of(
        0,
        f"ssh {there} 'echo at $RANK as $(id -un)'; ssh {name} 'exit 3'; echo status $?; "
        f"{on_each_node('mpirun', 2, ranks)}",
    )
    wanted = {"at 1 as somebody", "status 3", "rank 0 of 2 on node 0", "rank 1 of 2 on node 1"}
    assert wanted <= set(output.splitlines()), output


def test_its_user_logs_in_and_reaches_its_ports(workshop: OnTheEnginesHost, tmp_path: Path) -> None:
    attempt = Attempt(workshop, addresses(2))
    key, public = key_pair(tmp_path / "keys", "user")
    script = f"nc -ll -p 8123 -e cat & {HOLD}"
    task = attempt.ready(workshop.start(script, **attempt.spec(0), authorized_keys=[public]))
    workshop.running(task)
    client = ["nsenter", f"--net={workshop.network}", "ssh", *Ssh(workshop, task, key).options()]

    def output_of(*arguments: str) -> str:
        done = subprocess.run(
            [*client, *arguments], input="ping\n", capture_output=True, text=True, timeout=120, check=False
        )
        return done.stdout

    assert output_of("127.0.0.1", "echo $RANK; id -un").split() == ["0", "somebody"]
    workshop.until(lambda: output_of("-W", "127.0.0.1:8123", "127.0.0.1") == "ping\n", task)
    assert output_of("-W", f"{attempt.addresses[0]}:8123", "127.0.0.1") == "", "by the loopback only"


def test_an_image_without_a_client_runs_and_says_so(workshop: Workshop) -> None:
    attempt = Attempt(workshop, addresses(2))
    task = workshop.start("echo works; " + HOLD, **{**attempt.spec(0), "image": BUSYBOX})
    workshop.says(task, b"works")
    assert f"image {BUSYBOX} has no ssh client" in workshop.state(task)["message"]
