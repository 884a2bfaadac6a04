"""Where tests keep their files while they run: `python -m tests.harness.scratch GIB` prints it, for `TMPDIR`, if they
need so much room.

In memory, where that has room and programs may be run from it: thousands of small folders and databases, each written
through to a disk, would take half of the time.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

SHARED = Path("/dev/shm")  # Linux has it


def folder(room: int, memory: Path = SHARED) -> Path:
    if not memory.is_dir() or not os.access(memory, os.W_OK | os.X_OK):
        return Path(tempfile.gettempdir())
    there = os.statvfs(memory)
    roomy = there.f_bavail * there.f_frsize >= room << 30
    return memory if roomy and not there.f_flag & os.ST_NOEXEC else Path(tempfile.gettempdir())


if __name__ == "__main__":
    print(folder(int(sys.argv[1])))
