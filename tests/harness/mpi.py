"""Open MPI from its wheel, where every user of this machine may run it."""

from __future__ import annotations

import fcntl
import os
import sys
import tempfile
from pathlib import Path

from tests.harness.debian import run

FOLDER, LOCK = Path("/var/tmp/dstack-test-mpi"), Path(__file__).with_name("mpi.lock")


def mpirun() -> Path:
    """NotHere if it can't be had."""
    release = LOCK.read_text().split()[0].replace("==", "-")
    place = FOLDER / release
    FOLDER.mkdir(exist_ok=True)
    FOLDER.chmod(0o755)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            _install(place)
    return place / "bin" / "mpirun"


def _install(place: Path) -> None:
    mask = os.umask(0o022)
    try:
        with tempfile.TemporaryDirectory(dir=FOLDER) as work:
            pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
            run(*pip, "--require-hashes", "--no-deps", "-r", str(LOCK), "--prefix", f"{work}/made")
            Path(work, "made").rename(place)
    finally:
        os.umask(mask)


def on_each_node(program: Path | str, nodes: int, script: str) -> str:
    """The command that runs a script on all nodes; what they print says whether they did.

    Some of the time, mpirun never notices that what it started has ended if that ends at once. So the script stays a
    moment, and mpirun gives up after a minute.
    """
    placed = f"-n {nodes} --map-by node --hostfile $DSTACK_MPI_HOSTFILE"
    return f"{{ {program} --timeout 60 {placed} sh -c '{script}; sleep 1' || true; }}"
