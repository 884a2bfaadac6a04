"""Archives that a run brings along: fetched with the agent's credential, unpacked without trusting what is in them.

An archive holds one top-level entry, the file or folder that the user named, and that entry becomes `path`; an
archive whose names begin with `./`, or that holds several entries, is the content of the folder `path`. What is at
`path` gives way to it. Refused: names that leave the archive, links that point out of it, devices, pipes and sockets.
"""

from __future__ import annotations

import os
import posixpath
import shutil
import tarfile
from typing import BinaryIO, List, Optional, Tuple

from .runtime import TaskError

Owner = Optional[Tuple[int, int]]


def resolve(path: str, working_dir: str, home: str) -> str:
    """A path as the user wrote it: `~` is home, anything relative is below the working directory."""
    if path == "~" or path.startswith("~/"):
        return posixpath.normpath(posixpath.join(home, path[2:]))
    return posixpath.normpath(posixpath.join(working_dir, path))


def refused(archive: str, name: str, why: str) -> TaskError:
    return TaskError("executor_error", "%s: %r %s; nothing was unpacked" % (os.path.basename(archive), name, why))


def checked(archive: str, tar: tarfile.TarFile) -> List[Tuple[str, tarfile.TarInfo]]:
    """The members with cleaned names; TaskError for an archive that isn't only files, folders and inner links."""
    members = []
    for member in tar:
        name = posixpath.normpath(member.name)
        if name.startswith(("/", "../")) or name == "..":
            raise refused(archive, member.name, "would be written outside the archive's folder")
        if not (member.isfile() or member.isdir() or member.issym() or member.islnk()):
            raise refused(archive, member.name, "is a device, a pipe or a socket")
        if member.issym() or member.islnk():
            base = posixpath.dirname(name) if member.issym() else ""
            target = posixpath.normpath(posixpath.join(base, member.linkname))
            if member.linkname.startswith("/") or target == ".." or target.startswith("../"):
                raise refused(archive, member.name, "is a link to a place outside the archive")
        members.append((name, member))
    return members


def layout(members: List[Tuple[str, tarfile.TarInfo]]) -> Tuple[str, List[Tuple[str, tarfile.TarInfo]]]:
    """The top-level entry that becomes `path` (empty: the whole content does), and the members but the root."""
    inner = [(name, member) for name, member in members if name != "."]
    tops = {name.split("/")[0] for name, _ in inner}
    dotted = any(member.name.startswith("./") or member.name == "." for _, member in members)
    return (tops.pop() if len(tops) == 1 and not dotted else ""), inner


def unpack(archive: str, target: str, owner: Owner = None) -> None:
    """Unpack beside `target`, then put it in place of what is there."""
    staging = "%s.unpacking" % target.rstrip("/")
    clear(staging)
    try:
        os.makedirs(staging)
        with open_archive(archive) as tar:
            top, members = layout(checked(archive, tar))
            extract(tar, members, staging, owner)
        clear(target)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.rename(os.path.join(staging, top) if top else staging, target)
    except OSError as problem:
        raise TaskError("executor_error", "files: %s: %s" % (target, problem.strerror or problem)) from None
    finally:
        clear(staging)


def open_archive(archive: str) -> tarfile.TarFile:
    try:
        return tarfile.open(archive, "r:*")
    except tarfile.TarError as problem:
        raise TaskError("executor_error", "files: the archive can't be read: %s" % problem) from None


def extract(tar: tarfile.TarFile, members: List[Tuple[str, tarfile.TarInfo]], root: str, owner: Owner) -> None:
    for name, member in members:
        place = os.path.join(root, name)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        if os.path.realpath(os.path.dirname(place)) != os.path.dirname(os.path.realpath(root) + "/" + name):
            raise refused(tar.name if isinstance(tar.name, str) else "archive", member.name, "goes through a link")
        if member.isdir():
            os.makedirs(place, exist_ok=True)
            os.chmod(place, 0o755)
        elif member.issym():
            clear(place)
            os.symlink(member.linkname, place)
        elif member.islnk():
            clear(place)
            os.link(os.path.join(root, posixpath.normpath(member.linkname)), place, follow_symlinks=False)
        else:
            clear(place)
            source = tar.extractfile(member)
            assert source is not None  # `checked` let regular files through only
            with source, open(place, "wb") as file:
                shutil.copyfileobj(source, file)
            os.chmod(place, (member.mode & 0o777) | 0o600)
        if owner:
            os.chown(place, owner[0], owner[1], follow_symlinks=False)


def clear(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def repack(archive: str, target: str, out: BinaryIO) -> None:
    """The archive as a tar stream that, unpacked at `/`, puts it at `target`, owned by root: for a container."""
    with open_archive(archive) as tar, tarfile.open(fileobj=out, mode="w|", format=tarfile.GNU_FORMAT) as packed:
        top, members = layout(checked(archive, tar))
        prefix = target.strip("/")
        for name, member in members:
            inner = name[len(top) :].strip("/") if top else name
            member.name = posixpath.join(prefix, inner) if inner else prefix
            if member.islnk():
                link = posixpath.normpath(member.linkname)
                member.linkname = posixpath.join(prefix, link[len(top) :].strip("/") if top else link)
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            packed.addfile(member, tar.extractfile(member) if member.isfile() else None)
