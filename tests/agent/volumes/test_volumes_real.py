"""Plain processes with volumes: real disks, real supervisors, the machine's own mounts."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.kernel import mountinfo
from chalicelib.agent.kernel.task_runtime import TaskError
from chalicelib.agent.kernel.tasks import TaskFolder
from chalicelib.agent.program import clearing
from chalicelib.agent.runtimes.accounts import TaskAccount
from chalicelib.agent.runtimes.process import ProcessRuntime
from chalicelib.agent.volumes import volumes
from chalicelib.agent.volumes.holds import Holds
from chalicelib.agent.volumes.volumes import TaskVolumes
from tests.agent.runtime_conformance import Workshop, kill_supervisor
from tests.agent.ssh_client import Ssh, key_pair
from tests.harness import loops
from tests.harness.loops import MIB, LoopDisk, run
from tests.harness.server import until

pytestmark = loops.needed

WAIT = "while [ ! -e {0}/go ]; do sleep 0.02; done"  # until the test makes this file on the volume


@pytest.fixture
def path() -> Iterator[str]:
    """A mount point that the machine doesn't have."""
    path = Path(f"/dstack-test-{uuid.uuid4().hex[:12]}/data")
    yield str(path)
    assert not path.parent.exists(), "the machine is as it was before"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopDisk]:
    with loops.disk(tmp_path / "disk") as disk:
        yield disk


