"""Rights in a user namespace, and mounts in one of their own, with processes of a few milliseconds."""

from __future__ import annotations

import ctypes
import os
import pwd
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.kernel import namespaces
from chalicelib.agent.runtimes.docker_client import DockerClient
from chalicelib.agent.sessions import container_session

APART = """
import ctypes, sys
if ctypes.CDLL(None, use_errno=True).unshare(0x10000000 | 0x20000):
    sys.exit(7)
print("apart", flush=True)
sys.stdin.read()
"""
NOT_ALLOWED = 7
FIRST = 100_000  # the machine's id of the user namespace's root


@pytest.fixture
def apart() -> Iterator[int]:
    """A process in a user namespace, as an engine with remapped users makes them."""
    argv = [sys.executable, "-S", "-c", APART]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdin is not None
        if not process.stdout.readline() and process.wait() == 7:
            pytest.skip("this account can't make user namespaces")
        try:
            for name in ("uid_map", "gid_map"):
                Path(f"/proc/{process.pid}/{name}").write_text(f"0 {FIRST} 65536\n")
        except PermissionError:
            pytest.skip("this account can't remap users")
        else:
            yield process.pid
        finally:
            process.stdin.close()


def in_child(work: Callable[[], bool]) -> int:
    """The exit status of a process of its own in which this is so: 0."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if work() else 1
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_the_root_of_a_container_isnt_the_machines(apart: int, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    here = os.open(tmp_path, os.O_RDONLY)

    def work() -> bool:
        namespaces.enter(apart, ["user", "mnt"])
        container_session.become(0, 0, 0)
        os.close(os.open("made", os.O_WRONLY | os.O_CREAT, dir_fd=here))
        return os.getresuid() == (0, 0, 0)

    assert in_child(work) == 0
    os.close(here)
    made = (tmp_path / "made").stat()
    assert (made.st_uid, made.st_gid) == (FIRST, FIRST)


class Engine(DockerClient):
    """Says which process is a container's first, another each time that it is asked."""

    def __init__(self, *pids: int) -> None:
        super().__init__("/no/such/socket")
        self._pids = list(pids)

    def container(self, name: str) -> dict[str, Any]:
        return {"State": {"Running": True, "Pid": self._pids.pop(0)}}


@pytest.mark.parametrize("ended", ["its number is another's", "the container has another process"])
def test_no_files_are_served_of_a_job_that_has_just_ended(apart: int, ended: str) -> None:
    engine = Engine(*([os.getpid()] * 2 if ended == "its number is another's" else [apart, apart + 1]))

    def work() -> bool:
        with pytest.raises(OSError, match="the job has ended"):
            container_session.serve_files(engine, "c", {})
        return True

    assert in_child(work) == 0


def test_a_task_sees_its_own_list_of_users(tmp_path: Path) -> None:
    if why := namespaces.bind_over_problem():
        pytest.skip(f"this account can't mount: {why}")
    (tmp_path / "users").write_text("me:x:61000:61000::/home/me:/bin/sh\n")
    before = pwd.getpwuid(os.getuid()).pw_name

    def work() -> bool:
        namespaces.bind_over({os.path.realpath("/etc/passwd"): str(tmp_path / "users")})
        return [each.pw_name for each in pwd.getpwall()] == ["me"]

    assert in_child(work) == 0
    assert pwd.getpwuid(os.getuid()).pw_name == before, "the machine has its own"


def test_what_the_machine_unmounts_goes_where_files_are_seen_instead(tmp_path: Path) -> None:
    place, one, other = tmp_path / "place", tmp_path / "one", tmp_path / "other"
    place.mkdir()
    for file in (one, other):
        file.write_text(file.name)
    libc = ctypes.CDLL(None, use_errno=True)

    def mounted() -> bool:
        return str(place) in Path("/proc/self/mountinfo").read_text()

    def inside(reader: int, answer: int) -> bool:
        namespaces.bind_over({str(one): str(other)})
        before = (one.read_text(), mounted())
        os.write(answer, b"x")
        os.read(reader, 1)
        return before == ("other", True) and not mounted()

    def work() -> bool:
        """A machine of its own, so to say, whose mounts are shared, as systemd has it."""
        refused = libc.unshare(0x20000) or libc.mount(b"none", b"/", None, 0x4000 | 0x100000, None)
        if refused or libc.mount(b"none", os.fsencode(place), b"tmpfs", 0, None):
            os._exit(NOT_ALLOWED)
        reader, writer = os.pipe()
        back, answer = os.pipe()
        child = os.fork()
        if child == 0:
            return inside(reader, answer)
        os.close(answer)
        os.read(back, 1)
        libc.umount2(os.fsencode(place), 2)
        os.write(writer, b"x")
        return os.waitpid(child, 0)[1] == 0 and one.read_text() == "one"

    if not (status := in_child(work)):
        return
    assert status == NOT_ALLOWED
    pytest.skip("this account can't mount")
