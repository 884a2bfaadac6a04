"""Reads a Debian package: an archive of the ar format, one member of which is a tar of the files."""

from __future__ import annotations

import io
import posixpath
import tarfile
from collections.abc import Iterator

from chalicelib.errors import Invalid

MAGIC = b"!<arch>\n"
HEADER = 60


class Files:
    """The files of a package by path, without a leading slash. Reading a symbolic link reads its target, which has to
    be in the package."""

    def __init__(self, package: bytes) -> None:
        self._tar = tarfile.open(fileobj=io.BytesIO(_data(package)))  # noqa: SIM115 - it is memory
        self._members = {member.name.removeprefix("./"): member for member in self._tar.getmembers()}

    def __iter__(self) -> Iterator[str]:
        return (path for path, member in self._members.items() if member.isfile())

    def read(self, path: str) -> bytes:
        member = self._members.get(path)
        if member is not None and member.issym():
            return self.read(posixpath.normpath(posixpath.join(posixpath.dirname(path), member.linkname)))
        content = None if member is None else self._tar.extractfile(member)
        if content is None:
            raise Invalid(f"The package has no file {path}.")
        return content.read()


def _data(package: bytes) -> bytes:
    if not package.startswith(MAGIC):
        raise Invalid("This isn't a Debian package.")
    at = len(MAGIC)
    while at + HEADER <= len(package):
        name, size = package[at : at + 16].decode().strip(" /"), int(package[at + 48 : at + 58])
        if name.startswith("data.tar"):
            return package[at + HEADER : at + HEADER + size]
        at += HEADER + size + size % 2
    raise Invalid("This Debian package has no files.")
