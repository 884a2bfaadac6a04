"""A task's repository in a container that hasn't started: cloned on the host (`repositories`), packed, and unpacked
there with the container's user as its owner.

The packed clone stays in the task's folder until the container has it, so a restart of the engine doesn't cause a
second clone. git's credentials are erased as soon as the clone is packed.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import tarfile
import tempfile
from typing import TYPE_CHECKING, Any, BinaryIO, Callable, Iterator, List, Optional, Tuple, cast
from urllib.parse import quote

from ..kernel import process_tree
from ..kernel.task_runtime import TaskContext, TaskError
from ..kernel.tasks import delete_tree
from . import files, name_service, repositories
from .accounts import account_of, delete_outside, make_home, outside
from .docker_client import DockerClient, DockerError
from .users import Users

if TYPE_CHECKING:
    from ...contract.agent import TaskRepo
    from ..kernel.tasks import LaunchedTask

LIST_MOST = 1 << 20  # bytes of a container's list of users
Put = Callable[[BinaryIO], None]


def bring(docker: DockerClient, put: Put, context: TaskContext, name: str, target: str, user: str, pool: Users) -> None:
    """Put the task's repository into a container. `user` is the container's; git runs as one of `pool` on the host."""
    repo = context.spec.get("repo")
    if not repo:
        return
    if not repositories.must_bring(repo, target, is_occupied(docker, name, target)):
        repositories.erase(context.folder)
        return
    owner = owner_of(docker, name, user)
    place = os.path.join(context.folder.path, "repository.tar")
    try:
        if not os.path.exists(place):
            with open(place + ".part", "wb") as out:
                pack(context, repo, target, owner, pool, out)
            os.rename(place + ".part", place)
        repositories.erase(context.folder)
        with open(place, "rb") as packed:
            packed.seek(0, os.SEEK_END)
            put(packed)
        os.unlink(place)
    except OSError as problem:
        raise repositories.unwritable(target, problem) from None


def add_home(docker: DockerClient, put: Put, name: str, home: Optional[str], user: str) -> None:
    """Add the home that a job names to the container, if the image doesn't have it."""
    if not home or docker.holds(name, home):
        return
    with tempfile.TemporaryFile() as packed:
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar:
            member = tarfile.TarInfo(home.strip("/"))
            member.type, member.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(with_owner(member, owner_of(docker, name, user)))
        put(packed)


def pack(context: TaskContext, repo: TaskRepo, target: str, owner: Tuple[int, int], pool: Users, out: BinaryIO) -> None:
    if not repo.get("url"):
        files.repack(repositories.code_path(context.folder), target, True, out, owner, folder=True)
        return
    account = account_of(cast("LaunchedTask", {}), pool, context.folder.task)
    try:
        _, scratch = make_home(context.folder, account)
        bound_files = name_service.bound_files_for(context.folder, account, scratch, "/bin/sh")
        tree = repositories.clone(context, account, scratch, bound_files)
        if account.held is not None:
            account.held.clear()  # no process is left that could change the clone
        with tarfile.open(fileobj=out, mode="w|", format=tarfile.GNU_FORMAT) as packed:
            packed.add(tree, target.strip("/") or ".", filter=lambda member: with_owner(member, owner))
        delete_tree(os.path.dirname(tree))
    finally:
        if account.held is not None:
            account.held.release()
            delete_tree(outside(context.folder.task))


def remove(task: str) -> None:
    """Delete what a killed supervisor's clone left."""
    process_tree.send(process_tree.marked(task), signal.SIGKILL)
    delete_outside(task)


def with_owner(member: tarfile.TarInfo, owner: Tuple[int, int]) -> tarfile.TarInfo:
    member.uid, member.gid = owner
    member.uname = member.gname = ""
    return member


# The container's files ------------------------------------------------------------------------------------------------


def is_occupied(docker: DockerClient, name: str, target: str) -> bool:
    """Is the target anything but missing or an empty folder?"""
    try:
        with archive_of(docker, name, target.rstrip("/") + "/.") as tar:
            members = iter(tar)
            next(members, None)  # the folder itself
            return any(repositories.LOST_AND_FOUND not in member.name.split("/") for member in members)
    except DockerError as problem:
        if problem.status == 404:
            return False
        if problem.status == 0:
            raise
        raise TaskError("executor_error", "repository: %s: %s" % (target, problem.message)) from None


def owner_of(docker: DockerClient, name: str, user: str) -> Tuple[int, int]:
    """The ids of a user and its group from the container's own lists; a number needs no entry."""
    name_or_id, _, group = user.partition(":")
    uid, gid = 0, 0
    if name_or_id not in ("", "0", "root"):
        entry = find_entry(docker, name, "/etc/passwd", name_or_id)
        if entry is None and not name_or_id.isdecimal():
            raise TaskError("creating_container_error", "user %s: the image has no such user" % name_or_id)
        uid, gid = (int(entry[2]), int(entry[3] or 0)) if entry else (int(name_or_id), 0)
    if group and not group.isdecimal():
        found = find_entry(docker, name, "/etc/group", group)
        if found is None:
            raise TaskError("creating_container_error", "group %s: the image has no such group" % group)
        return uid, int(found[2])
    return uid, int(group) if group else gid


def find_entry(docker: DockerClient, name: str, path: str, name_or_id: str) -> Optional[List[str]]:
    """The entry with this name or number in one of the container's lists. Malformed entries are skipped."""
    for line in text_of(docker, name, path).splitlines():
        fields = line.split(":")
        if len(fields) < 4 or fields[2 if name_or_id.isdecimal() else 0] != name_or_id:
            continue
        group = fields[3] if path == "/etc/passwd" else ""  # empty: root's, as engines read it
        if _is_id(fields[2]) and _is_id(group or "0"):
            return fields
    return None


def _is_id(text: str) -> bool:
    return re.match(r"[0-9]{1,10}$", text) is not None and int(text) < 1 << 32


def text_of(docker: DockerClient, name: str, path: str) -> str:
    """The text of a container's file; empty if there is no such file."""
    return file_of(docker, name, path)[1].decode("utf-8", "replace")


def file_of(docker: DockerClient, name: str, path: str) -> Tuple[Optional[tarfile.TarInfo], bytes]:
    """The tar member for a path of the container (None: nothing is there), and the beginning of a file's content."""
    try:
        with archive_of(docker, name, path) as tar:
            member = tar.next()
            source = tar.extractfile(member) if member is not None and member.isfile() else None
            return member, b"" if source is None else source.read(LIST_MOST)
    except DockerError as problem:
        if problem.status != 404:
            raise
        return None, b""


@contextlib.contextmanager
def archive_of(docker: DockerClient, name: str, path: str) -> Iterator[tarfile.TarFile]:
    """A path of the container as a tar stream, of which only as much is read as the caller reads."""
    sock, first = docker.stream("GET", "/containers/%s/archive" % quote(name), {"path": path})
    with contextlib.closing(sock), tarfile.open(fileobj=cast(Any, BodyReader(sock, first)), mode="r|") as tar:
        yield tar


class BodyReader:
    """A response's body as a file: the bytes that came with its head, then those of the connection."""

    def __init__(self, sock: socket.socket, first: bytes) -> None:
        self._sock, self._first = sock, first

    def read(self, size: int) -> bytes:
        found, self._first = self._first[:size], self._first[size:]
        return found or self._sock.recv(size)
