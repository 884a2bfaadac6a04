"""Plain processes keep the runtimes' contract, and have a few features of their own."""

from __future__ import annotations

import os
import resource
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from chalicelib.agent.kernel.process_tree import marked
from chalicelib.agent.kernel.task_runtime import READ_BYTES
from chalicelib.agent.program.roster import Roster
from chalicelib.agent.runtimes.process import ProcessRuntime
from tests.agent.runtime_conformance import NEVER, RuntimeConformance, Workshop, kill_supervisor, sleepers
from tests.harness.ports import free_port

pytestmark = pytest.mark.slow

root_only = pytest.mark.skipif(os.getuid() != 0, reason="only root may run a task as somebody else")


class TestProcessRuntime(RuntimeConformance):
    @pytest.fixture
    def workshop(self, tmp_path: Path) -> Iterator[Workshop]:
        workshop = Workshop(tmp_path, ProcessRuntime())
        yield workshop
        workshop.end()

    def test_home_and_working_directory_are_the_tasks_own(self, workshop: Workshop) -> None:
        task = workshop.start('echo "$HOME"; pwd')
        workshop.exited(task)
        first, second = workshop.log(task).decode().split()
        assert first == second and task in first

    def test_another_home_is_made_for_the_task(self, workshop: Workshop) -> None:
        workshop.roster = workshop.new_roster("agent")
        task = workshop.start('cd && pwd && echo "$HOME"', home_dir=f"{workshop.data}/deep/home")
        workshop.exited(task)
        assert set(workshop.log(task).decode().split()) == {f"{workshop.data}/deep/home"}

    @root_only
    def test_a_home_that_its_user_may_not_make_is_named(self, workshop: Workshop) -> None:
        state = workshop.exited(workshop.start("true", home_dir="/srv/no/such/home"))
        assert state["reason"] == "executor_error"
        assert state["message"] == "home_dir /srv/no/such/home: Permission denied"

    def test_an_interactive_shell_is_at_home_on_the_terminal(self, workshop: Workshop) -> None:
        task = workshop.start("", commands=["/bin/bash", "-i", "-c", "echo one && echo two"])
        workshop.exited(task)
        assert workshop.log(task) == b"one\r\ntwo\r\n"

    def test_stop_ends_an_interactive_shells_command_and_its_list(self, workshop: Workshop) -> None:
        task = workshop.start("", commands=["/bin/bash", "-i", "-c", "echo ready; sleep 6543; echo never"])
        workshop.says(task, b"ready")
        workshop.until(lambda: sleepers("6543"), task)
        workshop.roster.stop(task, NEVER)
        assert workshop.exited(task)["reason"] == "terminated_by_user"
        assert b"never" not in workshop.log(task)

    def test_a_lot_of_output_is_whole_and_no_record_of_it_large(self, workshop: Workshop) -> None:
        task = workshop.start("head -c 1000000 /dev/zero | tr '\\0' x; echo done; sleep 6544")
        workshop.says(task, b"done")
        _, records = workshop.roster.read_log(task, 0, 1 << 21)
        assert max(len(data) for _, data in records) <= READ_BYTES
        assert b"".join(data for _, data in records) == b"x" * 1_000_000 + b"done\r\n"

    @root_only
    def test_user(self, workshop: Workshop) -> None:
        workshop.roster = workshop.new_roster("agent")
        task = workshop.start("id -un; touch mine && echo wrote; cat /etc/shadow", user="nobody", user_permitted=True)
        assert workshop.exited(task)["username"] == "nobody"
        log = workshop.log(task).decode()
        assert log.startswith("nobody\r\nwrote\r\n") and "denied" in log

    def test_an_unknown_user_is_named(self, workshop: Workshop) -> None:
        state = workshop.exited(workshop.start("true", user="nosuchuser", user_permitted=True))
        assert (state["reason"], "nosuchuser" in state["message"]) == ("executor_error", True)

    def test_shared_memory_is_the_machines_or_refused(self, workshop: Workshop) -> None:
        there = os.statvfs("/dev/shm")
        most = there.f_blocks * there.f_frsize
        assert workshop.exited(workshop.start("true", shm_bytes=most))["exit_status"] == 0
        state = workshop.exited(workshop.start("true", shm_bytes=most + 1))
        assert (state["reason"], "shm_size" in state["message"]) == ("executor_error", True)

    def test_a_killed_supervisor_ends_its_task_and_says_so(self, workshop: Workshop) -> None:
        task = workshop.start("trap '' HUP; echo before; sleep 2222")
        workshop.says(task, b"before")
        kill_supervisor(workshop, task)
        assert workshop.new_roster().orphaned(task)
        workshop.new_roster().launch(task, workshop.fetch)
        state = workshop.exited(task)
        assert (state["reason"], "supervisor" in state["message"]) == ("executor_error", True)
        assert workshop.log(task) == b"before\r\n"
        workshop.until(lambda: not marked(task), task)  # what was killed takes a moment to go

    def test_a_supervisor_that_cant_start_is_the_end_of_its_task_in_words(self, workshop: Workshop) -> None:
        broken = workshop.data / "broken.py"
        broken.write_text("raise SystemExit('no such module: x')")
        roster = Roster(str(workshop.data), {"process": workshop.runtime}, "process", lambda: str(broken), "")
        roster.create("task", {"id": "task", "commands": ["true"]}, [])
        roster.launch("task", workshop.fetch)

        def over() -> bool:
            roster.reap()
            if not roster.over("task"):
                roster.launch("task", workshop.fetch)
            return roster.over("task")

        workshop.until(over, "task")
        state = roster.report("task")
        assert (state["reason"], "no such module: x" in state["message"]) == ("executor_error", True)
        roster.reap()
        roster.remove("task")

    def test_a_port_that_is_taken_ends_the_job_before_it_starts(self, workshop: Workshop) -> None:
        port = free_port()
        with socket.create_server(("127.0.0.1", port)):
            state = workshop.exited(workshop.start("echo never", ports=[port]))
        assert (state["reason"], f"port {port};" in state["message"]) == ("ports_binding_failed", True)
        assert workshop.exited(workshop.start("true", ports=[port]))["exit_status"] == 0

    def test_no_core_files(self, workshop: Workshop) -> None:
        task = workshop.start("ulimit -c")
        workshop.exited(task)
        assert workshop.log(task).strip() == b"0"
        assert resource.getrlimit(resource.RLIMIT_CORE)[1] != 0

    @pytest.mark.skipif(
        not os.access("/sys/fs/cgroup/memory", os.W_OK), reason="no cgroup v1 memory controller to write to"
    )
    def test_memory_limit(self, workshop: Workshop) -> None:
        workshop.roster = workshop.new_roster("agent")  # whose interpreter may be in a home that is closed to others
        argv = [sys.executable, "-S", "-c", "x = bytearray(300 << 20)"]
        task = workshop.start("", commands=argv, memory_bytes=48 << 20)
        state = workshop.exited(task)
        assert (state["exit_status"], "memory" in state["message"]) == (137, True)
        assert not Path(f"/sys/fs/cgroup/memory/dstack-{task}").exists()
