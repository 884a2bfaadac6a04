"""A supervisor may be killed at any step of a disk's way from blank to unmounted: the next one comes to the same end.

The steps aren't listed here: a child runs the whole way and is killed at its first touch of the machine, then at its
second, and so on until it isn't killed any more.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import traceback
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.kernel import namespaces
from chalicelib.agent.kernel.tasks import TaskFolder
from chalicelib.agent.runtimes.accounts import TaskAccount
from chalicelib.agent.volumes import disks, marks
from chalicelib.agent.volumes.holds import Holds
from chalicelib.agent.volumes.volumes import TaskVolumes
from tests.harness import loops
from tests.harness.loops import MIB, LoopDisk, run

pytestmark = loops.needed

ROOT = Path(__file__).parents[3]
TOUCHES = ("open", "os.mkdir", "os.rmdir", "os.rename", "os.remove", "os.chmod", "subprocess.Popen", "fcntl.flock")


def ready(wait: float) -> None:
    raise AssertionError("nothing is waited for")


@dataclass
class DiskTask:
    """One task with one disk, tried by one process after the other."""

    disk: LoopDisk
    folder: TaskFolder
    entry: dict[str, Any]
    holds: Holds

    @property
    def mark(self) -> marks.Mark:
        return marks.Mark(self.entry["install"], self.entry["volume"])

    def mark_is_there(self) -> bool:
        return marks.is_on(self.disk.path, self.disk.file.stat().st_size, self.mark)

    @property
    def file(self) -> Path:
        return Path(self.entry["path"], "file")

    def volumes(self) -> TaskVolumes:
        return TaskVolumes(self.folder, [self.entry], self.holds)

    def go(self, report: Callable[[bytes], object]) -> None:
        volumes = self.volumes()
        volumes.mount(ready, lambda _: None)
        volumes.enter(TaskAccount(None))
        with self.file.open("w") as file:
            file.write("kept")
            file.flush()
            os.fsync(file.fileno())
        report(b"written")
        volumes.leave()
        assert volumes.release() == {}

    def go_again(self, written: bool) -> None:
        """What the next supervisor does for a task that didn't run yet."""
        volumes = self.volumes()
        volumes.mount(lambda seconds: None, lambda _: None)  # a killed mkfs may still hold the lock
        assert self.disk.places() == [self.holds.point(self.entry["volume"])], "mounted once"
        volumes.enter(TaskAccount(None))
        assert self.file.parent.stat().st_mode & 0o777 == 0o777
        assert not written or self.file.read_text() == "kept"
        volumes.leave()
        assert volumes.release() == {}

    def clean(self) -> None:
        assert self.disk.places() == []
        assert self.holds.of(self.folder.task) is None
        assert not Path(self.holds.point(self.entry["volume"])).exists()
        assert not self.file.parent.parent.exists(), "the mount point is gone"
        run("e2fsck", "-fn", self.disk.path)


@contextmanager
def made(folder: Path) -> Iterator[DiskTask]:
    with loops.disk(folder / "disk", 4 * MIB) as disk:
        path = f"/dstack-test-{uuid.uuid4().hex[:12]}/data"
        entry = {"kind": "disk", "volume": str(uuid.uuid4()), "path": path, "device": disk.identity}
        entry.update(format=True, install="ours")
        task = TaskFolder(str(folder / "agent"), str(uuid.uuid4()))
        task.create({})
        yield DiskTask(disk, task, entry, Holds())


@pytest.fixture
def disk_task(tmp_path: Path) -> Iterator[DiskTask]:
    with made(tmp_path) as one:
        yield one


