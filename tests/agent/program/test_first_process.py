"""The first process of a container: what a task began outlives a crash of its agent; then it ends as the task did."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.program import build
from tests.agent.server import PATIENCE, Plane, Server

pytestmark = pytest.mark.slow


class Container:
    """A process that has the agent's environment and arguments, as in a container."""

    def __init__(self, folder: Path) -> None:
        self.plane, self.data = Plane(), folder / "dstack"
        build.write(str(folder / "agent.pyz"))
        self.server = Server(self.plane)
        self.log = folder / "log"
        self.argv = [
            sys.executable,
            "-I",
            "-S",
            str(folder / "agent.pyz"),
            "--inside",
            "--wait",
            str(10 * PATIENCE),
        ]  # nothing may wait for a poll
        self.environment = {
            "PATH": os.environ["PATH"],
            "DSTACK_SERVER": self.server.url,
            "DSTACK_INSTANCE": "i-1",
            "DSTACK_TOKEN": self.plane.token,
            "DSTACK_DATA": str(self.data),
            "OF_THE_IMAGE": "here",
        }
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.argv, env=self.environment, stderr=log, start_new_session=True)
        return self.process

    def run(self, script: str, **spec: Any) -> str:
        task = str(uuid.uuid4())
        self.plane.want(task, "run", spec={"id": task, "commands": ["/bin/sh", "-c", script], "env": {}, **spec})
        return task

    def says(self, task: str, text: bytes) -> None:
        self.plane.until(lambda: text in self.plane.logs.get(task, b""))

    @property
    def agent(self) -> int:
        """Its process: the one that has the folder's lock."""
        return int((self.data / "lock").read_text())

    def children(self) -> list[int]:
        """Of the first process, those that wait to be reaped included."""
        first = self.process.pid
        return [int(pid) for pid in Path(f"/proc/{first}/task/{first}/children").read_text().split()]

    def ended(self) -> int:
        return self.process.wait(PATIENCE)


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Container]:
    container = Container(tmp_path)
    yield container
    container.process.kill()
    container.process.wait()
    container.server.stop()


def test_the_container_ends_as_its_task_did_once_the_server_has_it_all(container: Container) -> None:
    task = container.run('echo "$OF_THE_IMAGE <$DSTACK_TOKEN>"; exit 7')
    report = container.plane.exited(task)
    assert (report["exit_status"], container.plane.logs[task]) == (7, b"here <>\r\n")
    assert container.plane.facts["runtimes"] == ["inside"]
    assert container.plane.facts["isolation"] == {"inside": "machine"}
    assert container.process.poll() is None, "the server may still want something"
    container.plane.want(task, "remove")
    assert container.ended() == 7, container.log.read_text()
    container.start()
    assert container.ended() == 7, "a provider that starts it again gets no second run"
    assert [*(container.data / "tasks").iterdir()] == []


def test_a_crash_of_the_agent_costs_the_task_nothing(container: Container) -> None:
    task = container.run("echo one; read line </dev/tty; echo never")
    container.says(task, b"one")
    before = container.agent
    assert before != container.process.pid
    os.kill(before, signal.SIGKILL)
    seen = container.plane.messages
    container.plane.until(lambda: container.agent != before and container.plane.messages > seen)
    assert container.plane.reports[task]["state"] == "running"
    container.plane.want(task, "abort")
    assert container.plane.exited(task)["reason"] == "aborted_by_user"
    container.plane.want(task, "remove")
    assert container.ended() == 137, container.log.read_text()


def test_a_signal_to_the_container_is_a_notice_to_the_server(container: Container) -> None:
    task = container.run("echo one; read line </dev/tty")
    container.says(task, b"one")
    container.process.terminate()
    assert container.plane.until(lambda: container.plane.taken_back_in is not None)
    assert container.plane.taken_back_in == 0
    assert container.plane.reports[task]["state"] == "running"
    container.plane.want(task, "stop", grace=0)
    status = container.plane.exited(task)["exit_status"]
    container.plane.forget()
    assert status and container.ended() == status


@pytest.mark.parametrize("moment", ["before", "after_in_parent", "after_in_child"])
def test_a_signal_while_the_agent_is_being_started_reaches_it(moment: str) -> None:
    """The first process gets it shortly before the agent's process exists, or before the agent's id is known."""
    script = """
import os, signal
from chalicelib.agent.program.first_process import FirstProcess
def agent(first):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    return 0 if first.warned or signal.sigtimedwait([signal.SIGTERM], PATIENCE) else 9
first_process = os.getpid()
os.register_at_fork(MOMENT=lambda: os.kill(first_process, signal.SIGTERM))
raise SystemExit(FirstProcess(lambda status: True).run(agent))
"""
    root = Path(build.__file__).parents[3]
    script = script.replace("PATIENCE", str(PATIENCE)).replace("MOMENT", moment)
    done = subprocess.run([sys.executable, "-c", script], cwd=root, check=False)
    assert done.returncode == 0


def test_an_instance_that_ends_without_a_task_ends_its_container(container: Container) -> None:
    container.plane.until(lambda: container.plane.facts)
    container.plane.forget()
    assert container.ended() == 0, container.log.read_text()


def test_a_supervisor_that_has_ended_is_reaped(container: Container) -> None:
    task = container.run("echo one; read line </dev/tty")
    container.says(task, b"one")
    assert len(container.children()) == 2, "the agent, and the task's supervisor, which left it"
    container.plane.want(task, "abort")
    container.plane.exited(task)
    container.plane.until(lambda: container.children() == [container.agent])


def test_settings_that_lead_nowhere_are_said_once(tmp_path: Path) -> None:
    build.write(str(tmp_path / "agent.pyz"))
    argv = [sys.executable, "-I", "-S", str(tmp_path / "agent.pyz"), "--inside", "--data", str(tmp_path / "data")]
    done = subprocess.run(argv, env={}, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, "DSTACK_INSTANCE is needed" in done.stderr) == (2, True)
    done = subprocess.run([*argv, "--instance", "i"], env={}, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, "--server is needed" in done.stderr) == (2, True)
