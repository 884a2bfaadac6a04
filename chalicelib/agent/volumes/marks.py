"""A mark on a disk that is being formatted, which shows that a half-formatted disk has no user's data.

A machine may be lost in the middle of `mkfs`. The result has no signature, and no other machine could distinguish it
from data. So meanwhile, sectors at the end of the disk, beyond the new filesystem, name the volume and its control
plane. The mark is deleted before the filesystem is mounted for the first time: no job has ever written to a disk with a
mark.

It is one sector, which a disk writes entirely or not at all.
"""

from __future__ import annotations

import os
from typing import NamedTuple

TAIL = 64 << 10  # bytes at the disk's end that the filesystem doesn't use
FROM_END = 4096  # the last block of 4 KiB; a copy of a GPT would begin in its first byte or its last sector
SECTOR = 512
BEGIN = b"dstack: this disk is being formatted\n"


class Mark(NamedTuple):
    install: str
    volume: str

    @property
    def sector(self) -> bytes:
        import hashlib  # here, because it takes time, and few volumes are formatted

        text = BEGIN + ("%s\n%s\n" % (self.install, self.volume)).encode("utf-8")
        return (text + hashlib.sha256(text).hexdigest().encode("ascii")).ljust(SECTOR, b"\0")


def is_on(path: str, size: int, mark: Mark) -> bool:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(fd, SECTOR, size - FROM_END) == mark.sector
    finally:
        os.close(fd)


def put(path: str, size: int, mark: Mark) -> None:
    _write(path, size, mark.sector)


def remove(path: str, size: int) -> None:
    _write(path, size, bytes(SECTOR))


def _write(path: str, size: int, sector: bytes) -> None:
    """Write the sector and wait until it is on the disk."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.pwrite(fd, sector, size - FROM_END)
        os.fsync(fd)
    finally:
        os.close(fd)
