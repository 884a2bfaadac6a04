"""Durable files, and what a disk's failures mean: shared by the stores that keep files."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from chalicelib.errors import DstackError, Invalid, Refused, StorageFull


def make_folder(folder: Path) -> None:
    """Create `folder` and its parents, private to the owner, each durable before anything is put into it."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """A new or moved name is durable only once its folder is synced."""
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
