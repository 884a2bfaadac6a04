"""Runs on the simulated cloud share a volume: a real disk, formatted, mounted and let go by the real agent.

Where the kernel refuses loop devices it is a folder, and the list of volumes says so.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import loops
from tests.harness.server import Server, until

VOLUME = "type: volume\nname: data\nbackend: aws\nregion: sim-east\nsize: 1GB\n"
FLEET = "type: fleet\nname: cloud\nnodes: 0..1\n"
TASK = "type: task\nname: {name}\ncommands: ['{command}']\nvolumes: [\"data:{path}\"]\n"


REFUSES = "#!/bin/sh\ncase $1 in --find) echo 'losetup: no permission' >&2; exit 1;; esac\n"


@contextlib.contextmanager
def serving(home: Path, **env: str) -> Iterator[Server]:
    one = Server(home, flags=("--fake-cloud", "--fake-cloud-name", "aws", "--no-local-fleet"), env=env)
    one.home.mkdir()
    try:
        one.start()
        yield one
    finally:
        one.close()


def apply(server: Server, text: str, *flags: str) -> str:
    (server.home / "it.dstack.yml").write_text(text)
    return server.cli("apply", "-y", "-f", str(server.home / "it.dstack.yml"), *flags)


def shared_by_two_runs(server: Server, path: str) -> None:
    apply(server, VOLUME)
    apply(server, FLEET)
    first = apply(server, TASK.format(name="first", path=path, command=f"echo kept > {path}/file; echo written"))
    assert "written" in first, first
    apply(server, TASK.format(name="second", path=path, command=f"cat {path}/file; sleep 600"), "-d")
    until("it to be read", lambda: "kept" in server.cli("logs", "second"))


def stopped(server: Server, path: str) -> None:
    server.cli("stop", "second", "-y")
    until("the machine to be as it was before", lambda: not Path(path).exists())
    until("it to be detached", lambda: server.call("/api/project/main/volumes/list", {})[0]["attachments"] == [])


@loops.needed
def test_what_one_run_writes_the_next_one_reads(tmp_path: Path) -> None:
    with serving(tmp_path / "home") as server:
        shared_by_two_runs(server, "/dstack-test-disk")
        assert "folder" not in server.cli("volume", "list", "-v")
        stopped(server, "/dstack-test-disk")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts folders")
def test_where_the_kernel_refuses_loop_devices_the_volume_is_a_folder_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "losetup").write_text(REFUSES)
    (tmp_path / "losetup").chmod(0o755)
    with serving(tmp_path / "home", PATH=f"{tmp_path}:{os.environ['PATH']}") as server:
        shared_by_two_runs(server, "/dstack-test-folder")
        assert "a folder instead of a disk: this computer's kernel refuses loop" in server.cli("volume", "list", "-v")
        (found,) = server.home.rglob("*.folder")
        assert (found / "file").read_text() == "kept\n"
        stopped(server, "/dstack-test-folder")
