"""A run's files: archives that are fetched with the agent's credential and unpacked without trusting their contents.

An archive has one top-level entry, the file or folder that the user named, and that entry becomes `path`. An archive
whose names begin with `./`, or that has several entries, is the content of the folder `path`. If `path` itself names a
folder to put things into (`.`, `~`, `dir/`), a single file goes into it. Files replace what is there; folders are
merged, because `path` may well be a folder with other contents. `archives` checks what an archive contains.
"""

from __future__ import annotations

import io
import os
import posixpath
import shutil
import tarfile
from contextlib import nullcontext
from typing import TYPE_CHECKING, BinaryIO, Callable, ContextManager, Dict, List, Tuple

from ..kernel.task_runtime import TaskError
from .archives import checked_members, open_archive

if TYPE_CHECKING:
    from ..kernel.tasks import LaunchedTask

Acting = Callable[[], ContextManager[None]]

HOSTFILE = "dstack/mpi/hostfile"  # below `/` in a container; without one, in a hidden folder of the home


def with_places(spec: LaunchedTask, working_dir: str, home: str, hostfile: str, venv: str = "") -> Dict[str, str]:
    """Variables with paths that only the task's machine knows; the task's own variables override them."""
    code = code_dir(spec, working_dir, home)
    places = {"DSTACK_WORKING_DIR": working_dir, "DSTACK_REPO_DIR": code, "DSTACK_MPI_HOSTFILE": hostfile}
    if venv:
        places["DSTACK_VENV_DIR"] = venv
    return dict(places, **{name: str(value) for name, value in (spec.get("env") or {}).items()})


def resolve(path: str, working_dir: str, home: str) -> str:
    """The absolute path for a user's path: `~` is the home, a relative path is below the working directory."""
    if path == "~" or path.startswith("~/"):
        return posixpath.normpath(posixpath.join(home, path[2:]))
    return posixpath.normpath(posixpath.join(working_dir, path))


def code_dir(spec: LaunchedTask, working_dir: str, home: str) -> str:
    """The folder with the task's code: its repository, or the working directory."""
    repo = spec.get("repo")
    return resolve(repo.get("path") or ".", working_dir, home) if repo else working_dir


def layout(members: List[Tuple[str, tarfile.TarInfo]], into: bool) -> List[Tuple[str, tarfile.TarInfo]]:
    """The members with their path below the target; an empty path is the target itself."""
    inner = [(name, member) for name, member in members if name != "."]
    tops = {name.split("/")[0] for name, _ in inner}
    dotted = any(member.name.startswith("./") or member.name == "." for _, member in members)
    if len(tops) != 1 or dotted or (into and len(inner) == 1 and not inner[0][1].isdir() and "/" not in inner[0][0]):
        return inner
    top = tops.pop()
    for _, member in inner:
        if member.islnk():
            member.linkname = posixpath.normpath(member.linkname)[len(top) :].strip("/")
    return [(name[len(top) :].strip("/"), member) for name, member in inner]


def is_place(path: str) -> bool:
    """Does the path, as the user wrote it, name a folder to put things into?"""
    return path.endswith("/") or posixpath.basename(path) in ("", ".", "..", "~")


def bring(spec: LaunchedTask, archives: str, working_dir: str, home: str, acting: Acting) -> None:
    """The task's files, beside a process whose rights are `acting`. `archives`: the folder with those that were
    fetched, by number."""
    for number, mapping in enumerate(spec.get("files") or ()):
        target = resolve(mapping["path"], working_dir, home)
        with acting():
            into = is_place(mapping["path"]) or os.path.isdir(target)
        unpack(os.path.join(archives, str(number)), target, into, acting)


def unpack(archive: str, target: str, into: bool, acting: Acting = nullcontext) -> None:
    """Unpack an archive with the rights of `acting`; the archive itself is read with the agent's."""
    try:
        with open_archive(archive) as tar:
            members = checked_members(archive, tar)
            with acting():
                os.makedirs(os.path.dirname(target), exist_ok=True)
                extract(tar, layout(members, into), target)
    except OSError as problem:
        raise TaskError("executor_error", "files: %s: %s" % (target, problem.strerror or problem)) from None


def extract(tar: tarfile.TarFile, members: List[Tuple[str, tarfile.TarInfo]], root: str) -> None:
    real = os.path.realpath(root)
    for name, member in members:
        place = os.path.join(real, name) if name else real
        if name:
            os.makedirs(os.path.dirname(place), exist_ok=True)
        if name and os.path.realpath(os.path.dirname(place)) != os.path.dirname(place):
            raise TaskError("executor_error", "files: %s: %r would be written through a link" % (root, member.name))
        if member.isdir():
            if not os.path.isdir(place) or os.path.islink(place):
                clear(place)
                os.makedirs(place)
                os.chmod(place, 0o755)
        else:
            clear(place)
            put(tar, member, place, real)


def put(tar: tarfile.TarFile, member: tarfile.TarInfo, place: str, root: str) -> None:
    if member.issym():
        os.symlink(member.linkname, place)
    elif member.islnk():
        os.link(os.path.join(root, posixpath.normpath(member.linkname)), place, follow_symlinks=False)
    else:
        source = tar.extractfile(member)
        assert source is not None  # `checked_members` lets only regular files through
        with source, open(place, "wb") as file:
            shutil.copyfileobj(source, file)
        os.chmod(place, (member.mode & 0o777) | 0o600)


def clear(path: str) -> None:
    """Make room for a file. A folder in its place isn't deleted, because of what may be in it."""
    if os.path.lexists(path):
        os.unlink(path)


def pack_texts(texts: Dict[str, Tuple[str, int]], out: BinaryIO) -> None:
    """Write a tar stream that, unpacked at `/`, puts each text at its path with its mode."""
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.GNU_FORMAT) as packed:
        for path, (text, mode) in texts.items():
            data = text.encode()
            member = tarfile.TarInfo(path.strip("/"))
            member.size, member.mode = len(data), mode
            packed.addfile(member, io.BytesIO(data))


def repack(
    archive: str, target: str, into: bool, out: BinaryIO, owner: Tuple[int, int] = (0, 0), folder: bool = False
) -> None:
    """Write an archive as a tar stream for a container: unpacked at `/`, it puts the archive at `target`, with this
    owner. `folder`: the target itself gets that owner, too."""
    with open_archive(archive) as tar, tarfile.open(fileobj=out, mode="w|", format=tarfile.GNU_FORMAT) as packed:
        prefix = target.strip("/")
        if folder and prefix:
            top = tarfile.TarInfo(prefix)
            top.type, top.mode, (top.uid, top.gid) = tarfile.DIRTYPE, 0o755, owner
            packed.addfile(top)
        for name, member in layout(checked_members(archive, tar), into):
            source = tar.extractfile(member) if member.isfile() else None
            member.name = posixpath.join(prefix, name) if name else prefix
            if member.islnk():
                member.linkname = posixpath.join(prefix, posixpath.normpath(member.linkname))
            member.uid, member.gid = owner
            member.uname = member.gname = ""
            packed.addfile(member, source)