def in_child(act: Callable[[Callable[[bytes], object]], object], prepare: Callable[[], object]) -> tuple[int, bytes]:
    """How it ended, and what it told before."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            prepare()
            act(lambda data: os.write(writer, data))
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(writer)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with os.fdopen(reader, "rb") as pipe:
        os.set_blocking(reader, False)  # a program that outlives the child may have the other end
        return status, pipe.read() or b""


def killed_at(touch: int) -> None:
    """From now on this process is killed at so many touches of the machine. What the kernel says of all its disks is
    read in one go, and nothing is changed meanwhile."""
    left = touch

    def on_event(event: str, about: tuple[Any, ...]) -> None:
        nonlocal left
        if event in TOUCHES and not str(about[0]).startswith("/sys/block/"):
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(on_event)


def kill_at_each_touch(folder: str) -> None:
    touch, status = 0, -signal.SIGKILL
    with made(Path(folder)) as disk_task:
        while status == -signal.SIGKILL:
            disk_task.disk.write(0, bytes(4 * MIB))
            status, output = in_child(disk_task.go, lambda touch=touch: killed_at(touch))
            if status == -signal.SIGKILL:
                again, _ = in_child(lambda _, output=output: disk_task.go_again(bool(output)), lambda: None)
                assert again == 0, f"killed at touch {touch}"
            else:
                assert status == 0
            disk_task.clean()
            touch += 1
    assert touch > 50, "it was killed on the whole way"


def test_killed_at_each_touch_of_the_machine(tmp_path: Path) -> None:
    """In a process that is small: it is copied hundreds of times, and one that has collected all tests is large."""
    code = f"import sys; from {__name__} import kill_at_each_touch; kill_at_each_touch(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", code, tmp_path], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("millis", range(1, 40, 3))
def test_killed_while_it_formats(disk_task: DiskTask, millis: int) -> None:
    """mkfs goes on, and the next supervisor waits for it instead of overtaking it."""

    def prepare() -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, millis / 1000)

    status, output = in_child(disk_task.go, prepare)
    assert status in (0, -signal.SIGALRM)
    again, _ = in_child(lambda _: disk_task.go_again(bool(output)), lambda: None)
    assert again == 0
    disk_task.clean()


# A machine that is lost meanwhile: what is left of it is on the disk -------------------------------------------------


def mkfs_ends(disk_task: DiskTask, how: str) -> Callable[[], None]:
    """In a child: `how` a shell runs the real `mkfs.ext4`, as `$mkfs`; the disk is its fourth argument."""
    tools = Path(disk_task.folder.data).parent / "tools"
    tools.mkdir(exist_ok=True)
    real = shutil.which("mkfs.ext4", path=disks.PATH)
    script = tools / "mkfs.ext4"
    script.write_text(f"#!/bin/sh\nmkfs={real}\n{how}\n")
    script.chmod(0o755)

    def prepare() -> None:
        disks.PATH = f"{tools}:{disks.PATH}"

    return prepare


def elsewhere(disk_task: DiskTask) -> DiskTask:
    """Another task on another machine, which knows only the disk."""
    assert in_child(lambda _: disk_task.volumes().release(), lambda: None)[0] == 0
    assert disk_task.holds.of(disk_task.folder.task) is None
    folder = TaskFolder(disk_task.folder.data, str(uuid.uuid4()))
    folder.create({})
    return replace(disk_task, folder=folder)


def lost_before_the_last_write(disk_task: DiskTask) -> DiskTask:
    """All but what makes it a filesystem is on the disk."""
    last = "dd if=/dev/zero of=$4 bs=1024 seek=1 count=1 conv=notrunc,fsync 2>&1"
    assert in_child(disk_task.go, mkfs_ends(disk_task, f'$mkfs "$@" && {last}; kill -9 $$'))[0] == 1
    assert (
        disk_task.mark_is_there()
        and not disk_task.disk.read()[1024:2048].strip(b"\0")
        and disk_task.disk.read()[2048:MIB].strip(b"\0")
    )
    return elsewhere(disk_task)


def test_a_filesystem_that_a_lost_machine_left_half_made_is_made_again(disk_task: DiskTask) -> None:
    again = lost_before_the_last_write(disk_task)
    assert in_child(lambda _: again.go_again(False), lambda: None)[0] == 0
    assert not disk_task.mark_is_there()
    again.clean()


@pytest.mark.parametrize("other", [{"volume": str(uuid.uuid4())}, {"install": "another"}, {"format": False}])
def test_a_half_made_one_that_isnt_known_to_be_ours_isnt(disk_task: DiskTask, other: dict[str, Any]) -> None:
    again = lost_before_the_last_write(disk_task)
    before = disk_task.disk.read()
    again.entry = {**disk_task.entry, **other}
    assert in_child(lambda _: again.go_again(False), lambda: None)[0] == 1
    assert disk_task.disk.read() == before
    elsewhere(again)


@pytest.mark.parametrize("millis", [1, 2, 3, 5, 8, 13])
def test_mkfs_killed_at_any_time_is_repeated_on_another_machine(disk_task: DiskTask, millis: int) -> None:
    with loops.disk(disk_task.disk.file.with_name("large"), 512 * MIB) as disk:
        large = replace(disk_task, disk=disk, entry={**disk_task.entry, "device": disk.identity})
        in_child(large.go, mkfs_ends(large, f'timeout -s KILL {millis / 1000} $mkfs "$@"'))
        again = elsewhere(large)
        assert in_child(lambda _: again.go_again(False), lambda: None)[0] == 0
        again.clean()


def test_a_filesystem_that_was_done_isnt_made_again(disk_task: DiskTask) -> None:
    """Lost between its last write and the removal of the mark."""
    assert in_child(disk_task.go, mkfs_ends(disk_task, '$mkfs "$@"; kill -9 $$'))[0] == 1
    assert disk_task.mark_is_there()
    made = disk_task.disk.read()[1024 + 104 :][:16]  # its id
    again = elsewhere(disk_task)
    assert in_child(lambda _: again.go_again(False), lambda: None)[0] == 0
    assert disk_task.disk.read()[1024 + 104 :][:16] == made
    assert not disk_task.mark_is_there()
    again.clean()


def test_what_somebody_else_made_meanwhile_isnt_formatted(disk_task: DiskTask) -> None:
    marks.put(disk_task.disk.path, 4 * MIB, disk_task.mark)
    run("mkswap", disk_task.disk.path)
    before = disk_task.disk.read()
    assert disk_task.mark_is_there()
    assert in_child(lambda _: disk_task.go_again(False), lambda: None)[0] == 1
    assert disk_task.disk.read() == before
    elsewhere(disk_task)


def test_a_namespace_that_somebody_made_meanwhile_keeps_no_disk(disk_task: DiskTask) -> None:
    """As a service of systemd has one. A disk that it kept couldn't be detached."""

    def go(report: Callable[[bytes], object]) -> None:
        volumes, point = disk_task.volumes(), disk_task.holds.point(disk_task.entry["volume"])
        volumes.mount(ready, lambda _: None)
        apart = ["unshare", "--mount", "--propagation", "slave", "sh", "-c", "echo; cat"]
        with subprocess.Popen(apart, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            assert other.stdin and other.stdout and other.stdout.readline()
            there = Path("/proc", str(other.pid), "mountinfo")
            assert point in there.read_text()
            assert volumes.release() == {}
            assert point not in there.read_text()
            other.stdin.close()

    assert in_child(go, namespaces.unshare_mounts)[0] == 0


def test_where_run_is_shared_a_disk_is_mounted_once(disk_task: DiskTask, tmp_path: Path) -> None:
    """As systemd has it. A second mount below, which no path leads to, can't be unmounted by a namespace."""
    run_folder = tmp_path / "run"
    run_folder.mkdir()

    def as_on_most_machines() -> None:
        namespaces.unshare_mounts()
        namespaces.mount("run", str(run_folder), 0, "tmpfs")
        namespaces.mount("none", str(run_folder), namespaces.MS_SHARED)

    def go(report: Callable[[bytes], object]) -> None:
        disk_task.holds = Holds(str(run_folder / "volumes"))
        volumes = disk_task.volumes()
        volumes.mount(ready, lambda _: None)
        assert disk_task.disk.places() == [disk_task.holds.point(disk_task.entry["volume"])]
        assert volumes.release() == {}

    assert in_child(go, as_on_most_machines)[0] == 0
