"""A supervisor may be killed at any step of a disk's way from blank to unmounted: the next one comes to the same end.

The steps aren't listed here: a child runs the whole way and is killed at its first touch of the machine, then at its
second, and so on until it isn't killed any more.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent import namespaces
from chalicelib.agent.accounts import Account
from chalicelib.agent.holds import Holds
from chalicelib.agent.tasks import TaskFolder
from chalicelib.agent.volumes import Volumes
from tests.harness import loops
from tests.harness.loops import MIB, LoopDisk, run

pytestmark = loops.needed

TOUCHES = ("open", "os.mkdir", "os.rmdir", "os.rename", "os.remove", "os.chmod", "subprocess.Popen", "fcntl.flock")


def ready(wait: float) -> None:
    raise AssertionError("nothing is waited for")


@dataclass
class Way:
    """One task with one disk, tried by one process after the other."""

    disk: LoopDisk
    folder: TaskFolder
    entry: dict[str, Any]
    holds: Holds

    @property
    def file(self) -> Path:
        return Path(self.entry["path"], "file")

    def volumes(self) -> Volumes:
        return Volumes(self.folder, [self.entry], self.holds)

    def go(self, tell: Callable[[bytes], object]) -> None:
        volumes = self.volumes()
        volumes.mount(ready, lambda _: None)
        volumes.enter(Account(None))
        with self.file.open("w") as file:
            file.write("kept")
            file.flush()
            os.fsync(file.fileno())
        tell(b"written")
        volumes.leave()
        assert volumes.release() == {}

    def go_again(self, written: bool) -> None:
        """What the next supervisor does for a task that didn't run yet."""
        volumes = self.volumes()
        volumes.mount(lambda seconds: None, lambda _: None)  # a killed mkfs may still hold the lock
        assert self.disk.places() == [self.holds.point(self.entry["volume"])], "mounted once"
        volumes.enter(Account(None))
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


@pytest.fixture
def way(tmp_path: Path) -> Iterator[Way]:
    with loops.disk(tmp_path / "disk", 4 * MIB) as disk:
        path = f"/dstack-test-{uuid.uuid4().hex[:12]}/data"
        entry = {"kind": "disk", "volume": str(uuid.uuid4()), "path": path, "device": disk.identity, "format": True}
        folder = TaskFolder(str(tmp_path / "agent"), str(uuid.uuid4()))
        folder.create({})
        yield Way(disk, folder, entry, Holds())


def in_child(act: Callable[[Callable[[bytes], object]], object], prepare: Callable[[], object]) -> tuple[int, bytes]:
    """How it ended, and what it told before."""
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            prepare()
            act(lambda said: os.write(tell, said))
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(tell)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with os.fdopen(told, "rb") as pipe:
        os.set_blocking(told, False)  # a program that outlives the child may have the other end
        return status, pipe.read() or b""


def killed_at(touch: int) -> None:
    """From now on this process is killed at so many touches of the machine."""
    left = touch

    def look(event: str, _: tuple[Any, ...]) -> None:
        nonlocal left
        if event in TOUCHES:
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(look)


def test_killed_at_each_touch_of_the_machine(way: Way) -> None:
    touch, status = 0, -signal.SIGKILL
    while status == -signal.SIGKILL:
        way.disk.write(0, bytes(4 * MIB))
        status, told = in_child(way.go, lambda touch=touch: killed_at(touch))
        if status == -signal.SIGKILL:
            again, _ = in_child(lambda _, told=told: way.go_again(bool(told)), lambda: None)
            assert again == 0, f"killed at touch {touch}"
        else:
            assert status == 0
        way.clean()
        touch += 1
    assert touch > 50, "it was killed on the whole way"


@pytest.mark.parametrize("millis", range(1, 40, 3))
def test_killed_while_it_formats(way: Way, millis: int) -> None:
    """mkfs goes on, and the next supervisor waits for it instead of overtaking it."""

    def prepare() -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, millis / 1000)

    status, told = in_child(way.go, prepare)
    assert status in (0, -signal.SIGALRM)
    again, _ = in_child(lambda _: way.go_again(bool(told)), lambda: None)
    assert again == 0
    way.clean()


def test_a_half_made_filesystem_of_ours_is_made_again(way: Way) -> None:
    """mkfs was killed, too: what it left has no name, but it lies on a disk that was blank when we began."""
    way.holds.begin(way.folder.task, way.folder.data)
    noted = {"device": way.disk.identity, "name": "data", "node": way.disk.path, "formatting": True}
    way.disk.write(8192, b"half an inode table")
    way.holds.write(way.folder.task, {"data": way.folder.data, "volumes": {way.entry["volume"]: noted}, "made": []})
    assert in_child(lambda _: way.go_again(False), lambda: None)[0] == 0
    way.clean()


def test_what_somebody_else_made_meanwhile_isnt(way: Way) -> None:
    way.holds.begin(way.folder.task, way.folder.data)
    noted = {"device": way.disk.identity, "name": "data", "node": way.disk.path, "formatting": True}
    way.holds.write(way.folder.task, {"data": way.folder.data, "volumes": {way.entry["volume"]: noted}, "made": []})
    run("mkswap", way.disk.path)
    before = way.disk.read()
    assert in_child(lambda _: way.go_again(False), lambda: None)[0] == 1
    assert way.disk.read() == before
    assert way.volumes().release() == {}


def test_where_run_is_shared_a_disk_is_mounted_once(way: Way, tmp_path: Path) -> None:
    """As systemd has it. A second mount below, which no path leads to, can't be unmounted by a namespace."""
    run_folder = tmp_path / "run"
    run_folder.mkdir()

    def as_on_most_machines() -> None:
        namespaces.mount_apart()
        namespaces.mount("run", str(run_folder), 0, "tmpfs")
        namespaces.mount("none", str(run_folder), namespaces.MS_SHARED)

    def go(tell: Callable[[bytes], object]) -> None:
        way.holds = Holds(str(run_folder / "volumes"))
        volumes = way.volumes()
        volumes.mount(ready, lambda _: None)
        assert way.disk.places() == [way.holds.point(way.entry["volume"])]
        assert volumes.release() == {}

    assert in_child(go, as_on_most_machines)[0] == 0
