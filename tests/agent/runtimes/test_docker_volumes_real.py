"""Containers with volumes: real disks, a real engine."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.runtimes.docker import DockerRuntime
from chalicelib.agent.volumes.holds import Holds
from tests.agent.runtime_conformance import Workshop, kill_supervisor
from tests.harness import loops
from tests.harness.docker import DockerEngine
from tests.harness.images import BUSYBOX
from tests.harness.loops import LoopDisk, run

pytestmark = loops.needed

WAIT = "while [ ! -e /data/go ]; do sleep 0.02; done"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopDisk]:
    with loops.disk(tmp_path / "disk") as disk:
        yield disk


@pytest.fixture
def workshop(tmp_path: Path, disk: LoopDisk, docker_engine: DockerEngine) -> Iterator[Workshop]:
    data = tmp_path / "agent"
    data.mkdir()
    runtime = DockerRuntime(str(data), docker_engine.socket)
    workshop = Workshop(data, runtime, docker_engine.socket, {"image": BUSYBOX})
    yield workshop
    workshop.end()


@pytest.fixture
def shared() -> Iterator[Path]:
    place = Path(f"/dstack-shared-{uuid.uuid4().hex[:12]}")
    place.mkdir()
    yield place
    run("rm", "-rf", str(place))


def wanted(disk: LoopDisk, **fields: Any) -> dict[str, Any]:
    entry = {"kind": "disk", "volume": str(uuid.uuid4()), "name": "data", "path": "/data", "device": disk.identity}
    return {**entry, "format": True, "read_only": False, **fields}


def output_of(workshop: Workshop, task: str) -> str:
    state = workshop.exited(task)
    assert state["exit_status"] == 0, (state, workshop.log(task))
    return workshop.log(task).decode().replace("\r\n", "\n")


def test_a_blank_disk_is_formatted_once_and_keeps_what_jobs_write(workshop: Workshop, disk: LoopDisk) -> None:
    entry = wanted(disk)
    user = {"username": "somebody"}
    first = workshop.start("echo kept > /data/file; stat -c %a /data", volumes=[entry], user=user)
    assert output_of(workshop, first) == "777\n"
    assert disk.places() == [] and Holds().of(first) is None
    again = workshop.start("cat /data/file; stat -c %u /data/file", volumes=[{**entry, "format": False}])
    assert output_of(workshop, again) == "kept\n1234\n"
    assert disk.places() == []


def test_two_containers_share_a_disk_and_the_last_unmounts_it(workshop: Workshop, disk: LoopDisk) -> None:
    entry = wanted(disk)
    one = workshop.start(WAIT, volumes=[entry])
    workshop.running(one)
    assert workshop.state(one)["mounted"] == [entry["volume"]]
    other = workshop.start("touch /data/go; echo there; cat", volumes=[{**entry, "format": False}])
    assert workshop.exited(one)["exit_status"] == 0
    assert disk.places() == [Holds().point(entry["volume"])]
    workshop.says(other, b"there")
    workshop.roster.abort(other)
    workshop.exited(other)
    assert disk.places() == []


def test_read_only(workshop: Workshop, disk: LoopDisk) -> None:
    run("mkfs.ext4", "-q", disk.path)
    task = workshop.start("touch /data/x && exit 1; ls /data", volumes=[wanted(disk, read_only=True)])
    assert "lost+found" in output_of(workshop, task)


def test_a_container_that_outlives_its_supervisor_keeps_its_disk_until_its_end(
    workshop: Workshop, disk: LoopDisk
) -> None:
    task = workshop.start(f"echo up; {WAIT}; echo end > /data/end", volumes=[wanted(disk)])
    workshop.says(task, b"up")
    kill_supervisor(workshop, task)
    workshop.roster.launch(task, workshop.fetch)
    (point,) = disk.places()
    Path(point, "go").touch()
    assert workshop.exited(task)["exit_status"] == 0
    assert disk.places() == []


def test_a_disk_that_a_stranger_uses_is_held_until_he_is_gone(workshop: Workshop, disk: LoopDisk) -> None:
    entry = wanted(disk)
    task = workshop.start(f"echo up; {WAIT}", volumes=[entry])
    workshop.says(task, b"up")
    (point,) = disk.places()
    with subprocess.Popen(["/bin/cat"], cwd=point, stdin=subprocess.PIPE):
        Path(point, "go").touch()
        assert workshop.exited(task)["held"] == [entry["volume"]]
    workshop.until(lambda: workshop.roster.over(task), task)
    assert "held" not in workshop.state(task) and disk.places() == []


def test_what_cant_be_mounted_ends_the_job_before_there_is_a_container(
    workshop: Workshop, disk: LoopDisk, docker_engine: DockerEngine
) -> None:
    run("mkswap", disk.path)
    before = disk.read()
    state = workshop.exited(workshop.start("true", volumes=[wanted(disk)]))
    assert (state["reason"], disk.read() == before) == ("volume_error", True)
    assert "volume data: " in state["message"] and "swap space" in state["message"]


def test_a_missing_folder_belongs_to_the_jobs_user(workshop: Workshop, shared: Path) -> None:
    entry = {"kind": "folder", "source": str(shared / "a" / "cache"), "path": "/data"}
    task = workshop.start("touch /data/mine; id -u", volumes=[entry], user={"username": "somebody"})
    assert output_of(workshop, task) == "1234\n"
    made = (shared / "a" / "cache").stat()
    assert (made.st_uid, made.st_gid, made.st_mode & 0o777) == (1234, 1234, 0o755)
    assert (shared / "a").stat().st_uid == 0
    task = workshop.start("ls /data", volumes=[entry], user={"uid": 0})
    assert output_of(workshop, task) == "mine\n"
    assert (shared / "a" / "cache").stat().st_uid == 1234, "it was there: it is left as it is"


def test_nobodys_links_are_followed_nor_the_machine_shown(workshop: Workshop, shared: Path) -> None:
    (shared / "link").symlink_to("/etc")
    for source, message in ((f"{shared}/link", "is a link to /etc"), ("/proc", "belongs to the machine's system")):
        entry = {"kind": "folder", "source": source, "path": "/data"}
        state = workshop.exited(workshop.start("true", volumes=[entry]))
        assert state["reason"] == "volume_error" and message in state["message"]
