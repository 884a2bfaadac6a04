"""Programs that tests need and this machine may lack: Debian has them."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

LOCK = Path(tempfile.gettempdir()) / "dstack-test-apt.lock"
BUSYBOX = Path("/bin/busybox")


class NotHere(Exception):
    """Something isn't on this machine and can't be installed, for the reason given."""


def run(*argv: str, timeout: float = 240.0, env: dict[str, str] | None = None) -> None:
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, env=env)
    if done.returncode:
        raise NotHere(f"{' '.join(argv[:4])} failed: {(done.stderr or done.stdout).strip()[-400:]}")


def install(*packages: str) -> None:
    """Debian's packages, by root; one process at a time."""
    if not shutil.which("apt-get"):
        raise NotHere(f"there is no apt-get to install {' and '.join(packages)} with")
    if os.getuid() != 0:
        raise NotHere(f"installing {' and '.join(packages)} needs root")
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = ("apt-get", "install", "-y", "--no-install-recommends", *packages)
        quiet = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
        try:
            run(*command, env=quiet)
        except NotHere:
            run("apt-get", "update", env=quiet)
            run(*command, env=quiet)


def unpacked(package: str, folder: Path) -> Path:
    """The files of a package, below `folder`, without installing it: its daemons would start."""
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            if not shutil.which("apt-get"):
                raise NotHere(f"there is no apt-get to get {package} with")
            with tempfile.TemporaryDirectory() as draft:
                fetch = ("env", f"--chdir={draft}", "apt-get", "download", "-q", package)
                try:
                    run(*fetch)
                except NotHere:
                    run("apt-get", "update")
                    run(*fetch)
                (archive,) = Path(draft).glob("*.deb")
                run("dpkg", "-x", str(archive), f"{draft}/files")
                shutil.copytree(f"{draft}/files", folder, symlinks=True)
    return folder


def ssh_server() -> None:
    """An sshd, with which people log in to jobs that are plain processes."""
    if not shutil.which("sshd", path="/usr/sbin:/usr/bin"):
        install("openssh-server")


def busybox() -> Path:
    """A shell with all its tools in one program that needs no library."""
    if not BUSYBOX.exists():
        install("busybox-static")
    return BUSYBOX


def busybox_or_skipped() -> Path:
    """For tests, which skip with the reason if it can't be had."""
    try:
        return busybox()
    except NotHere as problem:
        pytest.skip(f"no busybox: {problem}")
