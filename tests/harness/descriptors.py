"""Which descriptors this process has open, for tests that nothing stays open.

What is asked is never how many there are: a thread or an object of an earlier test may close one between two counts.
"""

from __future__ import annotations

import gc
from pathlib import Path

FOLDER = Path("/proc/self/fd")


def descriptors() -> frozenset[tuple[str, str]]:
    """The number of each, and what it leads to: a path, or the kind and the inode."""
    gc.collect()  # or what an earlier test dropped would still be there
    gc.freeze()  # what lives needn't be walked again by the next count
    found = set()
    for each in FOLDER.iterdir():
        try:
            found.add((each.name, str(each.readlink())))
        except FileNotFoundError:
            continue  # closed since, as is the listing's own
    return frozenset(found)


def opened_since(before: frozenset[tuple[str, str]]) -> frozenset[tuple[str, str]]:
    return descriptors() - before


def open_under(folder: Path) -> list[str]:
    """The files and folders under a folder that are open, once for each descriptor."""
    return [target for _, target in descriptors() if Path(target).is_relative_to(folder)]
