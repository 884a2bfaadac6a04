"""Disks for tests: files that the kernel shows as block devices. They need root.

Whatever a test leaves mounted of them is unmounted, and each is detached, at the end of its `with`.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from chalicelib.agent.kernel import mountinfo

MIB = 1 << 20
MAJOR = 7  # the kernel's number of loop devices
PATIENCE = 120.0  # seconds: a mount namespace that a job got meanwhile may have its mounts, too


@dataclass(frozen=True)
class LoopDisk:
    path: str  # /dev/loopN
    file: Path

    @property
    def identity(self) -> dict[str, str]:
        return {"backing_file": str(self.file)}

    def places(self) -> list[str]:
        """Where it is mounted, as this process sees it, or a partition of it."""
        own = re.compile(rf"{self.path}(p\d+)?")
        return [mounted.place for mounted in mountinfo.mounts() if own.fullmatch(mounted.source)]

    def write(self, at: int, data: bytes) -> None:
        with Path(self.path).open("r+b") as disk:
            disk.seek(at)
            disk.write(data)

    def read(self) -> bytes:
        return Path(self.path).read_bytes()


def here() -> bool:
    return os.getuid() == 0 and Path("/dev/loop-control").exists()


needed = pytest.mark.skipif(not here(), reason="disks of files need root and /dev/loop-control")


@contextlib.contextmanager
def disk(file: Path, size: int = 16 * MIB, *options: str) -> Iterator[LoopDisk]:
    if not file.exists():
        with file.open("wb") as made:
            made.truncate(size)
    done = run("losetup", *options, "-f", "--show", str(file))
    found = LoopDisk(done.strip(), file)
    without_partitions(found)
    try:
        yield found
    finally:
        for place in reversed(found.places()):
            run("umount", place)
        without_partitions(found)
        detach(found)


def without_partitions(found: LoopDisk) -> None:
    """They would stay with the device, for whoever has it next."""
    name = Path(found.path).name
    for part in Path("/sys/block", name).glob(f"{name}p*"):
        run("delpart", found.path, part.name.rpartition("p")[2])


def detach(found: LoopDisk) -> None:
    """The kernel detaches it with its last user, which may take a moment to be gone."""
    until = time.monotonic() + PATIENCE
    run("losetup", "-d", found.path)
    while run("losetup", "-j", str(found.file)):
        assert time.monotonic() < until, f"{found.path} is still in use"
        time.sleep(0.01)


def of(folder: Path) -> list[LoopDisk]:
    """Those of files in this folder, whoever set them up."""
    lines = run("losetup", "-n", "-l", "-O", "NAME,BACK-FILE").splitlines()
    named = (line.split(None, 1) for line in lines)
    found = [LoopDisk(words[0], Path(words[1].removesuffix(" (deleted)"))) for words in named if len(words) == 2]
    return [disk for disk in found if disk.file.is_relative_to(folder.resolve())]


def give_back(folder: Path) -> None:
    """What is left of these after their users were killed."""
    for found in of(folder):
        for place in reversed(found.places()):
            run("umount", place)
        detach(found)


def run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{argv}: {done.stderr}"
    return done.stdout
