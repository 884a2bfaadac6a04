"""What a site takes from this machine, all under one name, so that one function can release it.

Everything of site ID can be found by that name alone: a folder with its mounts, network namespaces, control groups, and
the processes in them. So `remove` needs no list of what was done, and works for a site that ends as well as for one
whose owner was killed. The owner holds a lock on a file, which the kernel releases however the owner ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tests.harness.debian import run

FOLDER = Path("/run/dstack-hosts")
NAMESPACES = Path("/run/netns")
NSPAWN = Path("/run/systemd/nspawn")  # what systemd-nspawn keeps of each machine
GROUPS = Path("/sys/fs/cgroup")
GONE_SECONDS = 60.0


@contextlib.contextmanager
def claimed() -> Iterator[Path]:
    """A site's own folder, in memory and only root's; its name is the site's. First removes what dead owners left."""
    FOLDER.mkdir(exist_ok=True)
    name = f"dh-{secrets.token_hex(3)}"
    with _lock(name).open("a") as lock:
        with _one_at_a_time():
            fcntl.flock(lock, fcntl.LOCK_EX)
            _sweep()
        try:
            place = FOLDER / name
            place.mkdir(mode=0o700)
            run("mount", "-t", "tmpfs", "-o", "mode=0700", name, str(place))
            run("mount", "--make-private", str(place))
            yield place
        finally:
            remove(name)


def sweep() -> list[str]:
    """Remove the sites whose owners are gone; their names."""
    FOLDER.mkdir(exist_ok=True)
    with _one_at_a_time():
        return _sweep()


def _sweep() -> list[str]:
    gone = []
    for path in sorted(FOLDER.glob("dh-*.lock")):
        with contextlib.suppress(BlockingIOError), path.open("r") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove(path.stem)
            gone.append(path.stem)
    return gone


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Nobody sweeps a site that is about to take its lock."""
    with (FOLDER / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _lock(name: str) -> Path:
    return FOLDER / f"{name}.lock"


def remove(name: str) -> None:
    end = time.monotonic() + GONE_SECONDS
    while pids := processes(name):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > end:
            raise AssertionError(f"these processes of {name} can't be killed: {pids}")
        time.sleep(0.02)
    for mount in reversed(mounts(name)):
        _nspawn_lock(mount).unlink(missing_ok=True)
        run("umount", "-l", mount)
    for namespace in namespaces(name):
        run("ip", "netns", "del", namespace.name)
    for group in groups(name):
        for folder in sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True):
            folder.rmdir()
        group.rmdir()
    for folder_left in NSPAWN.glob(f"*/{name}-*"):
        shutil.rmtree(folder_left, ignore_errors=True)
    shutil.rmtree(FOLDER / name, ignore_errors=True)
    _lock(name).unlink(missing_ok=True)


def _nspawn_lock(mount: str) -> Path:
    """The file by which systemd-nspawn lets nobody else boot from this root. It never removes it."""
    found = Path(mount).stat()
    return NSPAWN / f"locks/inode-{found.st_dev}:{found.st_ino}"


def left(name: str) -> list[str]:
    """Everything that is there of a site, in words. Nothing, once it is removed."""
    found = [f"process {pid}" for pid in processes(name)] + [f"mount {path}" for path in mounts(name)]
    paths = [*namespaces(name), *groups(name), *NSPAWN.glob(f"*/{name}-*"), *FOLDER.glob(f"{name}*")]
    return found + [str(path) for path in paths]


def mounts(name: str) -> list[str]:
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return [place for place in (line.split()[1] for line in lines) if f"{place}/".startswith(f"{FOLDER}/{name}/")]


def namespaces(name: str) -> list[Path]:
    return sorted(NAMESPACES.glob(f"{name}-*"))


def groups(name: str) -> list[Path]:
    return [*GROUPS.glob(f"{name}-*"), *GROUPS.glob(f"*/{name}-*")]


def processes(name: str) -> list[int]:
    """Those in the site's network namespaces or control groups: its hosts, and what a test started at its control."""
    inside = {_identity(path) for path in namespaces(name)}
    found = {int(pid) for group in groups(name) for folder, _, _ in os.walk(group) for pid in _members(Path(folder))}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if _identity(entry / "ns/net") in inside:
                    found.add(int(entry.name))
    return sorted(found - {os.getpid(), 0})


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def _members(group: Path) -> list[str]:
    """None, if the group goes while it is looked at."""
    with contextlib.suppress(OSError):
        return (group / "cgroup.procs").read_text().split()
    return []


def hierarchies() -> list[Path]:
    """Where control groups are mounted: one place with version 2, one a controller with version 1."""
    done = subprocess.run(["findmnt", "-rn", "-t", "cgroup,cgroup2", "-o", "TARGET"], capture_output=True, text=True)
    return [Path(line) for line in dict.fromkeys(done.stdout.split()) if os.access(line, os.W_OK)]


def make_groups(name: str, memory_mib: int = 0) -> list[Path]:
    """Control groups of this name, one in each hierarchy."""
    made = [base / name for base in hierarchies()]
    for group in made:
        group.mkdir(exist_ok=True)
        if group.parent.name == "cpuset":  # it starts empty, and takes nobody before it isn't
            for knob in ("cpuset.cpus", "cpuset.mems"):
                (group / knob).write_text((group.parent / knob).read_text())
        for knob in ("memory.limit_in_bytes", "memory.max"):
            if memory_mib and (group / knob).exists():
                (group / knob).write_text(str(memory_mib << 20))
    return made


def memory_of(name: str) -> int:
    """Bytes that the groups of this very name take."""
    files = [base / name / knob for base in hierarchies() for knob in ("memory.usage_in_bytes", "memory.current")]
    return max((int(file.read_text()) for file in files if file.exists()), default=0)
