"""Checks of uploaded archives, which may contain files, folders, and links that stay inside the archive.

An archive is unpacked on a host next to other people's work, so its headers are checked before a byte is stored, when
the user can still read the reason. Its size is bounded: it isn't compressed, no file in it is sparse, and no file may
claim more bytes than the upload has. Its names form a proper tree: no name changes its kind, and nothing lies below a
link or a file, so a path that looks as if it were inside can't lead elsewhere. The agent checks again
(`agent/runtimes/archives.py`); the same table of tests covers both.
"""

from __future__ import annotations

import io
import posixpath
import tarfile
from collections.abc import Iterator, Set
from pathlib import PurePosixPath

from chalicelib.errors import Invalid

MAX_ENTRIES = 20_000
MAX_NAME = 4_096  # the longest path that Linux accepts
_MALFORMED = (tarfile.TarError, ValueError, EOFError, ArithmeticError, LookupError)  # raised for malformed archives


def check_tar(content: bytes) -> None:
    """Refuse an archive that isn't a plain tar, or contains anything that would be unpacked outside its folder."""
    with _opened(content) as archive:
        _members(archive, len(content))


def as_content(content: bytes) -> bytes:
    """A checked tar whose names begin with `./`, which tells an agent that it is the content of a folder and not one
    entry of that name. Empty if it contains nothing."""
    out = io.BytesIO()
    with _opened(content) as archive:
        members = _members(archive, len(content))
        with tarfile.open(fileobj=out, mode="w:", format=tarfile.PAX_FORMAT) as packed:
            for member in members:
                data = archive.extractfile(member) if member.isfile() else None
                member.name = f"./{member.name.removeprefix('./')}"
                if member.islnk():
                    member.linkname = f"./{member.linkname.removeprefix('./')}"
                member.pax_headers = {}
                packed.addfile(member, data)
    return out.getvalue() if members else b""


def _opened(content: bytes) -> tarfile.TarFile:
    try:
        return tarfile.open(fileobj=io.BytesIO(content), mode="r:")
    except _MALFORMED as error:
        raise _no_tar(error) from None


def _no_tar(error: Exception) -> Invalid:
    return Invalid(f"The upload isn't a tar archive: {error}.", hint="Send an uncompressed tar.")


def _members(archive: tarfile.TarFile, size: int) -> list[tarfile.TarInfo]:
    """The checked entries of an archive of `size` bytes."""
    members: list[tarfile.TarInfo] = []
    try:
        for member in archive:
            if len(members) >= MAX_ENTRIES:
                raise Invalid(f"The archive has more than {MAX_ENTRIES} entries.", hint="Send fewer files.")
            _check_member(member, size)
            members.append(member)
    except _MALFORMED as error:
        raise _no_tar(error) from None
    kinds: dict[str, str] = {".": "folder"}
    for member in members:
        _take_place(member, kinds)
    links = {name for name, kind in kinds.items() if kind == "link"}
    for member in members:
        if member.issym() and _leads_out(member, links):
            raise _wrong(member, f"is a link to {member.linkname[:200]!r}, outside its folder", "Send the file itself.")
    return members


def _wrong(member: tarfile.TarInfo, why: str, hint: str = "Leave it out.") -> Invalid:
    return Invalid(f"The archive's entry {member.name[:200]!r} {why}.", hint=hint)


def _check_member(member: tarfile.TarInfo, size: int) -> None:
    """Refuse an entry whose own header is invalid."""
    if max(len(member.name), len(member.linkname)) > MAX_NAME:
        raise _wrong(member, f"has a name that is too long: {MAX_NAME} characters at most")
    if _leaves(member.name):
        raise _wrong(member, "lies outside its folder", "Use names relative to it.")
    if member.issparse():
        raise _wrong(member, "is a file with holes, which unpacks to more than was sent", "Pack it without --sparse.")
    if not (member.isfile() or member.isdir() or member.issym() or member.islnk()):
        raise _wrong(member, "is a device or a pipe, not a file, a folder or a link")
    if member.isfile() and member.offset_data + member.size > size:
        raise _wrong(member, f"claims {member.size} bytes, more bytes than were sent", "Send the archive again.")
    if member.islnk() and _leaves(member.linkname):
        raise _wrong(member, f"is a link to {member.linkname[:200]!r}, outside its folder", "Send the file itself.")


def _take_place(member: tarfile.TarInfo, kinds: dict[str, str]) -> None:
    """Add the entry's name to `kinds`. Only files and folders may be repeated, and only as the same kind."""
    name = posixpath.normpath(member.name)
    for above in _above(name):
        if kinds.setdefault(above, "folder") != "folder":
            raise _wrong(member, f"lies below {above[:200]!r}, which is a {kinds[above]}")
    if member.islnk() and kinds.get(posixpath.normpath(member.linkname)) != "file":
        raise _wrong(member, f"is a link to {member.linkname[:200]!r}, which isn't a file before it", "Send the file.")
    kind = "folder" if member.isdir() else "link" if member.issym() else "file"
    known = kinds.setdefault(name, "") or kind
    if known != kind or (kind == "link" and kinds[name]):
        raise _wrong(member, f"comes twice, as a {known} and as a {kind}", "Keep one of them.")
    kinds[name] = kind


def _above(name: str) -> Iterator[str]:
    """The folders that contain a name, the nearest first."""
    while name := posixpath.dirname(name):
        yield name


def _leads_out(link: tarfile.TarInfo, links: Set[str]) -> bool:
    """Does the target leave the archive? `..` behind another link counts as leaving: it leads up from wherever that one
    points to."""
    if link.linkname.startswith("/") or _unsafe(link.linkname):
        return True
    place, through = [part for part in posixpath.dirname(posixpath.normpath(link.name)).split("/") if part], False
    for part in link.linkname.split("/"):
        if part == "..":
            if through or not place:
                return True
            place.pop()
        elif part not in ("", "."):
            place.append(part)
            through = through or "/".join(place) in links
    return False


def _leaves(path: str) -> bool:
    """Does this path, from the archive's folder, ever leave it?"""
    if path.startswith("/") or _unsafe(path):
        return True
    depth = 0
    for part in PurePosixPath(path).parts:
        depth += -1 if part == ".." else 1
        if depth < 0:
            return True
    return False


def _unsafe(path: str) -> bool:
    return "\0" in path or "\\" in path
