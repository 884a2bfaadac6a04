"""A supervisor's patience and words, with a task that is only played, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.kernel.tasks import TaskFolder, make_pipe
from chalicelib.agent.program.supervisor import detach, drain, patience_of

pytestmark = pytest.mark.slow

PLAYED = """
import json, os, sys, time
from chalicelib.agent.program import supervisor
from chalicelib.agent.kernel.task_runtime import TaskError
from chalicelib.agent.kernel.tasks import TaskFolder, make_pipe

told = json.loads(sys.argv[2])
folder = TaskFolder(sys.argv[1], "t")
calls = []

class Work:
    def __init__(self):
        self.reader, writer = os.pipe()
        os.set_blocking(self.reader, False)
        os.write(writer, told.get("says", "").encode())
        self.asked = 0
        self.until = time.monotonic() + told.get("quiet", 0)
        if "quiet" in told:
            os.write(make_pipe(folder.wake), b"\\n")
    def fileno(self): return -1 if told.get("lost") else self.reader
    def read(self):
        if "fills" in told and not self.asked:
            with open(told["fills"], "wb", buffering=0) as file:
                try:
                    while True:
                        file.write(b"x" * (4 << 20))
                except OSError:
                    pass
        try:
            return os.read(self.reader, 100)
        except BlockingIOError:
            return b""
    def ended(self):
        self.asked += 1
        if "quiet" in told:
            over = time.monotonic() >= self.until
            calls.extend([self.asked] * over)
            return 0 if over else None
        if "fills" in told and self.asked == 2:
            os.unlink(told["fills"])
        if calls.count("kill") >= told.get("dies_of_kill", 1) or told.get("dies_of") in calls:
            return told["status"]
        return told["status"] if told.get("ends", True) and self.asked > 2 else None
    def wake_at(self):
        return self.until if "quiet" in told else float("inf") if "fills" in told else time.monotonic() + 0.01
    def signal_politely(self): calls.append("politely")
    def signal_firmly(self): calls.append("firmly")
    def kill(self): calls.append("kill")
    def out_of_memory(self): return told.get("out_of_memory", False)
    def step(self): return told.get("step", "")
    def finish(self): return told.get("last", "").encode()

class Runtime:
    name = "played"
    def begin(self, began):
        assert (began.folder.task, began.spec, began.gpus) == ("t", folder.launch()["spec"], folder.launch()["gpus"])
        if told.get("trouble"):
            raise TaskError("creating_container_error", told["trouble"])
        if told.get("bug"):
            raise ZeroDivisionError("a bug")
        began.pause(0)
        began.report("running", username="u", **told.get("running", {}))
        return Work()

