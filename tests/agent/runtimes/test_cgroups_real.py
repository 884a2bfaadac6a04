"""Nothing outlives its job, whatever it did: on this machine's own control groups."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from chalicelib.agent.runtimes.cgroups import TaskGroup
from chalicelib.agent.runtimes.process import ProcessRuntime
from tests.agent.runtime_conformance import Workshop, kill_supervisor, sleepers

# A daemon by the book: forked twice, a session of its own, no terminal, no environment, so no mark either.
DAEMON = """
import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in (0, 1, 2):
            os.dup2(os.open("/dev/null", os.O_RDWR), number)
        os.execve("/bin/sleep", ["sleep", "{seconds}"], {{}})
    os._exit(0)
os.wait()
"""


def groups_here() -> bool:
    probe = TaskGroup(f"probe-{os.getpid()}")
    probe.make(None, None)
    try:
        return bool(probe.groups())
    finally:
        probe.delete()


pytestmark = pytest.mark.skipif(not groups_here(), reason="no control group can be made here")


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    workshop = Workshop(tmp_path, ProcessRuntime("agent"))  # no user of their own by which they could be found
    workshop.roster = workshop.new_roster("agent")
    yield workshop
    workshop.end()


def daemon(workshop: Workshop, seconds: str, after: str) -> str:
    (workshop.data / "daemon.py").write_text(DAEMON.format(seconds=seconds))
    task = workshop.start(f"{sys.executable} -S {workshop.data}/daemon.py; {after}")
    workshop.until(lambda: sleepers(seconds), task)
    return task


def test_a_daemon_ends_with_its_task(workshop: Workshop) -> None:
    task = daemon(workshop, "71001", f"while [ ! -e {workshop.data}/go ]; do sleep 0.02; done; exit 3")
    (workshop.data / "go").touch()
    assert workshop.exited(task)["exit_status"] == 3
    assert sleepers("71001") == [] and TaskGroup(task).groups() == []


def test_a_daemon_doesnt_outlive_a_killed_supervisor(workshop: Workshop) -> None:
    task = daemon(workshop, "71002", "sleep 71003")
    kill_supervisor(workshop, task)
    assert sleepers("71002") != [], "it lost its parents, and keeps on"
    restarted = workshop.new_roster("agent")
    restarted.launch(task, workshop.fetch)
    assert workshop.exited(task)["reason"] == "executor_error"
    workshop.until(lambda: not sleepers("71002") and not sleepers("71003"), task)
    assert TaskGroup(task).groups() == []


def test_a_removal_finds_what_nobody_looks_after(workshop: Workshop) -> None:
    task = daemon(workshop, "71004", "sleep 71005")
    kill_supervisor(workshop, task)
    workshop.roster.remove(task)
    workshop.until(lambda: not sleepers("71004") and not sleepers("71005"), task)
    assert TaskGroup(task).groups() == []


def test_what_keeps_forking_ends_too(workshop: Workshop) -> None:
    task = workshop.start("f() { sleep 71006 & sleep 0.001; f; }; f")
    workshop.until(lambda: sleepers("71006"), task)
    workshop.roster.abort(task)
    workshop.exited(task)
    assert sleepers("71006") == []
