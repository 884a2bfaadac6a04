"""Real processes of a few milliseconds, found, measured and asked to end."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import IO, Any

import pytest

from chalicelib.agent.kernel import process_tree

LISTENER = """
import signal, sys, time
def heard(how):
    return signal.SIG_IGN if how == "ignore" else lambda *_: sys.exit(int(how))
for word in sys.argv[1:]:
    name, how = word.split("=")
    signal.signal(getattr(signal, name), signal.SIG_DFL if how == "default" else heard(how))
print("up", flush=True)
time.sleep(600)
"""


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[Any]]]:
    processes: list[subprocess.Popen[Any]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def listener(started: list[subprocess.Popen[Any]], *arguments: str) -> subprocess.Popen[Any]:
    """A process with these signals' handlers: `SIGTERM=3` ends with 3, `SIGINT=ignore`, `SIGINT=default`."""
    process = subprocess.Popen([sys.executable, "-S", "-c", LISTENER, *arguments], stdout=subprocess.PIPE)
    started.append(process)
    first_line(process)
    return process


def first_line(process: subprocess.Popen[Any]) -> bytes:
    out: IO[bytes] | None = process.stdout
    assert out is not None
    return out.readline()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "number"),
    [
        (["SIGTERM=3", "SIGINT=4"], signal.SIGTERM),
        (["SIGTERM=default", "SIGINT=4"], signal.SIGINT),
        (["SIGTERM=default", "SIGINT=default"], signal.SIGINT),
        (["SIGTERM=default", "SIGINT=ignore"], signal.SIGTERM),
        (["SIGTERM=ignore", "SIGINT=default"], signal.SIGINT),
        (["SIGTERM=ignore", "SIGINT=default", "SIGUSR1=ignore", "SIGQUIT=ignore", "SIGHUP=ignore"], signal.SIGINT),
        (["SIGTERM=default", "SIGINT=default", "SIGALRM=5", "SIGPIPE=5"], signal.SIGINT),
    ],
)
def test_the_polite_signal_is_the_one_that_is_listened_to(
    started: list[subprocess.Popen[Any]], arguments: list[str], number: int
) -> None:
    assert process_tree.polite_signal(listener(started, *arguments).pid) == number


def test_nobody_listens_to_nothing() -> None:
    assert process_tree.polite_signal(0) is None
    process_tree.end_politely([0x3FFFFFFF])
    process_tree.send([0x3FFFFFFF], signal.SIGKILL)


@pytest.mark.slow
def test_each_is_asked_by_its_own_signal(started: list[subprocess.Popen[Any]]) -> None:
    one = listener(started, "SIGTERM=3", "SIGINT=4")
    two = listener(started, "SIGTERM=default", "SIGINT=4")
    process_tree.end_politely([one.pid, two.pid])
    assert (one.wait(120), two.wait(120)) == (3, 4)


def test_below_a_listener_all_get_the_same_word(started: list[subprocess.Popen[Any]]) -> None:
    script = "trap 'wait; exit 3' TERM; sleep 600 & echo up; wait"
    shell = subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE)
    started.append(shell)
    first_line(shell)
    (child,) = process_tree.descendants(shell.pid)
    process_tree.end_politely([shell.pid, child])
    assert shell.wait(120) == 3
    assert process_tree.read_stat(child) is None or child not in process_tree.descendants(shell.pid)


def test_descendants_are_all_below_parents_first_and_alive(started: list[subprocess.Popen[Any]]) -> None:
    script = "(sleep 600 & sleep 601 & echo up; wait) & wait"
    shell = subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE, start_new_session=True)
    started.append(shell)
    first_line(shell)
    found = process_tree.descendants(shell.pid)
    parents = [int((process_tree.read_stat(pid) or ["", "0"])[1]) for pid in found]
    assert len(found) == 3 and parents == [shell.pid, found[0], found[0]]
    os.kill(found[1], signal.SIGKILL)
    os.kill(found[2], signal.SIGKILL)
    shell.wait(120)
    assert process_tree.descendants(shell.pid) == []
    assert process_tree.read_stat(found[1]) is None


def test_the_dead_are_no_descendants(started: list[subprocess.Popen[Any]]) -> None:
    dead = subprocess.Popen(["true"])
    started.append(dead)
    os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
    stat = process_tree.read_stat(dead.pid)
    assert stat is not None and stat[0] == "Z"
    assert dead.pid not in process_tree.descendants(os.getpid())


def test_a_mark_finds_its_processes_and_no_others(started: list[subprocess.Popen[Any]]) -> None:
    environments = [{"PATH": os.environ["PATH"], process_tree.MARK: task} for task in ("mine", "mine-too")]
    started += [subprocess.Popen(["sleep", "600"], env=environment) for environment in environments]
    assert process_tree.marked("mine") == [started[0].pid]
    assert process_tree.marked("nobody's") == []


@pytest.mark.slow
def test_usage_counts_the_living_and_those_they_outlived(started: list[subprocess.Popen[Any]]) -> None:
    burn = {**os.environ, "BURN": "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done"}
    script = '(bash -c "$BURN"; echo up; sleep 600; true) & wait'
    shell = subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE, start_new_session=True, env=burn)
    started.append(shell)
    first_line(shell)
    cpu, resident = process_tree.usage(shell.pid)
    below = process_tree.descendants(shell.pid)
    assert len(below) >= 1, "a shell that waits, and perhaps what it waits for"
    assert resident % os.sysconf("SC_PAGE_SIZE") == 0 and 100_000 < resident < 100_000_000
    assert 20_000 <= cpu < 60_000_000
    for pid in below:
        os.kill(pid, signal.SIGKILL)


def test_usage_of_nobody_is_nothing() -> None:
    assert process_tree.usage(0x3FFFFFFF) == (0, 0)


@pytest.mark.slow
def test_usage_counts_whom_the_root_outlived() -> None:
    subprocess.run(["bash", "-c", "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done"], check=True)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert process_tree.usage(os.getpid())[0] >= 0.9e6 * (ended.ru_utime + ended.ru_stime) - 20_000 > 0


PARENT = """
import subprocess, sys, threading
def child():
    subprocess.Popen([sys.executable, "-S", "-c", sys.argv[1]], stdin=subprocess.PIPE).wait()
threading.Thread(target=child, daemon=True).start()
input()
"""
CHILD = "import subprocess, sys; subprocess.Popen(['sleep', '600']); print('up', flush=True); input()"


@pytest.mark.slow
def test_who_is_below_a_process_is_found_from_it(started: list[subprocess.Popen[Any]]) -> None:
    """Also below another of its threads, and without those that are beside it."""
    beside = subprocess.Popen(["sleep", "600"])
    started.append(beside)
    parent = subprocess.Popen(
        [sys.executable, "-S", "-c", PARENT, CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    started.append(parent)
    assert first_line(parent) == b"up\n"
    found = list(process_tree.below(parent.pid))
    assert found == process_tree.descendants(parent.pid) and len(found) == 2
    assert beside.pid in process_tree.below(os.getpid()) and beside.pid not in found
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    assert list(process_tree.below(2**22 + 1)) == []


@pytest.mark.slow
def test_the_processes_of_a_user_are_those_that_live() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # it stays, as a zombie
    found = process_tree.of_user(os.getuid())
    assert os.getpid() in found and child not in found
    assert process_tree.of_user(59_321) == []
    os.waitpid(child, 0)