supervisor.run(folder, Runtime())
print(json.dumps(calls))
"""


def played(
    data: Path, script: dict[str, Any], request: dict[str, Any] | None = None, **spec: Any
) -> tuple[dict[str, Any], list[str]]:
    """The last state of a task, and what its supervisor did to it."""
    folder = TaskFolder(str(data), "t")
    folder.create({"spec": spec, "gpus": ["GPU-1"]})
    if request:
        folder.write_request(request)
    command = [sys.executable, "-c", PLAYED, str(data), json.dumps(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return folder.state(), json.loads(done.stdout)


@pytest.mark.parametrize(
    ("script", "reason", "message"),
    [
        ({"status": 0}, "done_by_runner", ""),
        ({"status": 3}, "container_exited_with_error", "exited with status 3"),
        ({"status": 128}, "container_exited_with_error", "exited with status 128"),
        ({"status": 139}, "container_exited_with_error", "killed by signal SIGSEGV"),
        ({"status": 255}, "container_exited_with_error", "exited with status 255"),
        ({"status": 137}, "container_exited_with_error", "killed by signal SIGKILL"),
        (
            {"status": 137, "out_of_memory": True},
            "container_exited_with_error",
            "killed: it used more memory than its limit of 64 MiB",
        ),
        ({"status": 1, "out_of_memory": True}, "container_exited_with_error", "exited with status 1"),
    ],
)
def test_an_end_in_words(tmp_path: Path, script: dict[str, Any], reason: str, message: str) -> None:
    state, calls = played(tmp_path, script, memory_bytes=64 << 20)
    assert (state["state"], state["reason"], state["message"]) == ("exited", reason, message)
    assert (state["id"], state["exit_status"], state["username"], calls) == ("t", script["status"], "u", [])
    assert state["at"] >= state["running_at"] > 1_700_000_000_000_000


NAMES = ["command 1 (`make`)", "command 2 (`train`)", ""]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ({"status": 3, "step": "1\n2\n"}, "exited with status 3 in command 2 (`train`)"),
        ({"status": 137, "step": "1\n"}, "killed by signal SIGKILL in command 1 (`make`)"),
        ({"status": 3, "step": "1\n2\n3\n"}, "exited with status 3"),
        ({"status": 3, "step": "nonsense"}, "exited with status 3"),
        ({"status": 0, "step": "2\n"}, ""),
    ],
)
def test_an_end_names_the_command_that_it_came_in(tmp_path: Path, script: dict[str, Any], message: str) -> None:
    assert played(tmp_path, script, steps=NAMES)[0]["message"] == message


def test_an_end_that_was_asked_for_names_none(tmp_path: Path) -> None:
    script = {"status": 130, "dies_of": "politely", "ends": False, "step": "1\n"}
    state, _ = played(tmp_path, script, {"stop": True, "grace": 60}, steps=NAMES)
    assert (state["message"], state["reason"]) == ("", "terminated_by_user")


def test_all_output_counts_the_last_of_it_too(tmp_path: Path) -> None:
    state, _ = played(tmp_path, {"status": 0, "says": "12345", "last": "678"})
    assert state["log_end"] == 8


def test_the_agent_is_told_of_output_besides_the_states(tmp_path: Path) -> None:
    def wakes(output: str) -> int:
        data = tmp_path / f"says-{output}"
        data.mkdir()
        pipe = make_pipe(str(data / "wake"))
        played(data, {"status": 0, "says": output})
        return os.read(pipe, 4096).count(b"t\n")

    assert wakes("something") == wakes("") + 1


def test_a_task_whose_connection_is_lost_is_asked_for_its_end_all_the_same(tmp_path: Path) -> None:
    state, _ = played(tmp_path, {"status": 0, "lost": True})
    assert (state["reason"], state["message"]) == ("done_by_runner", "")


@pytest.mark.skipif(os.getuid() != 0, reason="only root may mount a small disk")
def test_output_that_found_no_room_is_written_when_there_is_some_though_nothing_wakes_anybody(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tiny", str(disk)], capture_output=True).returncode:
        pytest.skip("no mounts here")
    try:
        state, _ = played(disk, {"status": 0, "says": "12345", "fills": str(disk / "filler")})
        assert (state["reason"], state["log_end"]) == ("done_by_runner", 5)
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_another_process_goes_on_in_a_session_that_it_doesnt_lead() -> None:
    reader, writer = os.pipe()
    outside = os.getsid(0)
    child = os.fork()
    if child == 0:
        try:
            first = os.getpid()
            goes_on = detach()
            moved = os.getsid(0) not in (outside, os.getpid())
            os.write(writer, json.dumps([os.getpid() == first, goes_on, moved]).encode() + b"\n")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        assert sorted(map(json.loads, pipe)) == [[False, True, True], [True, False, False]]


def test_a_wake_up_is_taken_once(tmp_path: Path) -> None:
    pipe = make_pipe(str(tmp_path / "wake"))
    os.write(pipe, b"\n" * 5000)
    drain(pipe)
    with pytest.raises(BlockingIOError):
        os.read(pipe, 1)
    drain(pipe)


@pytest.mark.parametrize(
    ("script", "reason", "message"),
    [
        ({"trouble": "no such image"}, "creating_container_error", "no such image"),
        ({"bug": True}, "executor_error", "the agent failed to run the task: ZeroDivisionError('a bug')"),
    ],
)
def test_a_task_that_cant_begin(tmp_path: Path, script: dict[str, Any], reason: str, message: str) -> None:
    state, _ = played(tmp_path, script)
    assert (state["state"], state["reason"], state["message"]) == ("exited", reason, message)
    assert state["exit_status"] is None


@pytest.mark.parametrize(
    ("request_", "reason"), [({"stop": True}, "terminated_by_user"), ({"abort": True}, "aborted_by_user")]
)
def test_a_task_that_is_ended_before_it_began(tmp_path: Path, request_: dict[str, Any], reason: str) -> None:
    state, calls = played(tmp_path, {"status": 0}, request_)
    assert (state["state"], state["reason"], state["message"], calls) == ("exited", reason, "", [])
    assert "running_at" not in state


LONG_AGO = {"running_at": 1_000_000}
FOREVER: dict[str, Any] = {"status": 143, "ends": False, "running": LONG_AGO}


def test_a_task_that_took_too_long_is_asked_and_asked_again_and_killed(tmp_path: Path) -> None:
    state, calls = played(tmp_path, FOREVER, max_duration=5, stop_duration=0.2)
    assert calls == ["politely", "firmly", "kill"]
    assert (state["reason"], state["message"]) == ("max_duration_exceeded", "ended after max_duration, 5 seconds")


def test_a_task_that_goes_when_it_is_asked_is_left_to_it(tmp_path: Path) -> None:
    state, calls = played(tmp_path, {**FOREVER, "dies_of": "politely"}, max_duration=5)
    assert (calls, state["reason"], state["exit_status"]) == (["politely"], "max_duration_exceeded", 143)


def test_a_task_that_goes_at_the_second_word(tmp_path: Path) -> None:
    _, calls = played(tmp_path, {**FOREVER, "dies_of": "firmly"}, max_duration=5, stop_duration=0.4)
    assert calls == ["politely", "firmly"]


@pytest.mark.parametrize(
    ("spec", "grace", "want"), [(7, None, 7.0), (7, 2.5, 2.5), (7, 0, 0.0), (0, None, 0.0), (None, None, float("inf"))]
)
def test_how_long_a_task_may_take_to_end_is_the_servers_to_say(spec: Any, grace: float | None, want: float) -> None:
    assert patience_of({"stop_duration": spec}, grace) == want


def test_no_patience_at_all_kills_at_once(tmp_path: Path) -> None:
    _, calls = played(tmp_path, FOREVER, max_duration=5, stop_duration=0)
    assert calls == ["politely", "kill"]


def test_a_task_within_its_time_runs_on(tmp_path: Path) -> None:
    state, calls = played(tmp_path, {"status": 0}, max_duration=1000)
    assert (state["reason"], calls) == ("done_by_runner", [])


def test_a_supervisor_with_nothing_to_do_sleeps(tmp_path: Path) -> None:
    _, (calls,) = played(tmp_path, {"quiet": 0.3})
    assert int(calls) < 10, "once for the output, for a wake-up, for the end"


def test_what_is_over_or_gone_isnt_begun_again(tmp_path: Path) -> None:
    folder = TaskFolder(str(tmp_path), "t")
    folder.create({"spec": {}, "gpus": []})
    folder.write_state({"state": "exited", "reason": "mine"})
    command = [sys.executable, "-c", PLAYED, str(tmp_path), json.dumps({"status": 0})]
    assert subprocess.run(command, capture_output=True, text=True, timeout=120).stdout == "[]\n"
    assert folder.state() == {"state": "exited", "reason": "mine"}
    folder.delete()
    assert subprocess.run(command, capture_output=True, text=True, timeout=120).stdout == "[]\n"
    assert not Path(folder.path).exists()
