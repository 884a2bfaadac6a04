"""Durable files and the meaning of disk errors, shared by the stores that use files."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from chalicelib.domain.usage import Part, StorageUsage
from chalicelib.errors import DstackError, Invalid, Refused, StorageFull

MOST_FILES = 200_000  # counted by one measurement: half a second's work


def make_folder(folder: Path) -> None:
    """Create `folder` and its parents, private to the owner, each durable before anything is put into it."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Sync a folder: a new or renamed file in it is durable only after that."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def disk_error(path: Path, error: OSError) -> DstackError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return StorageFull(f"{path} can't be written: {error.strerror}.", hint="Make room on its disk and try again.")
    if error.errno in (errno.ENOTDIR, errno.EISDIR, errno.EEXIST):
        return Invalid(f"{path} is a blob and a folder of blobs at once.", hint="Choose another name.")
    return Refused(f"{path} can't be used: {error.strerror}.", hint="Check the data folder's owner and permissions.")


def used(folder: Path, *, most: int = MOST_FILES) -> StorageUsage:
    """The space that a data folder takes, by database and folder. Files may be created and deleted meanwhile."""
    parts = [_part("database", (entry for entry in _entries(folder) if entry.name.startswith("plane.db")), most)]
    folders = sorted(entry.name for entry in _entries(folder) if entry.is_dir(follow_symlinks=False))
    parts += [_part(name, _below(folder / name), most) for name in folders]
    return StorageUsage(tuple(parts), shutil.disk_usage(folder).free)


def _part(name: str, files: Iterable[os.DirEntry[str]], most: int) -> Part:
    sizes = [_size(entry) for entry in islice(files, most + 1)]
    return Part(name, sum(sizes[:most]), min(len(sizes), most), whole=len(sizes) <= most)


def _size(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_size
    except FileNotFoundError:
        return 0


def _below(folder: Path) -> Iterator[os.DirEntry[str]]:
    """All files in it, at any depth."""
    waiting = [str(folder)]
    while waiting:
        for entry in _entries(waiting.pop()):
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
            else:
                yield entry


def _entries(folder: str | Path) -> Iterator[os.DirEntry[str]]:
    """The entries of a folder one by one, because it may have a million."""
    try:
        with os.scandir(folder) as found:
            yield from found
    except (FileNotFoundError, PermissionError):
        return
