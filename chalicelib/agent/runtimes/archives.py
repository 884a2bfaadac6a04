"""The check of an archive before a byte of it is unpacked: only files, folders, and links that stay inside it.

The server checked each archive at upload (`usecases/runs/archives.py`), but the agent doesn't rely on that; the same
table of tests covers both. Compression, sparse files and files that claim more bytes than the archive has are refused,
so the unpacked size never exceeds the fetched one. No name changes its kind, and nothing lies below a link or a file,
so a path that seems to be inside the archive can't lead elsewhere.
"""

from __future__ import annotations

import os
import posixpath
import tarfile
from typing import Dict, Iterator, List, Set, Tuple

from ..kernel.task_runtime import TaskError

ENTRIES_MOST = 20000
NAME_MOST = 4096  # the longest path that Linux accepts
MALFORMED = (tarfile.TarError, ValueError, EOFError, ArithmeticError, LookupError)  # what `tarfile` raises


def open_archive(archive: str) -> tarfile.TarFile:
    try:
        return tarfile.open(archive, "r:")
    except MALFORMED as problem:
        raise unreadable(problem) from None


def unreadable(problem: Exception) -> TaskError:
    return TaskError("executor_error", "files: the archive can't be read: %s" % problem)


def checked_members(archive: str, tar: tarfile.TarFile) -> List[Tuple[str, tarfile.TarInfo]]:
    """The members with normalised names. Raises TaskError unless all are files, folders or links inside the archive."""
    members: List[Tuple[str, tarfile.TarInfo]] = []
    size = os.path.getsize(archive)
    try:
        for member in tar:
            if len(members) >= ENTRIES_MOST:
                why = "%s has more than %d entries; nothing was unpacked"
                raise TaskError("executor_error", why % (os.path.basename(archive), ENTRIES_MOST))
            check_member(archive, member, size)
            members.append((posixpath.normpath(member.name), member))
    except MALFORMED as problem:
        raise unreadable(problem) from None
    kinds: Dict[str, str] = {".": "folder"}
    for name, member in members:
        take_place(archive, name, member, kinds)
    links = {name for name, kind in kinds.items() if kind == "link"}
    for name, member in members:
        if member.issym() and leads_out(name, member.linkname, links):
            raise refused(archive, member.name, "is a link to a place outside the archive")
    return members


def refused(archive: str, name: str, why: str) -> TaskError:
    return TaskError("executor_error", "%s: %r %s; nothing was unpacked" % (os.path.basename(archive), name[:200], why))


def check_member(archive: str, member: tarfile.TarInfo, size: int) -> None:
    """Raise TaskError for a member that isn't acceptable by itself."""
    if max(len(member.name), len(member.linkname)) > NAME_MOST:
        raise refused(archive, member.name, "has a name that is too long")
    if leaves(member.name):
        raise refused(archive, member.name, "would be written outside the archive's folder")
    if member.issparse():
        raise refused(archive, member.name, "is a file with holes, which unpacks to more than was sent")
    if not (member.isfile() or member.isdir() or member.issym() or member.islnk()):
        raise refused(archive, member.name, "is a device, a pipe or a socket")
    if member.isfile() and member.offset_data + member.size > size:
        raise refused(archive, member.name, "claims %d bytes, more bytes than the archive has" % member.size)
    if member.islnk() and leaves(member.linkname):
        raise refused(archive, member.name, "is a link to a place outside the archive")


def leaves(path: str) -> bool:
    name = posixpath.normpath(path)
    return name.startswith(("/", "../")) or name == ".." or "\0" in name


def take_place(archive: str, name: str, member: tarfile.TarInfo, kinds: Dict[str, str]) -> None:
    """Add the member's name to `kinds`, those so far. Only files and folders may be repeated, as the same kind."""
    for above in folders_of(name):
        if kinds.setdefault(above, "folder") != "folder":
            raise refused(archive, member.name, "lies below %r, which is a %s" % (above[:200], kinds[above]))
    if member.islnk() and kinds.get(posixpath.normpath(member.linkname)) != "file":
        raise refused(archive, member.name, "is a link to something that isn't a file before it in the archive")
    kind = "folder" if member.isdir() else "link" if member.issym() else "file"
    earlier = kinds.setdefault(name, "") or kind
    if earlier != kind or (kind == "link" and kinds[name]):
        raise refused(archive, member.name, "comes twice, as a %s and as a %s" % (earlier, kind))
    kinds[name] = kind


def folders_of(name: str) -> Iterator[str]:
    """The folders above a name, the nearest first."""
    above = posixpath.dirname(name)
    while above:
        yield above
        above = posixpath.dirname(above)


def leads_out(name: str, target: str, links: Set[str]) -> bool:
    """Does a link leave the archive? `..` after another link counts as leaving, because it is relative to that link's
    target."""
    if target.startswith("/") or "\0" in target:
        return True
    place, through = [part for part in posixpath.dirname(name).split("/") if part], False
    for part in target.split("/"):
        if part == "..":
            if through or not place:
                return True
            place.pop()
        elif part not in ("", "."):
            place.append(part)
            through = through or "/".join(place) in links
    return False
