"""A task's control group in fixture trees of both versions; the kernel itself is in `test_cgroups_real`."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from chalicelib.agent.runtimes.cgroups import TaskGroup


@pytest.fixture
def second(tmp_path: Path) -> Path:
    (tmp_path / "cgroup.controllers").write_text("cpu memory")
    return tmp_path


@pytest.fixture
def first(tmp_path: Path) -> Path:
    for hierarchy in ("memory", "cpu", "pids", "freezer"):
        (tmp_path / hierarchy).mkdir()
    return tmp_path


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def made(root: Path, cpu: float | None = None, memory: int | None = None) -> TaskGroup:
    group = TaskGroup("t", str(root))
    group.make(cpu, memory)
    return group


def test_limits_of_version_2(second: Path) -> None:
    made(second, 1.5, 1 << 30)
    assert (second / "dstack-t/memory.max").read_text() == str(1 << 30)
    assert (second / "dstack-t/cpu.max").read_text() == "150000 100000"


def test_limits_of_version_1(first: Path) -> None:
    made(first, 0.5, 1 << 20)
    assert (first / "memory/dstack-t/memory.limit_in_bytes").read_text() == str(1 << 20)
    assert (first / "cpu/dstack-t/cpu.cfs_period_us").read_text() == "100000"
    assert (first / "cpu/dstack-t/cpu.cfs_quota_us").read_text() == "50000"


@pytest.mark.parametrize(("cpu", "memory"), [(0, 0), (None, None)])
def test_a_task_without_limits_is_held_together_all_the_same(
    second: Path, cpu: float | None, memory: int | None
) -> None:
    group = made(second, cpu, memory)
    assert list((second / "dstack-t").iterdir()) == []
    group.join()
    assert (second / "dstack-t/cgroup.procs").read_text() == "0"


def test_version_1_holds_tasks_by_the_best_hierarchy_there_is(first: Path) -> None:
    assert made(first).groups() == [str(first / "freezer/dstack-t")]
    (first / "unified").mkdir()
    TaskGroup("u", str(first)).make(None, None)
    assert [path.name for path in (first / "unified").iterdir()] == ["dstack-u"]


@pytest.mark.parametrize(
    ("name", "text"), [("memory.events", "low 0\noom_kill 2\n"), ("memory.oom_control", "oom_kill 1\n")]
)
def test_running_out_of_memory_is_counted(second: Path, name: str, text: str) -> None:
    group = made(second, memory=1 << 30)
    assert group.out_of_memory() is False
    for events, want in (("oom 3\noom_kill 0\n", False), (text, True), ("nonsense\n", False)):
        (second / "dstack-t" / name).write_text(events)
        assert group.out_of_memory() is want


def test_processes_of_groups_that_the_task_made_are_its_own(second: Path) -> None:
    group = made(second)
    (second / "dstack-t/own/deep").mkdir(parents=True)
    (second / "dstack-t/cgroup.procs").write_text("12\n0\n")
    (second / "dstack-t/own/deep/cgroup.procs").write_text("34\n12\n")
    assert group.processes() == [12, 34]
    assert TaskGroup("other", str(second)).processes() == []


def test_the_kernel_ends_a_group_where_it_can(second: Path, sleeper: subprocess.Popen[bytes]) -> None:
    group = made(second)
    (second / "dstack-t/cgroup.kill").write_text("")
    (second / "dstack-t/cgroup.procs").write_text(f"{sleeper.pid}\n")
    group.kill()
    assert (second / "dstack-t/cgroup.kill").read_text() == "1"
    assert sleeper.poll() is None, "one write ends all of them, and here nothing reads it"


@pytest.mark.parametrize(("name", "thawed"), [("freezer.state", "THAWED"), ("cgroup.freeze", "0")])
def test_elsewhere_a_group_is_frozen_while_it_is_killed(
    second: Path, sleeper: subprocess.Popen[bytes], name: str, thawed: str
) -> None:
    group = made(second)
    (second / "dstack-t" / name).write_text("")
    (second / "dstack-t/cgroup.procs").write_text(f"{sleeper.pid}\n")
    group.kill()
    assert sleeper.wait(120) == -9
    assert (second / "dstack-t" / name).read_text() == thawed


def test_a_group_that_an_earlier_try_left_is_used_again(second: Path) -> None:
    for memory in (1 << 30, 1 << 29):
        made(second, memory=memory)
    assert (second / "dstack-t/memory.max").read_text() == str(1 << 29)


def test_a_limit_that_cant_be_set_is_left_out(second: Path) -> None:
    (second / "dstack-t/memory.max").mkdir(parents=True)
    group = made(second, 1, 1 << 30)
    group.join()
    assert (second / "dstack-t/cgroup.procs").read_text() == "0"
    assert (second / "dstack-t/cpu.max").read_text() == "100000 100000"


def test_a_group_that_no_process_may_be_in_is_given_up(second: Path) -> None:
    group = made(second)
    (second / "dstack-t/cgroup.procs").symlink_to("/no/such/folder")
    group.join()
    assert (second / "dstack-t").exists(), "the real kernel has no files in the way"
    assert group.processes() == []


def test_a_machine_without_groups_goes_without(tmp_path: Path) -> None:
    group = made(tmp_path / "nothing", 1, 1 << 20)
    group.join()
    group.kill()
    group.delete()
    assert (group.groups(), group.processes(), group.out_of_memory()) == ([], [], False)


def test_a_group_is_deleted_with_those_in_it(second: Path) -> None:
    group = made(second)
    (second / "dstack-t/own/deep").mkdir(parents=True)
    group.delete()
    group.delete()
    assert not (second / "dstack-t").exists()


# --- what it uses -----------------------------------------------------------------------------------------------------


def counts(group: Path, **files: str) -> None:
    group.mkdir(exist_ok=True)
    for name, text in files.items():
        (group / name.replace("__", ".")).write_text(text)


def test_use_in_version_2(second: Path) -> None:
    group = made(second)
    counts(
        second / "dstack-t",
        cpu__stat="usage_usec 1500000\nuser_usec 1000000\nsystem_usec 500000\n",
        memory__current="4096000\n",
        memory__stat="anon 1000\nfile 3000000\ninactive_file 96000\nactive_file 4\n",
    )
    assert group.usage() == {"cpu": 1_500_000, "memory": 4_096_000, "idle": 96_000}


def test_use_in_version_1(first: Path) -> None:
    group = made(first, cpu=1, memory=1 << 30)
    counts(first / "cpu/dstack-t", cpuacct__usage="2500000000\n", cpu__stat="nr_periods 7\n")
    counts(
        first / "memory/dstack-t",
        memory__usage_in_bytes="8192000\n",
        memory__stat="cache 5\ninactive_file 1\ntotal_inactive_file 192000\n",
    )
    assert group.usage() == {"cpu": 2_500_000, "memory": 8_192_000, "idle": 192_000}


def test_use_that_no_controller_counts_is_missing(second: Path) -> None:
    group = made(second)
    assert group.usage() == {}
    counts(second / "dstack-t", cpu__stat="usage_usec 7\n", memory__current="")
    assert group.usage() == {"cpu": 7}


def test_without_a_group_nothing_is_counted(tmp_path: Path) -> None:
    assert TaskGroup("t", str(tmp_path)).usage() == {}


def test_a_group_whose_last_process_is_still_going_is_deleted_a_moment_later(second: Path) -> None:
    group = made(second)
    (second / "dstack-t/going").write_text("")
    threading.Timer(0.05, (second / "dstack-t/going").unlink).start()
    group.delete()
    assert not (second / "dstack-t").exists()
