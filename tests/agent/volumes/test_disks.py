"""What a disk's way to its job looks like without a disk: waiting, asking other programs, words."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.kernel import namespaces
from chalicelib.agent.kernel.task_runtime import TaskError
from chalicelib.agent.kernel.tasks import TaskFolder
from chalicelib.agent.program import clearing
from chalicelib.agent.volumes import disks, folders, marks
from chalicelib.agent.volumes.devices import BlockDevice
from chalicelib.agent.volumes.disks import POLL_EVERY, WAIT_SECONDS, TaskDisk, probe
from chalicelib.agent.volumes.holds import Holds
from chalicelib.agent.volumes.marks import Mark
from chalicelib.agent.volumes.signatures import UnusableDisk
from chalicelib.agent.volumes.volumes import TaskVolumes
from tests.agent.desk import Desk
from tests.agent.program.test_clearing import Obeyed
from tests.agent.volumes.test_devices import Machine

blkid = pytest.mark.skipif(not Path("/usr/sbin/blkid").exists(), reason="this machine has no blkid")


def test_a_disk_that_doesnt_come_is_waited_for_and_named(tmp_path: Path) -> None:
    Machine(tmp_path)
    holds, pauses, messages = Holds(str(tmp_path / "holds")), [], []  # type: Holds, list[float], list[str]
    wanted = {"volume": "v", "name": "data", "device": {"serial": "vol1", "by_id": ""}}
    with pytest.raises(UnusableDisk, match=r"doesn't show its disk \(serial vol1\) after 60 seconds"):
        TaskDisk(wanted, holds, "t", str(tmp_path)).mount(pauses.append, messages.append)
    assert sum(pauses) == pytest.approx(WAIT_SECONDS, abs=POLL_EVERY) and set(pauses) == {POLL_EVERY}
    assert len(messages) == 1 and messages[0].startswith("waiting for the disk of volume data, until ")


@blkid
@pytest.mark.parametrize(
    ("status", "output", "found"),
    [
        (2, b"", ""),
        (0, b"ext4\nfilesystem\n", "ext4 filesystem"),
        (8, b"", "nothing conclusive (status 8)"),
        (1, b"", "nothing conclusive (status 1)"),
    ],
)
def test_only_a_clear_no_of_blkid_counts(status: int, output: bytes, found: str) -> None:
    def run(argv: list[str], **_: Any) -> subprocess.CompletedProcess[bytes]:
        assert argv[1] == "-p" and argv[-1] == "/dev/a"
        return subprocess.CompletedProcess(argv, status, output)

    assert probe("/dev/a", run) == found


@blkid
def test_a_disk_on_which_blkid_hangs_isnt_blank() -> None:
    def run(argv: list[str], **_: Any) -> subprocess.CompletedProcess[bytes]:
        raise subprocess.TimeoutExpired(argv, 60)

    assert "doesn't respond" in probe("/dev/a", run)


@pytest.mark.parametrize("volume", ["", "..", "a/b", ".x", "x" * 101])
def test_a_volumes_id_is_a_plain_name(tmp_path: Path, volume: str) -> None:
    with pytest.raises(UnusableDisk, match="isn't a volume's id"):
        Holds(str(tmp_path)).point(volume)


def test_disks_are_counted_by_the_tasks_that_want_them(tmp_path: Path) -> None:
    holds = Holds(str(tmp_path))
    (tmp_path / "holds").mkdir()
    for task in ("one", "two", "gone"):
        holds.write(task, {"data": str(tmp_path), "volumes": {"v": {}}, "made": []})
        if task != "gone":
            TaskFolder(str(tmp_path), task).create({})
    (tmp_path / "holds" / "three.17").write_text("a write that was cut off")
    assert holds.tasks() == ["gone", "one", "two"] and holds.is_used_by_other_tasks("one", "v")
    (tmp_path / "holds" / "two.17").write_text("another")
    holds.forget("two")
    holds.forget("two")
    assert not holds.is_used_by_other_tasks("one", "v"), "one whose folder is gone will never let go of it"
    assert not (tmp_path / "holds" / "two.17").exists()


def test_a_device_that_is_gone_isnt_busy(tmp_path: Path) -> None:
    assert not disks.busy(str(tmp_path / "gone"))
    (tmp_path / "file").touch()
    with pytest.raises(UnusableDisk, match="file/disk: Not a directory"):
        disks.busy(str(tmp_path / "file" / "disk"))


@pytest.mark.skipif(os.getuid() != 0, reason="only root may mount")
def test_whoever_only_sees_a_disk_mounted_is_told_if_nobody_uses_it(tmp_path: Path) -> None:
    script = f"mount -t tmpfs none {tmp_path} && number=$(stat -c %Hd:%Ld {tmp_path}) && echo $number && read go"
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as apart:
        assert apart.stdout is not None and apart.stdin is not None
        number = apart.stdout.readline().decode().strip()
        if not number:
            pytest.skip("this account can't mount")
        assert disks.users_text(number) == f" by sh (process {apart.pid})"
        apart.stdin.close()


def test_last_writes_that_fail_are_told(tmp_path: Path) -> None:
    assert disks.flush(str(tmp_path)) == ""
    assert disks.flush(str(tmp_path / "gone")) == "its last writes failed (No such file or directory)"
    with pytest.raises(OSError, match="writing to the disk: Bad file descriptor"):
        namespaces.flush(-1)


def test_a_task_that_keeps_a_disk_keeps_the_machine_from_being_cleared(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "data")
    desk.create("t")
    message = "volume data can't be unmounted yet: by cat (process 7)"
    desk.state("t", state="exited", held=["v"], held_by=message)
    roster = Obeyed(desk)
    roster.hangs = ("t",)
    cleared = clearing.clear(str(desk.data), dict(desk.runtimes), roster, 0.0)
    assert cleared == f"these tasks don't end: t ({message})"


def test_a_disk_is_read_from_its_node(tmp_path: Path) -> None:
    node = tmp_path / "disk"
    node.write_bytes(bytes(1 << 20))
    device = BlockDevice(str(node), "7:0", 1 << 20, False)
    assert disks.read(device).blank
    node.write_bytes(b"x" * (1 << 20))
    assert disks.read(device).description() == "unknown data"
    node.unlink()
    with pytest.raises(UnusableDisk, match="disk can't be read: No such file or directory"):
        disks.read(device)


@pytest.mark.skipif(shutil.which("mkfs.ext4", path=disks.PATH) is None, reason="this machine has no mkfs.ext4")
def test_a_disk_that_is_formatted_bears_its_mark_meanwhile(tmp_path: Path) -> None:
    """It is taken away by whoever mounts it: until then a machine that is lost leaves a disk that is known as ours."""
    node, mark = tmp_path / "disk", Mark("install", "data")
    node.write_bytes(bytes(8 << 20))
    with (tmp_path / "lock").open("w") as lock:
        disks.format_disk(BlockDevice(str(node), "7:0", 8 << 20, False), mark, lock.fileno())
    assert marks.is_on(str(node), 8 << 20, mark)


def test_those_who_use_a_disk_are_named(tmp_path: Path) -> None:
    device = tmp_path.stat().st_dev
    with subprocess.Popen(["sleep", "600"], cwd=tmp_path) as user:
        try:
            text = disks.users_text(f"{os.major(device)}:{os.minor(device)}")
        finally:
            user.kill()
    assert re.fullmatch(r" by \S.* \(process \d+\)(, \d+ more)?", text), text
    assert disks.users_text("4095:1") == "" == disks.users_text("")


# Folders --------------------------------------------------------------------------------------------------------------


def test_a_folder_is_made_step_by_step(tmp_path: Path) -> None:
    opened = folders.open_folder(f"{tmp_path}/a/./b//c", folders.maker(0o700))
    assert os.path.samestat(os.fstat(opened), (tmp_path / "a/b/c").stat())
    os.close(opened)
    assert ((tmp_path / "a/b").stat().st_mode & 0o777, (tmp_path / "a/b/c").stat().st_mode & 0o777) == (0o755, 0o700)
    folders.remove([f"{tmp_path}/a/b/c", f"{tmp_path}/a/b", f"{tmp_path}/a/b"])
    assert list(tmp_path.rglob("*")) == [tmp_path / "a"]


def test_what_isnt_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("file")
    for path, reason in (
        ("file/x", "file isn't a folder"),
        ("link", "is a link to file"),
        ("no", "there is no folder"),
    ):
        with pytest.raises(UnusableDisk, match=reason):
            folders.open_folder(f"{tmp_path}/{path}")


def test_missing_folders_from_above(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    assert folders.missing(f"{tmp_path}/a/b/c") == [f"{tmp_path}/a/b", f"{tmp_path}/a/b/c"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
def test_root_gives_a_folder_to_its_user(tmp_path: Path) -> None:
    opened = os.open(tmp_path, os.O_PATH)
    folders.give(opened, 61_000, 61_001, 0o750)
    os.close(opened)
    found = tmp_path.stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (61_000, 61_001, 0o750)


def test_a_fresh_folder_is_nobodys_until_it_is_given(tmp_path: Path) -> None:
    opened = folders.open_folder(f"{tmp_path}/a", folders.maker(folders.UNFINISHED))
    assert folders.unfinished(opened) and stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0, "nor may anybody enter"
    folders.give(opened, os.getuid(), os.getgid())
    assert not folders.unfinished(opened) and (tmp_path / "a").stat().st_mode & 0o777 == 0o755
    os.close(opened)


def test_private_folders_are_refused_from_above_and_below() -> None:
    for path in ("/data/agent", "/data/agent/tasks", "/data"):
        with pytest.raises(UnusableDisk, match="/data/agent is the agent's"):
            folders.refuse(path, {"/data/agent": "the agent's"})
    folders.refuse("/data/agents", {"/data/agent": "the agent's"})


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """The usual folder of a test may be in memory, below /dev, and nothing there may be a volume."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as made:
        yield Path(made)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("/", "root of the machine"),
        ("/proc/1", "belongs to the machine's system"),
        ("/etc/", "belongs to the machine's system"),
        ("//run/dstack-volumes/disks", "belongs to the machine's system"),
        ("/var/lib", "the container engine's own folder"),
        ("/tmp/../etc", "`..` isn't followed"),
        ("etc", "isn't an absolute path"),
        ("{data}", "the agent's own folder"),
        ("{data}/tasks", "the agent's own folder"),
        ("{data}/..", "`..` isn't followed"),
        ("{above}", "the agent's own folder"),
        ("{above}/engine", "the container engine's socket"),
    ],
)
def test_the_machines_own_folders_are_no_volumes(on_disk: Path, source: str, reason: str) -> None:
    data = on_disk / "data"
    task = TaskFolder(str(data), "t")
    task.create({"socket": str(on_disk / "engine" / "docker.sock")})
    entry = {"kind": "folder", "source": source.format(data=data, above=on_disk), "path": "/data"}
    with pytest.raises(TaskError, match=re.escape(reason)) as caught:
        TaskVolumes(task, [entry]).for_container()
    assert caught.value.reason == "volume_error" and caught.value.message.startswith("volume ")


def test_a_lock_is_there_while_it_is_held_and_one_waits_for_it(tmp_path: Path) -> None:
    (tmp_path / "locks").mkdir()
    holds, waits = Holds(str(tmp_path)), list[list[str]]()

    def there() -> list[str]:
        return [each.name for each in (tmp_path / "locks").iterdir()]

    outer = holds.locked("v-1")
    outer.__enter__()

    def let_go(_: float) -> None:
        waits.append(there())
        outer.__exit__(None, None, None)

    with holds.locked("v-1", let_go):
        assert there() == ["v-1"]
    assert (waits, there()) == ([["v-1"]], [])


def test_who_waited_at_a_lock_that_is_deleted_takes_the_next(tmp_path: Path) -> None:
    """A file that was opened before its holder deleted it, and locked after, keeps nobody out."""
    (tmp_path / "locks").mkdir()
    holds, path = Holds(str(tmp_path)), tmp_path / "locks" / "v-1"
    with holds.locked("v-1") as lock:
        late = os.open(path, os.O_RDWR)
    fcntl.flock(late, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with holds.locked("v-1") as lock:
        assert not os.path.samestat(os.fstat(lock), os.fstat(late)) and path.exists()
    os.close(late)
