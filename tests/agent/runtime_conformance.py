"""What every runtime keeps. A runtime joins with a subclass that gives `workshop`; nobody opts out.

The tests go the real way: a task's folder, a supervisor process, the spool. Only the agent's loop and the server are
missing.
"""

from __future__ import annotations

import io
import os
import secrets
import signal
import tarfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.kernel.process_tree import all_pids
from chalicelib.agent.kernel.task_runtime import TaskRuntime
from chalicelib.agent.program import build
from chalicelib.agent.program.roster import Roster
from chalicelib.planning.jobs import command_lists
from tests.agent.supervisors import ForkingRoster
from tests.harness.conformance import Conformance

PATIENCE = 120.0  # seconds: two busy cores are slow
NEVER = 100 * PATIENCE  # a grace that no test waits out


@dataclass
class Workshop:
    """A roster with one runtime, and the words to write a test in."""

    data: Path
    runtime: TaskRuntime
    socket: str = ""
    base: dict[str, Any] = field(default_factory=dict)  # what each spec needs here: an image
    shell: str = "/bin/sh"
    started: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.roster = self.new_roster()

    def new_roster(self, users: str = "") -> Roster:
        """As a restarted agent would make it."""
        runtimes, program = {self.runtime.name: self.runtime}, lambda: build.unpack(str(self.data))
        return ForkingRoster(str(self.data), runtimes, self.runtime.name, program, self.socket, users)

    def start(self, script: str, **spec: Any) -> str:
        task = str(uuid.uuid4())
        wanted = {**self.base, "commands": [self.shell, "-c", script], "env": {}, **spec, "id": task}
        self.started.append(task)
        self.roster.create(task, wanted, [])
        self.roster.launch(task, self.fetch)
        return task

    def commands(self, *items: str, **spec: Any) -> str:
        """The same of a list of commands, as planning has it run."""
        argv = command_lists.argv(self.shell, items)
        return self.start("", commands=argv, shell=self.shell, steps=command_lists.names((), items, ()), **spec)

    def fetch(self, url: str, place: str) -> None:
        Path(place).write_bytes(Path(url).read_bytes())

    def state(self, task: str) -> dict[str, Any]:
        return self.roster.report(task)

    def log(self, task: str) -> bytes:
        reader = self.new_roster().log(task)
        return b"".join(data for _, data in reader.read(0, 1 << 30)[1])

    def until(self, truth: Callable[[], Any], task: str, seconds: float = PATIENCE) -> Any:
        """A check that takes long pauses as long, and so leaves the cores to what it waits for."""
        deadline = time.monotonic() + seconds
        while True:
            began = time.monotonic()
            if value := truth():
                return value
            now = time.monotonic()
            if now > deadline:
                supervisor_log = (self.data / "tasks" / task / "supervisor.log").read_text()
                raise AssertionError(
                    f"waited in vain: {self.state(task)}, log {self.log(task)[-300:]!r}, {supervisor_log}"
                )
            time.sleep(max(0.02, now - began))

    def running(self, task: str) -> None:
        self.until(lambda: self.state(task)["state"] == "running", task)

    def says(self, task: str, text: bytes) -> None:
        self.until(lambda: text in self.log(task), task)

    def exited(self, task: str, seconds: float = PATIENCE) -> dict[str, Any]:
        self.until(lambda: self.state(task)["state"] == "exited", task, seconds)
        return self.state(task)

    def supervisor(self, task: str) -> int:
        return int((self.data / "tasks" / task / "pid").read_text())

    def end(self) -> None:
        for task in self.started:
            if Path(self.roster.folder(task).path).is_dir():
                if self.roster.orphaned(task):
                    self.roster.launch(task, self.fetch)
                self.roster.abort(task)
        for task in self.started:
            if Path(self.roster.folder(task).path).is_dir():
                self.exited(task)
                self.roster.remove(task)


