"""The mounts that a process sees, from /proc/PID/mountinfo."""

from __future__ import annotations

import re
from typing import List, NamedTuple


class MountEntry(NamedTuple):
    number: str  # the device's major:minor; btrfs has numbers of its own
    root: str  # the folder of the filesystem that is mounted
    place: str
    read_only: bool
    filesystem: str
    source: str


def parse(text: str) -> List[MountEntry]:
    """The entries in the order of mounting: of several at one place, the last is visible."""
    found = []
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        fields, more = left.split(" "), right.split(" ")
        options = fields[5].split(",") + more[2].split(",")
        found.append(
            MountEntry(fields[2], _plain(fields[3]), _plain(fields[4]), "ro" in options, more[0], _plain(more[1]))
        )
    return found


def _plain(text: str) -> str:
    """Decode the octal numbers that stand for blanks, tabs, line ends and backslashes."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found.group(1), 8)), text)


def mounts(pid: str = "self") -> List[MountEntry]:
    with open("/proc/%s/mountinfo" % pid, encoding="utf-8", errors="surrogateescape") as file:
        return parse(file.read())


def at(place: str) -> List[MountEntry]:
    return [mounted for mounted in mounts() if mounted.place == place]
