"""This computer's mounts, and unmounting them for a killed machine."""

from __future__ import annotations

import logging
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger(__name__)

PATIENCE = 10.0  # seconds to unmount


@dataclass(frozen=True)
class Mount:
    path: str
    source: str  # a device, where there is one


def mounts() -> list[Mount]:
    """This computer's mounts, in the order in which they were made."""
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except FileNotFoundError:  # not Linux: nothing of ours mounts anything there
        return []
    halves = (line.partition(" - ") for line in lines)
    return [Mount(_unescaped(left.split()[4]), _unescaped(right.split()[1])) for left, _, right in halves]


def unmount(place: Mount) -> bool:
    """Unmounts it. False if it stays mounted, because something uses it."""
    done = subprocess.run(["umount", place.path], capture_output=True, text=True, timeout=PATIENCE, check=False)
    if done.returncode:
        log.error("%s can't be unmounted, so it stays: %s", place.path, done.stderr.strip())
    return done.returncode == 0


def _unescaped(text: str) -> str:
    """Decodes a path: the kernel writes blanks and similar characters as three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