def archive(entries: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, data in entries.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return packed.getvalue()


class RuntimeConformance(Conformance):
    @pytest.fixture
    def workshop(self) -> Workshop:
        raise NotImplementedError

    @pytest.mark.parametrize("status", [0, 42])
    def test_exit_status_and_reason_and_nothing_is_left_of_a_task_that_is_removed(
        self, workshop: Workshop, status: int
    ) -> None:
        task = workshop.start(f"exit {status}")
        state = workshop.exited(task)
        assert state["exit_status"] == status
        assert state["reason"] == ("done_by_runner" if status == 0 else "container_exited_with_error")
        workshop.roster.remove(task)
        assert not Path(workshop.roster.folder(task).path).exists()
        workshop.roster.remove(task)

    def test_an_end_names_the_command_that_it_came_in(self, workshop: Workshop) -> None:
        commands = ["cd /tmp", "echo here", "sh -c 'exit 3'", "echo never"]
        task = workshop.commands(*commands)
        state = workshop.exited(task)
        assert (state["exit_status"], state["message"]) == (3, "exited with status 3 in command 3 (`sh -c 'exit 3'`)")
        assert workshop.log(task).endswith(b"here\r\n"), "some shells greet"
        state = workshop.exited(workshop.commands("echo a", "exec sh -c 'kill -9 $$'", "echo never"))
        assert state["message"] == "killed by signal SIGKILL in command 2 (`exec sh -c 'kill -9 $$'`)"
        assert (state["exit_status"], state["reason"]) == (137, "container_exited_with_error")

    def test_stop_ends_a_list_of_commands_once_its_program_has_cleaned_up(self, workshop: Workshop) -> None:
        cleans = "trap 'sleep 0.2; echo cleaned; exit 0' INT; echo ready; while :; do sleep 0.05; done"
        task = workshop.commands("echo a", f'sh -c "{cleans}"', "echo never")
        workshop.says(task, b"ready")
        workshop.roster.stop(task, NEVER)
        state = workshop.exited(task)
        assert (state["reason"], state["message"]) == ("terminated_by_user", "")
        assert workshop.log(task).endswith(b"a\r\nready\r\ncleaned\r\n")

    def test_environment_and_folders_and_the_hostfile_are_as_the_spec_says(self, workshop: Workshop) -> None:
        task = workshop.start(
            'echo "<$FOO|$EMPTY|$ODD|$SECRET_OF_THE_AGENT>"; '
            'test "$DSTACK_WORKING_DIR" = "$(pwd)" && echo "<$DSTACK_REPO_DIR>"; cat "$DSTACK_MPI_HOSTFILE"',
            env={"FOO": "a b", "EMPTY": "", "ODD": "x=y$z", "DSTACK_REPO_DIR": "/mine"},
            hostfile="10.0.0.5 slots=8\n10.0.0.6 slots=8\n",
        )
        workshop.exited(task)
        hosts = b"10.0.0.5 slots=8\r\n10.0.0.6 slots=8\r\n"
        assert workshop.log(task) == b"<a b||x=y$z|>\r\n</mine>\r\n" + hosts

    def test_output_and_errors_keep_their_order_and_five_megabytes_arrive_whole(self, workshop: Workshop) -> None:
        task = workshop.start(
            "for i in $(seq 1 200); do echo out$i; echo err$i >&2; done; "
            "head -c 5000000 /dev/zero | tr '\\0' x; echo; echo end"
        )
        workshop.exited(task)
        log, lines = workshop.log(task), b"".join(b"out%d\r\nerr%d\r\n" % (i, i) for i in range(1, 201))
        assert log == lines + b"x" * 5_000_000 + b"\r\nend\r\n"
        assert workshop.roster.log(task).end() == len(log)

    def test_bytes_that_are_no_text_arrive_as_they_are(self, workshop: Workshop) -> None:
        task = workshop.start("stty -opost; printf '\\377\\000\\200\\001no newline'")
        workshop.exited(task)
        assert workshop.log(task) == b"\xff\x00\x80\x01no newline"

    def test_output_is_a_terminal(self, workshop: Workshop) -> None:
        task = workshop.start(
            "[ -t 0 ] && [ -t 1 ] && [ -t 2 ] || exit 9; "
            "i=0; while [ $i -lt 2000 ] && [ \"$(stty size 2>/dev/null)\" != '40 120' ]; "
            "do i=$((i+1)); sleep 0.05; done; stty size; echo its own >/dev/tty"
        )
        assert workshop.exited(task)["exit_status"] == 0
        assert workshop.log(task).splitlines() == [b"40 120", b"its own"]

    def test_stop_lets_a_listener_finish(self, workshop: Workshop) -> None:
        task = workshop.start("trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.05; done")
        workshop.says(task, b"ready")
        workshop.roster.stop(task, NEVER)
        state = workshop.exited(task)
        assert (state["reason"], state["exit_status"]) == ("terminated_by_user", 3)
        assert b"bye" in workshop.log(task)

    def test_stop_kills_after_the_grace(self, workshop: Workshop) -> None:
        task = workshop.start("trap 'echo asked' TERM INT; echo ready; while :; do sleep 0.05; done")
        workshop.says(task, b"ready")
        workshop.roster.stop(task, 1)
        state = workshop.exited(task)
        assert (state["reason"], state["exit_status"]) == ("terminated_by_user", 137)
        assert b"asked" in workshop.log(task)

    def test_abort_kills_at_once_and_everybody(self, workshop: Workshop) -> None:
        long = seconds()
        task = workshop.start(
            f"trap '' TERM INT; (trap '' TERM INT HUP; sleep {long}) & (sleep {long} &) ; echo ready; sleep {long}"
        )
        workshop.says(task, b"ready")
        workshop.roster.abort(task)
        assert workshop.exited(task)["reason"] == "aborted_by_user"
        assert not sleepers(long)

    def test_nobody_outlives_the_first_process(self, workshop: Workshop) -> None:
        long = seconds()
        task = workshop.start(f"(trap '' HUP; sleep {long} </dev/null >/dev/null 2>&1 &) ; sleep {long} & exit 5")
        assert workshop.exited(task)["exit_status"] == 5
        assert not sleepers(long)

    @pytest.mark.parametrize("end", ["stop", "abort", "exit"])
    def test_a_daemon_of_its_own_session_and_without_our_mark_doesnt_escape(self, workshop: Workshop, end: str) -> None:
        long = seconds()
        daemon = f"(setsid env -i PATH=$PATH sh -c '>up; exec sleep {long}' </dev/null >/dev/null 2>&1 &)"
        left = "true" if end == "exit" else "sleep 600"
        task = workshop.start(f"{daemon}; until [ -e up ]; do sleep 0.05; done; echo on; {left}")
        workshop.says(task, b"on")
        if end == "stop":
            workshop.roster.stop(task, 1)
        elif end == "abort":
            workshop.roster.abort(task)
        workshop.exited(task)
        assert not sleepers(long)

    def test_max_duration_ends_a_task(self, workshop: Workshop) -> None:
        state = workshop.exited(workshop.start("while :; do sleep 0.05; done", max_duration=1, stop_duration=1))
        assert state["reason"] == "max_duration_exceeded"

    def test_a_missing_program_is_named(self, workshop: Workshop) -> None:
        task = workshop.start("", commands=["/no/such/program"])
        state = workshop.exited(task)
        assert state["reason"] in ("executor_error", "container_exited_with_error")
        assert "/no/such/program" in state["message"] + workshop.log(task).decode()

    def test_files_are_in_the_working_directory_before_the_start(self, workshop: Workshop, tmp_path: Path) -> None:
        (tmp_path / "one.tar").write_bytes(archive({"data/a.txt": b"A", "data/sub/b.txt": b"B"}))
        (tmp_path / "two.tar").write_bytes(archive({"local.cfg": b"C"}))
        files = [
            {"id": "1", "path": "given", "url": str(tmp_path / "one.tar")},
            {"id": "2", "path": "~/renamed.cfg", "url": str(tmp_path / "two.tar")},
        ]
        script = "cat given/a.txt given/sub/b.txt ~/renamed.cfg; pwd"
        task = workshop.start(script, files=files, working_dir="deep/er")
        state = workshop.exited(task)
        assert state["exit_status"] == 0, workshop.log(task)
        assert workshop.log(task).decode() == f"ABC{state['working_dir']}\r\n"
        assert state["working_dir"].endswith("/deep/er")

    def test_two_supervisors_are_one(self, workshop: Workshop) -> None:
        task = workshop.start("echo once; sleep 0.5")
        workshop.says(task, b"once")
        workshop.roster.launch(task, workshop.fetch)
        workshop.exited(task)
        assert workshop.log(task) == b"once\r\n"

    def test_usage_of_a_running_task(self, workshop: Workshop) -> None:
        task = workshop.start("i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo worked; sleep 600")
        workshop.says(task, b"worked")
        usage = workshop.runtime.usage(workshop.roster.folder(task))
        assert usage is not None
        assert usage.cpu_usage_micro > 10_000
        assert 0 < usage.memory_working_set_bytes <= usage.memory_usage_bytes

    def test_stop_before_the_start(self, workshop: Workshop) -> None:
        task = str(uuid.uuid4())
        workshop.started.append(task)
        workshop.roster.create(task, {**workshop.base, "commands": [workshop.shell, "-c", "echo no"], "id": task}, [])
        workshop.roster.stop(task, 1)
        workshop.roster.launch(task, workshop.fetch)
        assert workshop.exited(task)["reason"] == "terminated_by_user"
        assert workshop.log(task) == b""


def seconds() -> str:
    """A very long time, and no other test's: the same one may run beside this, in another runtime."""
    return str(1_000_000 + secrets.randbelow(1_000_000_000))


def sleepers(seconds: str) -> list[int]:
    """Processes anywhere on this machine that sleep for just that long."""
    found = []
    for pid in all_pids():
        try:
            argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if argv[-2:] == [seconds.encode(), b""]:
            found.append(pid)
    return found


def kill_supervisor(workshop: Workshop, task: str) -> None:
    """As the kernel does when memory runs out: no last word."""
    os.kill(workshop.supervisor(task), signal.SIGKILL)
    workshop.until(lambda: not workshop.roster.folder(task).supervised(), task)