@pytest.fixture
def workshop(tmp_path: Path, path: str, disk: LoopDisk) -> Iterator[Workshop]:
    data = tmp_path / "agent"
    data.mkdir()
    workshop = Workshop(data, ProcessRuntime())
    yield workshop
    workshop.end()


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder of the machine in which jobs may make others; not where their ends are swept."""
    place = Path(f"/dstack-shared-{uuid.uuid4().hex[:12]}")
    place.mkdir()
    place.chmod(0o1777)
    yield place
    run("rm", "-rf", str(place))


def wanted(disk: LoopDisk, path: str, **fields: Any) -> dict[str, Any]:
    entry = {"kind": "disk", "volume": str(uuid.uuid4()), "name": "data", "path": path, "device": disk.identity}
    return {**entry, "format": True, "read_only": False, **fields}


def folder(source: Path, path: str, **fields: Any) -> dict[str, Any]:
    return {"kind": "folder", "source": str(source), "path": path, **fields}


def over(workshop: Workshop, task: str) -> dict[str, Any]:
    """How it ended, once nothing of it is held: the kernel takes a namespace apart in its own time."""
    workshop.until(lambda: workshop.roster.over(task), task)
    return workshop.state(task)


def output_of(workshop: Workshop, task: str) -> str:
    state = over(workshop, task)
    assert state["exit_status"] == 0, (state, workshop.log(task))
    return workshop.log(task).decode().replace("\r\n", "\n")


def refused(workshop: Workshop, *entries: dict[str, Any]) -> str:
    state = workshop.exited(workshop.start("true", volumes=list(entries)))
    assert state["reason"] == "volume_error", state
    return str(state["message"])


def ext4(disk: LoopDisk) -> None:
    run("mkfs.ext4", "-q", disk.path)


@pytest.fixture
def bound(tmp_path: Path) -> Iterator[Path]:
    """A folder that stands in for a disk: of the simulated cloud, where the kernel refuses loop devices."""
    found = tmp_path / "volume.folder"
    found.mkdir()
    found.chmod(0o777)
    yield found
    for mounted in mountinfo.mounts():
        if mounted.root != "/" and str(found).endswith(mounted.root):
            run("umount", mounted.place)


# Folders for containers ----------------------------------------------------------------------------------------------


def test_nobody_exchanges_a_folder_between_the_check_and_the_engine(tmp_path: Path, shared: Path) -> None:
    source = shared / "theirs" / "data"
    (source / "sub").mkdir(parents=True)
    run("mount", "-t", "tmpfs", "none", str(source / "sub"))
    (source / "sub" / "file").touch()
    folder = TaskFolder(str(tmp_path / "agent"), str(uuid.uuid4()))
    folder.create({})
    wants = TaskVolumes(folder, [{"kind": "folder", "source": str(source), "path": "/data"}])
    try:
        (mount,) = wants.for_container()
        source.rename(source.with_name("moved"))
        source.symlink_to("/etc")
        seen = Path(mount["Source"])
        assert seen.samefile(source.with_name("moved")) and (seen / "sub" / "file").exists()
        assert seen.parent.stat().st_mode & 0o777 == 0o700, "only root gets there"
        with pytest.raises(TaskError, match="is a link to /etc"):
            wants.for_container()
        assert TaskVolumes(folder, []).release() == {}, "by whoever comes to it"
        assert not seen.exists() and Holds().of(folder.task) is None
        assert (source.with_name("moved") / "sub" / "file").exists(), "what is mounted there stays"
    finally:
        run("umount", str(source.with_name("moved") / "sub"))


def test_a_folder_that_was_missing_is_given_to_the_containers_user_and_no_other_is(
    tmp_path: Path, shared: Path
) -> None:
    (shared / "theirs").mkdir(mode=0o750)
    task = TaskFolder(str(tmp_path / "agent"), str(uuid.uuid4()))
    task.create({})
    wants = TaskVolumes(task, [folder(shared / name, f"/{name}") for name in ("theirs", "new")])
    wants.for_container()
    wants.hand_over(lambda: (1234, 1235))
    assert TaskVolumes(task, []).release() == {}
    found = [(shared / name).stat() for name in ("theirs", "new")]
    assert [(each.st_uid, each.st_gid, each.st_mode & 0o777) for each in found] == [(0, 0, 0o750), (1234, 1235, 0o755)]


# Folders in the place of disks ----------------------------------------------------------------------------------------


def in_place(folder: Path, path: str, **fields: Any) -> dict[str, Any]:
    entry = {
        "kind": "disk",
        "volume": str(uuid.uuid4()),
        "name": "data",
        "path": path,
        "device": {"folder": str(folder)},
    }
    return {**entry, "format": True, "read_only": False, **fields}


def test_a_folder_stands_in_for_a_disk(workshop: Workshop, bound: Path, path: str) -> None:
    entry = in_place(bound, path)
    first = workshop.start(f"echo kept > {path}/file; {WAIT.format(path)}", volumes=[entry])
    workshop.running(first)
    assert workshop.state(first)["mounted"] == [entry["volume"]]
    workshop.until((bound / "file").exists, first)
    (bound / "go").touch()
    over(workshop, first)
    assert not Path(Holds().point(entry["volume"])).exists() and Holds().of(first) is None
    again = {**entry, "read_only": True, "format": False}
    read = workshop.start(f"cat {path}/file; touch {path}/x || echo refused", volumes=[again])
    lines = output_of(workshop, read).splitlines()
    assert (lines[0], lines[-1]) == ("kept", "refused")
    assert sorted(each.name for each in bound.iterdir()) == ["file", "go"]


def test_a_folder_that_somebody_sees_mounted_is_held(workshop: Workshop, bound: Path, path: str) -> None:
    entry = in_place(bound, path)
    task = workshop.start(f"touch {path}/up; {WAIT.format(path)}", volumes=[entry])
    workshop.running(task)
    workshop.until((bound / "up").exists, task)
    point = Holds().point(entry["volume"])
    with subprocess.Popen(["/bin/cat"], cwd=point, stdin=subprocess.PIPE):
        (bound / "go").touch()
        ended = workshop.exited(task)
        assert ended["held"] == [entry["volume"]] and "can't be unmounted yet" in ended["held_by"]
    workshop.until(lambda: "held" not in workshop.state(task), task)
    assert not Path(point).exists()


def test_a_folder_that_another_namespace_has_mounted_is_held(workshop: Workshop, bound: Path, path: str) -> None:
    entry = in_place(bound, path)
    task = workshop.start(f"touch {path}/up; {WAIT.format(path)}", volumes=[entry])
    workshop.running(task)
    workshop.until((bound / "up").exists, task)
    stranger = ("unshare", "--mount", "--propagation", "private", "sh", "-c", "echo in; exec cat")
    with subprocess.Popen(stranger, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as onlooker:
        assert onlooker.stdin and onlooker.stdout and onlooker.stdout.readline() == "in\n"
        until("it to be cat", lambda: Path(f"/proc/{onlooker.pid}/comm").read_text() == "cat\n")
        (bound / "go").touch()
        assert f"by cat (process {onlooker.pid})" in workshop.exited(task)["held_by"]
        onlooker.stdin.close()
    workshop.until(lambda: "held" not in workshop.state(task), task)
    assert not Path(Holds().point(entry["volume"])).exists()


# Disks ----------------------------------------------------------------------------------------------------------------


def test_a_blank_disk_is_formatted_once_and_keeps_what_jobs_write(
    workshop: Workshop, disk: LoopDisk, path: str
) -> None:
    entry = wanted(disk, path)
    first = workshop.start(f"echo kept > {path}/file; stat -c %a {path}", volumes=[entry])
    assert output_of(workshop, first) == "777\n"
    assert disk.places() == [] and Holds().of(first) is None
    assert output_of(workshop, workshop.start(f"cat {path}/file", volumes=[entry])) == "kept\n"
    assert disk.places() == []


def test_a_running_report_says_what_is_mounted(workshop: Workshop, disk: LoopDisk, path: str) -> None:
    entry = wanted(disk, path)
    task = workshop.start(f"echo up; {WAIT.format(path)}", volumes=[entry])
    workshop.running(task)
    assert workshop.state(task)["mounted"] == [entry["volume"]]
    (point,) = disk.places()
    Path(point, "go").touch()
    ended = over(workshop, task)
    assert (ended["exit_status"], ended["mounted"], ended.get("held")) == (0, [entry["volume"]], None)


def test_a_disk_is_mounted_once_for_all_jobs_that_share_it_and_unmounted_after_the_last(
    workshop: Workshop, disk: LoopDisk, path: str
) -> None:
    entry = wanted(disk, path)
    one = workshop.start(f"echo one > {path}/one; {WAIT.format(path)}", volumes=[entry])
    workshop.running(one)
    other = workshop.start(f"cat {path}/one; touch {path}/go; cat", volumes=[{**entry, "read_only": False}])
    assert over(workshop, one)["exit_status"] == 0
    assert disk.places() == [Holds().point(entry["volume"])], "the other job still has it"
    workshop.says(other, b"one")
    workshop.roster.abort(other)
    over(workshop, other)
    assert disk.places() == []


def test_two_jobs_have_different_disks_at_one_path(workshop: Workshop, tmp_path: Path, path: str) -> None:
    with loops.disk(tmp_path / "b") as other, loops.disk(tmp_path / "a") as one:
        tasks = [
            workshop.start(f"echo {name} > {path}/name; touch {path}/go; cat {path}/name", volumes=[wanted(disk, path)])
            for name, disk in (("a", one), ("b", other))
        ]
        assert [output_of(workshop, task) for task in tasks] == ["a\n", "b\n"]


def test_files_and_the_working_directory_lie_on_the_volume(workshop: Workshop, disk: LoopDisk, path: str) -> None:
    entry = wanted(disk, path)
    task = workshop.start("pwd; echo here > file", volumes=[entry], working_dir=f"{path}/work")
    assert output_of(workshop, task) == f"{path}/work\n"
    assert output_of(workshop, workshop.start(f"cat {path}/work/file", volumes=[entry])) == "here\n"


def test_read_only(workshop: Workshop, disk: LoopDisk, path: str) -> None:
    ext4(disk)
    task = workshop.start(f"touch {path}/x || ls {path}", volumes=[wanted(disk, path, read_only=True)])
    assert "lost+found" in output_of(workshop, task)


def test_the_only_partition_with_a_filesystem_is_mounted(workshop: Workshop, tmp_path: Path, path: str) -> None:
    image = tmp_path / "partitioned"
    places = ((2048, 4096), (8192, 32768))
    table = b"".join(struct.pack("<4xB3xII", 0x83, *place) for place in places)
    with image.open("wb") as made:
        made.write(bytes(446) + table + bytes(32) + b"\x55\xaa")
        made.truncate(32 * MIB)
    with loops.disk(image) as disk:
        for number, (start, sectors) in enumerate(places, 1):  # not every kernel reads tables
            run("addpart", disk.path, str(number), str(start), str(sectors))
        run("mkfs.ext4", "-q", disk.path + "p2")
        task = workshop.start(f"grep ' {path} ' /proc/self/mountinfo", volumes=[wanted(disk, path)])
        assert f"{disk.path}p2" in output_of(workshop, task)
        assert disk.places() == []


def test_no_disk_with_anything_on_it_is_formatted(workshop: Workshop, disk: LoopDisk, path: str) -> None:
    run("mkswap", disk.path)
    before = disk.read()
    assert "swap space" in refused(workshop, wanted(disk, path))
    disk.write(0, b"\0" * MIB)
    disk.write(5000, b"somebody's data")
    unknown = disk.read()
    message = refused(workshop, wanted(disk, path))
    assert (disk.read() == unknown, before != unknown) == (True, True)
    assert message.startswith("volume data: ") and "unknown data" in message


def test_without_leave_to_format_a_blank_disk_stays_blank(workshop: Workshop, disk: LoopDisk, path: str) -> None:
    assert "has no filesystem" in refused(workshop, wanted(disk, path, format=False))
    assert not disk.read().strip(b"\0")


def test_a_damaged_filesystem_is_named_with_its_remedy(workshop: Workshop, disk: LoopDisk, path: str) -> None:
    ext4(disk)
    disk.write(1024 + 24, b"\x40")  # blocks of a size that there isn't
    assert "`e2fsck -f`" in refused(workshop, wanted(disk, path))
    assert disk.places() == []


def test_a_write_protected_disk_is_mounted_only_to_be_read(workshop: Workshop, tmp_path: Path, path: str) -> None:
    image = tmp_path / "protected"
    with loops.disk(image) as disk:
        ext4(disk)
    with loops.disk(image, 0, "-r") as disk:
        assert "write-protected" in refused(workshop, wanted(disk, path))
        task = workshop.start(f"ls {path}", volumes=[wanted(disk, path, read_only=True)])
        assert "lost+found" in output_of(workshop, task)


def test_a_disk_that_is_mounted_elsewhere_is_refused(
    workshop: Workshop, disk: LoopDisk, path: str, shared: Path
) -> None:
    ext4(disk)
    run("mount", disk.path, str(shared))
    assert f"is mounted at {shared} already; unmount it there" in refused(workshop, wanted(disk, path))
    run("umount", str(shared))


def test_a_disk_that_a_stranger_uses_is_held_until_he_is_gone(workshop: Workshop, disk: LoopDisk, path: str) -> None:
    entry = wanted(disk, path)
    task = workshop.start(f"touch {path}/up; {WAIT.format(path)}", volumes=[entry])
    workshop.running(task)
    point = workshop.until(disk.places, task)[0]
    workshop.until(Path(point, "up").exists, task)
    onlooker = ("unshare", "--mount", "--propagation", "slave", "sh", "-c", "echo in; exec cat")  # it loses it with us
    with (
        subprocess.Popen(onlooker, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as apart,
        subprocess.Popen(["/bin/cat"], cwd=point, stdin=subprocess.PIPE) as stranger,
    ):
        assert apart.stdout is not None and apart.stdout.readline() == b"in\n"
        Path(point, "go").touch()
        ended = workshop.exited(task)
        assert ended["held"] == [entry["volume"]]
        assert f"can't be unmounted yet: by cat (process {stranger.pid})" in ended["held_by"]
        assert not workshop.roster.over(task), "the task's folder stays until then"
        with subprocess.Popen(["/bin/tail", "-f", "-"], cwd=point, stdin=subprocess.PIPE) as next_one:
            stranger.communicate()
            workshop.until(lambda: f"by tail (process {next_one.pid})" in workshop.state(task)["held_by"], task)
    workshop.until(lambda: "held" not in workshop.state(task), task)
    assert "held_by" not in workshop.state(task) and "unmounted" not in workshop.state(task)["message"]
    assert disk.places() == [] and workshop.roster.over(task)


def test_a_namespace_that_somebody_made_meanwhile_doesnt_keep_a_disk(
    workshop: Workshop, disk: LoopDisk, path: str
) -> None:
    task = workshop.start(f"echo up; {WAIT.format(path)}", volumes=[wanted(disk, path)])
    workshop.says(task, b"up")
    (point,) = disk.places()
    stranger = ("unshare", "--mount", "--propagation", "slave", "sh", "-c", "echo in; exec cat")
    with subprocess.Popen(stranger, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as apart:
        assert apart.stdout is not None and apart.stdout.readline() == b"in\n"
        Path(point, "go").touch()
        over(workshop, task)
        assert disk.places() == [] and apart.poll() is None


def test_after_a_killed_supervisor_the_next_one_unmounts(workshop: Workshop, disk: LoopDisk, path: str) -> None:
    task = workshop.start(f"touch {path}/up; sleep 1000", volumes=[wanted(disk, path)])
    workshop.running(task)
    kill_supervisor(workshop, task)
    assert len(disk.places()) == 1
    workshop.roster.launch(task, workshop.fetch)
    assert over(workshop, task)["reason"] == "executor_error"
    assert disk.places() == []


def test_a_supervisor_killed_while_a_disk_is_held_has_a_successor(
    workshop: Workshop, disk: LoopDisk, path: str
) -> None:
    task = workshop.start(f"touch {path}/up; {WAIT.format(path)}", volumes=[wanted(disk, path)])
    workshop.running(task)
    point = workshop.until(disk.places, task)[0]
    workshop.until(Path(point, "up").exists, task)
    with subprocess.Popen(["/bin/cat"], cwd=point, stdin=subprocess.PIPE):
        Path(point, "go").touch()
        workshop.exited(task)
        kill_supervisor(workshop, task)
        assert workshop.roster.orphaned(task)
    workshop.roster.launch(task, workshop.fetch)
    workshop.until(lambda: workshop.roster.over(task), task)
    assert disk.places() == []


def test_what_a_forgotten_task_left_is_swept(workshop: Workshop, disk: LoopDisk, path: str) -> None:
    task = workshop.start("sleep 1000", volumes=[wanted(disk, path)])
    workshop.running(task)
    kill_supervisor(workshop, task)
    workshop.runtime.remove(workshop.roster.folder(task))
    workshop.roster.folder(task).delete()
    assert len(disk.places()) == 1
    assert volumes.sweep(str(workshop.data) + "-another") == []
    assert len(disk.places()) == 1, "another agent's isn't touched"
    until("it to be unmounted", lambda: not volumes.sweep(str(workshop.data)))
    assert disk.places() == [] and Holds().of(task) is None


def test_sessions_find_the_volumes_and_dont_keep_them(
    workshop: Workshop, disk: LoopDisk, path: str, tmp_path: Path
) -> None:
    key, public = key_pair(tmp_path / "keys", "user")
    script = f"echo kept > {path}/file; {WAIT.format(path)}"
    task = workshop.start(script, volumes=[wanted(disk, path)], authorized_keys=[public])
    workshop.running(task)
    ssh = Ssh(workshop, task, key)
    assert ssh.output(f"cat {path}/file; echo more > {path}/session") == "kept\n"
    terminal = ssh.terminal(f"cd {path}; echo on''ce; cat")
    terminal.sees(b"once")
    (point,) = disk.places()
    assert Path(point, "session").read_text() == "more\n"
    Path(point, "go").touch()
    over(workshop, task)
    assert disk.places() == [] and terminal.status() != 0


def test_last_writes_that_fail_are_told(workshop: Workshop, path: str, tmp_path: Path) -> None:
    """A disk that has less room than it says: the kernel notices when it writes what the job thought was written."""
    small = tmp_path / "small"
    small.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=6m", "none", str(small))
    try:
        with loops.disk(small / "disk", 64 * MIB) as disk:
            task = workshop.start(f"head -c 20000000 /dev/urandom > {path}/x", volumes=[wanted(disk, path)])
            ended = over(workshop, task)
            assert "volume data: its last writes failed (Input/output error)" in ended["message"]
            assert disk.places() == []
    finally:
        run("umount", str(small))


@pytest.mark.parametrize("protected", [False, True])
def test_the_journal_of_a_disk_that_was_torn_away_is_replayed_if_it_can_be(
    workshop: Workshop, path: str, tmp_path: Path, shared: Path, protected: bool
) -> None:
    torn = tmp_path / "torn"
    with loops.disk(tmp_path / "whole", 32 * MIB) as disk:
        ext4(disk)
        run("mount", disk.path, str(shared))
        (shared / "file").write_text("kept")
        run("sync", "-f", str(shared))
        torn.write_bytes(disk.file.read_bytes())
        run("umount", str(shared))
    assert "needs_recovery" in run("dumpe2fs", "-h", str(torn))
    with loops.disk(torn, 0, *(["-r"] if protected else [])) as disk:
        entry = wanted(disk, path, read_only=protected)
        assert over(workshop, workshop.start(f"ls {path}", volumes=[entry]))["exit_status"] == 0


def test_nothing_stays_on_the_machine_when_the_last_agent_leaves_it(tmp_path: Path) -> None:
    holds = Holds(str(tmp_path / "volumes"))
    holds.tidy()
    task = TaskFolder(str(tmp_path / "agent"), "t")
    task.create({})
    holds.begin("t", task.data)
    holds.begin("t", task.data)
    with holds.locked("v"):
        pass
    assert len(mountinfo.at(holds.root)) == 1
    holds.tidy()
    assert holds.of("t") == {"data": task.data, "volumes": {}, "made": []}, "a task may still mount something"
    task.delete()
    holds.tidy()
    assert not Path(holds.root).exists() and mountinfo.at(holds.root) == []


def test_clearing_a_machine_unmounts_its_disks(workshop: Workshop, disk: LoopDisk, path: str) -> None:
    task = workshop.start("sleep 1000", volumes=[wanted(disk, path)])
    workshop.running(task)
    assert clearing.clear(str(workshop.data), {"process": workshop.runtime}, workshop.roster) == ""
    assert disk.places() == [] and Holds().of(task) is None and list(workshop.data.iterdir()) == []


# Folders --------------------------------------------------------------------------------------------------------------


def test_a_missing_folder_is_made_by_the_jobs_user_and_open_to_the_next(
    workshop: Workshop, shared: Path, path: str
) -> None:
    entry = folder(shared / "a" / "cache", path)
    first = workshop.start(f"id -u; echo one > {path}/file", volumes=[entry])
    uid = int(output_of(workshop, first))
    made = (shared / "a" / "cache").stat()
    assert (made.st_uid, made.st_mode & 0o777) == (uid, 0o777)
    second = workshop.start(f"cat {path}/file; touch {path}/second", volumes=[entry])
    assert output_of(workshop, second) == "one\n"


def test_an_existing_folder_is_left_as_it_is(workshop: Workshop, shared: Path, path: str) -> None:
    existing = shared / "mine"
    existing.mkdir(mode=0o750)
    existing.chmod(0o755)
    task = workshop.start(f"touch {path}/x 2>/dev/null || stat -c '%u %a' {path}", volumes=[folder(existing, path)])
    assert output_of(workshop, task) == "0 755\n"


def test_two_jobs_have_different_folders_at_one_path(workshop: Workshop, shared: Path, path: str) -> None:
    tasks = [
        workshop.start(f"echo {name} > {path}/name; cat {path}/*", volumes=[folder(shared / name, path)])
        for name in ("a", "b")
    ]
    assert [output_of(workshop, task) for task in tasks] == ["a\n", "b\n"]


def test_nobodys_links_are_followed(workshop: Workshop, shared: Path, path: str) -> None:
    (shared / "link").symlink_to("/etc")
    message = refused(workshop, folder(shared / "link" / "ssl", path))
    assert f"{shared}/link is a link to /etc" in message and "name the folder itself" in message
    assert "is a link to" in refused(workshop, folder(shared / "fresh", str(shared / "link" / "data")))


@pytest.mark.parametrize(
    "target", ["/", "/etc", "/usr/lib/python3", "/var/lib/dstack-tasks", "/proc/self", "{data}", "{python}"]
)
def test_nothing_is_mounted_over_what_the_agent_needs(tmp_path: Path, shared: Path, target: str) -> None:
    target = target.format(data=tmp_path, python=sys.prefix)
    found = TaskVolumes(TaskFolder(str(tmp_path), "t"), [folder(shared, target)])
    with pytest.raises(TaskError, match=f"^volume {shared}: ") as caught:
        found.enter(TaskAccount(None))
    assert caught.value.reason == "volume_error"


def test_a_refused_folder_ends_the_job(workshop: Workshop, path: str) -> None:
    assert "belongs to the machine's system" in refused(workshop, folder(Path("/etc"), path))


def test_a_folder_that_its_user_cant_reach_isnt_shown_to_it(workshop: Workshop, shared: Path, path: str) -> None:
    (shared / "closed" / "open").mkdir(parents=True)
    (shared / "closed").chmod(0o700)
    assert "Permission denied" in refused(workshop, folder(shared / "closed" / "open", path))
    (shared / "closed").chmod(0o755)
    message = refused(workshop, folder(shared / "closed" / "new", path))
    assert "may not make it" in message and "install -d" in message


def test_devices_in_a_folder_are_none(workshop: Workshop, shared: Path, path: str) -> None:
    (shared / "f").mkdir(mode=0o777)
    (shared / "f").chmod(0o777)
    os.mknod(shared / "f" / "zero", 0o20666, os.makedev(1, 5))
    script = f"touch {path}/x || exit 1; head -c 1 {path}/zero && exit 2; exit 0"
    task = workshop.start(script, volumes=[folder(shared / "f", path)])
    assert workshop.exited(task)["exit_status"] == 0, workshop.log(task)


# What isn't known, and who may not ----------------------------------------------------------------------------------


def test_an_unknown_kind_is_refused(workshop: Workshop, path: str) -> None:
    assert "no volumes of kind 'network'" in refused(workshop, {"kind": "network", "path": path, "name": "n"})


def test_an_agent_that_isnt_root_refuses_with_the_reason(workshop: Workshop, disk: LoopDisk, path: str) -> None:
    def found() -> int:
        os.setuid(65534)
        data = workshop.roster.folder("t")
        try:
            TaskVolumes(data, [wanted(disk, path)]).mount(lambda _: None, lambda _: None)
        except TaskError as problem:
            return 0 if (problem.reason == "volume_error") and "isn't root" in problem.message else 1
        return 2

    child = os.fork()
    if child == 0:
        os._exit(found())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
