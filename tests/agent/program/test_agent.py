"""The agent as a program: a real process from the one file, a real server on loopback, and kill -9 at will."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.kernel.process_tree import all_pids, marked
from chalicelib.agent.kernel.spool import SpoolWriter
from chalicelib.agent.program import build, main
from chalicelib.agent.program.roster import SPOOL_LEAST, Roster
from tests.agent.runtime_conformance import archive
from tests.agent.server import PATIENCE, Plane, Server
from tests.harness.gates import Gate, gate

pytestmark = pytest.mark.slow


class Agent:
    """The shipped file, started as an operator or a server would."""

    def __init__(self, folder: Path, plane: Plane) -> None:
        self.program, self.data, self.plane = folder / "agent.pyz", folder / "data", plane
        build.write(str(self.program))
        self.server = Server(plane)
        self.process: subprocess.Popen[bytes] | None = None
        self.log = folder / "agent.log"

    def command(self, *more: str) -> list[str]:
        command = [sys.executable, "-I", str(self.program), "--server", self.server.url, "--data", str(self.data)]
        return [*command, "--instance", "i-1", "--runtime", "process", "--wait", "5", *more]

    def start(self, *more: str) -> None:
        environment = dict(os.environ, DSTACK_AGENT_TOKEN=self.plane.token)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command(*more), env=environment, stderr=log, start_new_session=True)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def run(self, script: str, **spec: Any) -> str:
        task = str(uuid.uuid4())
        self.plane.want(task, "run", spec={"id": task, "commands": ["/bin/sh", "-c", script], "env": {}, **spec})
        return task

    def running(self, task: str) -> None:
        self.plane.until(lambda: self.plane.reports.get(task, {}).get("state") == "running")

    def says(self, task: str, text: bytes) -> None:
        self.plane.until(lambda: text in self.plane.logs.get(task, b""))

    def end(self) -> None:
        if self.process is None:
            return
        if self.process.poll() is not None:
            self.start()
        self.plane.forget()
        with self.plane.news:
            self.plane.news.notify_all()
        try:
            assert self.process.wait(PATIENCE) == main.ENDED, self.log.read_text()
        finally:
            self.process.kill()
            self.server.stop()


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    agent = Agent(tmp_path, Plane())
    agent.start()
    yield agent
    agent.end()
    for task in agent.plane.reports:
        assert not marked(task)
    assert list((agent.data / "tasks").iterdir()) == []


def test_a_task_runs_and_everything_of_it_arrives(agent: Agent) -> None:
    task = agent.run("echo one; echo two >&2; exit 7")
    report = agent.plane.exited(task)
    assert (report["exit_status"], report["reason"]) == (7, "container_exited_with_error")
    assert agent.plane.logs[task] == b"one\r\ntwo\r\n"
    assert report["log_end"] == 10
    assert agent.plane.facts["cpus"] >= 1 and agent.plane.facts["runtimes"] == ["process"]
    assert agent.plane.facts["isolation"] == {"process": "user" if os.getuid() == 0 else "none"}
    agent.plane.want(task, "remove")
    agent.plane.until(lambda: task not in agent.plane.wants or not (agent.data / "tasks" / task).exists())


def test_the_credential_replaces_the_token_and_is_private(agent: Agent) -> None:
    agent.plane.until(lambda: agent.plane.facts)
    agent.plane.until((agent.data / "credential").exists)
    assert (agent.data / "credential").read_text() == agent.plane.credential
    assert (agent.data / "credential").stat().st_mode & 0o777 == 0o600


def test_a_change_reaches_the_server_past_a_hanging_poll(agent: Agent) -> None:
    agent.plane.until(lambda: agent.plane.facts)
    agent.kill()
    agent.start("--wait", str(10 * PATIENCE))  # nothing may wait for that poll to come back
    task = agent.run("read line; exit 0")
    agent.running(task)
    agent.plane.want(task, "abort")
    assert agent.plane.exited(task)["reason"] == "aborted_by_user"


def test_a_long_log_arrives_whole_while_the_task_runs(agent: Agent) -> None:
    task = agent.run("i=0; while [ $i -lt 60000 ]; do i=$((i+1)); echo line $i; done")
    agent.plane.exited(task)
    assert agent.plane.logs[task] == b"".join(b"line %d\r\n" % i for i in range(1, 60001))


def test_output_that_the_server_never_takes_is_left_out_with_a_line(agent: Agent) -> None:
    agent.plane.poison = b"POISON"
    task = agent.run("echo POISON; read line; exit 0")
    agent.says(task, b"8 bytes of log were dropped here: the control plane can't take them")
    agent.plane.want(task, "stop", grace=0)
    report = agent.plane.exited(task)
    assert report["log_end"] == len(agent.plane.logs[task]) and b"POISON" not in agent.plane.logs[task]
    assert agent.log.read_text().count("message dropped: the server would never accept it") == 2


def test_a_task_may_keep_its_share_of_the_disk(tmp_path: Path) -> None:
    roster = Roster(str(tmp_path), {}, "process", str, "")
    writer = SpoolWriter(roster.folder("t").log)
    for number in range(40):
        writer.append(number, bytes([number]) * (1 << 20))
    assert roster.cap_log("t", tasks=1) == 0
    dropped = roster.cap_log("t", tasks=1000)
    used = sum(path.stat().st_size for path in Path(roster.folder("t").log).iterdir())
    assert dropped >= 8 << 20 and used <= SPOOL_LEAST
    assert 0 < roster.log("t").end() - ((40 << 20) - dropped) < 100, "a line says so"


@pytest.mark.parametrize("who", ["agent", "server", "both"])
def test_kill_9_loses_neither_output_nor_exit_status(agent: Agent, who: str) -> None:
    task = agent.run("i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo line $i; sleep 0.03; done; exit 9")
    agent.says(task, b"line 3\r\n")
    if who in ("agent", "both"):
        agent.kill()
    if who in ("server", "both"):
        agent.server.stop()
        agent.server = Server(agent.plane)
        (agent.data / "server").write_text(agent.server.url)
    if who in ("agent", "both"):
        agent.start()
    report = agent.plane.exited(task)
    assert report["exit_status"] == 9
    assert agent.plane.logs[task] == b"".join(b"line %d\r\n" % i for i in range(1, 41))


def test_an_exit_while_nobody_looks_is_reported_later(agent: Agent) -> None:
    task = agent.run("echo first; sleep 0.3; echo last; exit 3")
    agent.says(task, b"first")
    agent.kill()
    state = agent.data / "tasks" / task / "state.json"
    agent.plane.until(lambda: "exited" in state.read_text())
    agent.start()
    assert agent.plane.exited(task)["exit_status"] == 3
    assert agent.plane.logs[task] == b"first\r\nlast\r\n"


def test_a_second_agent_hands_the_first_the_new_address(agent: Agent) -> None:
    task = agent.run("echo begun; sleep 1; echo ended")
    agent.says(task, b"begun")
    agent.server.stop()
    agent.server = Server(agent.plane)
    second = subprocess.run(agent.command(), capture_output=True, text=True, timeout=PATIENCE)
    assert (second.returncode, "already running on" in second.stderr) == (0, True)
    agent.plane.exited(task)
    assert agent.plane.logs[task] == b"begun\r\nended\r\n"
    assert agent.process is not None and agent.process.poll() is None


def cleared(agent: Agent) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", str(agent.program), "clear", "--data", str(agent.data), "--runtime", "process"]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)


def supervisors(task: str) -> list[int]:
    found = []
    for pid in all_pids():
        with contextlib.suppress(OSError):
            argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"supervise" in argv and any(argument.endswith(task.encode()) for argument in argv):
                found.append(pid)
    return found


@pytest.mark.parametrize("who", ["agent", "agent and supervisor"])
def test_a_machine_is_cleared_of_every_task_and_file(agent: Agent, who: str) -> None:
    task = agent.run("echo begun; sleep 600")
    agent.says(task, b"begun")
    over = agent.run("true")
    agent.plane.exited(over)
    agent.kill()
    (supervisor,) = supervisors(task)
    assert marked(task)
    if who != "agent":
        os.kill(supervisor, signal.SIGKILL)
    done = cleared(agent)
    assert (done.returncode, done.stderr) == (0, "")
    assert list(agent.data.iterdir()) == []
    agent.plane.until(lambda: not marked(task) and not supervisors(task))
    assert cleared(agent).returncode == 0, "it may be repeated"


def test_a_machine_isnt_cleared_under_its_agent(agent: Agent) -> None:
    agent.plane.until(lambda: agent.plane.facts)
    done = cleared(agent)
    assert (done.returncode, "an agent is running" in done.stderr) == (main.FOLDER_IN_USE, True)
    assert list(agent.data.iterdir()) != []


def test_a_folder_of_another_instance_is_refused(agent: Agent) -> None:
    agent.plane.until(lambda: agent.plane.facts)
    command = [argument if argument != "i-1" else "i-2" for argument in agent.command()]
    other = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert other.returncode == 3
    assert "i-1" in other.stderr and "--data" in other.stderr


def test_sigterm_leaves_tasks_running(agent: Agent) -> None:
    task = agent.run("echo begun; sleep 0.5; exit 4")
    agent.says(task, b"begun")
    assert agent.stop() == 0
    agent.start()
    assert agent.plane.exited(task)["exit_status"] == 4


def test_a_refused_credential_ends_nothing(agent: Agent) -> None:
    task = agent.run("echo begun; sleep 0.5; echo ended")
    agent.says(task, b"begun")
    agent.plane.refuse = True
    spool = agent.data / "tasks" / task / "state.json"
    agent.plane.until(lambda: "exited" in spool.read_text())
    agent.plane.refuse = False
    agent.kill()  # its patience is minutes by then; a new start asks at once
    agent.start()
    agent.plane.exited(task)
    assert agent.plane.logs[task] == b"begun\r\nended\r\n"


def test_archives_are_fetched_with_the_credential(agent: Agent) -> None:
    agent.plane.archives["/agent/files/1"] = archive({"data/a.txt": b"content"})
    files = [{"id": "1", "path": "given", "url": "/agent/files/1"}]
    task = agent.run("cat given/a.txt", files=files)
    assert agent.plane.exited(task)["exit_status"] == 0
    assert agent.plane.logs[task] == b"content"


def test_a_missing_archive_says_so(agent: Agent) -> None:
    task = agent.run("true", files=[{"id": "1", "path": "given", "url": "/agent/files/none"}])
    report = agent.plane.exited(task)
    assert (report["reason"], "/agent/files/none" in report["message"]) == ("executor_error", True)


def test_gpus_that_arent_there_are_missed_in_words(agent: Agent) -> None:
    here = len(agent.plane.until(lambda: agent.plane.facts)["gpus"])
    report = agent.plane.exited(agent.run("true", gpus=here + 2))
    missed = f"{here + 2} GPUs wanted, {here} of {here} free here"
    assert (report["reason"], report["message"]) == ("executor_error", missed)


def test_many_tasks_at_once(agent: Agent) -> None:
    tasks = [agent.run(f"echo task {number}; exit {number}") for number in range(20)]
    for number, task in enumerate(tasks):
        assert agent.plane.exited(task)["exit_status"] == number
        assert agent.plane.logs[task] == b"task %d\r\n" % number


@pytest.fixture
def full() -> Iterator[Gate]:
    with gate() as one:
        yield one


def mount_tiny(place: Path) -> bool:
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tiny", str(place)]
    return subprocess.run(command, capture_output=True).returncode == 0


def test_a_full_disk_holds_output_back_and_loses_none(tmp_path: Path, full: Gate) -> None:
    place = tmp_path / "tiny"
    if not mount_tiny(place):
        pytest.skip("a full disk needs a file system of its own, which only root may mount")
    try:
        agent = Agent(tmp_path, Plane())
        agent.data = place
        agent.start()
        try:
            agent.plane.until(lambda: agent.plane.facts)
            task = agent.run(
                f"echo begun; {full.command}; i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo line $i; done; exit 8"
            )
            agent.says(task, b"begun")
            fill(place / "filler")
            full.open()
            agent.plane.until(lambda: "disk" in agent.plane.reports[task].get("message", ""))
            assert agent.process is not None and agent.process.poll() is None
            assert agent.plane.reports[task]["state"] == "running"
            (place / "filler").unlink()
            assert agent.plane.exited(task)["exit_status"] == 8
            assert agent.plane.logs[task] == b"begun\r\n" + b"".join(b"line %d\r\n" % i for i in range(1, 3001))
        finally:
            (place / "filler").unlink(missing_ok=True)
            agent.end()
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(path: Path) -> None:
    """Write until there is no room for another byte."""
    with path.open("wb", buffering=0) as file:
        for size in (65536, 4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
