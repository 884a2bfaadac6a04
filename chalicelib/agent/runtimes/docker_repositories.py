"""A task's repository in a container that hasn't started: cloned on the host (`repositories`), packed, and put there as
the property of the container's user.

The packed clone stays in the task's folder until the container has it, so an engine that restarts meanwhile costs no
second clone; and git's credentials are erased as soon as it is packed.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import tarfile
import tempfile
from typing import Any, BinaryIO, Callable, Dict, Iterator, List, Optional, Tuple, cast
from urllib.parse import quote

from ..kernel import process_tree
from ..kernel.task_runtime import TaskContext, TaskError
from ..kernel.tasks import delete_tree
from . import files, name_service, repositories
from .accounts import account_of, delete_outside, make_home, outside
from .docker_client import DockerClient, DockerError
from .users import Users

LIST_MOST = 1 << 20  # bytes of a container's list of users
Put = Callable[[BinaryIO], None]


def bring(docker: DockerClient, put: Put, context: TaskContext, name: str, target: str, user: str, pool: Users) -> None:
    """`user` is who runs in the container; `pool` has the users that may run git on the host."""
    repo = context.spec.get("repo")
    if not repo:
        return
    if not repositories.wanted(repo, target, taken(docker, name, target)):
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
    """The home that a job names instead of its user's, if the image doesn't have it."""
    if not home or docker.holds(name, home):
        return
    with tempfile.TemporaryFile() as packed:
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar:
            member = tarfile.TarInfo(home.strip("/"))
            member.type, member.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(owned(member, owner_of(docker, name, user)))
        put(packed)


def pack(
    context: TaskContext, repo: Dict[str, Any], target: str, owner: Tuple[int, int], pool: Users, out: BinaryIO
) -> None:
    if not repo.get("url"):
        files.repack(repositories.code_path(context.folder), target, True, out, owner, folder=True)
        return
    account = account_of({}, pool, context.folder.task)
    try:
        _, scratch = make_home(context.folder, account)
        seen = name_service.lists_for(context.folder, account, scratch, "/bin/sh")
        tree = repositories.clone(context, account, scratch, seen)
        if account.held is not None:
            account.held.clear()  # nothing runs that could change it now
        with tarfile.open(fileobj=out, mode="w|", format=tarfile.GNU_FORMAT) as packed:
            packed.add(tree, target.strip("/") or ".", filter=lambda member: owned(member, owner))
        delete_tree(os.path.dirname(tree))
    finally:
        if account.held is not None:
            account.held.release()
            delete_tree(outside(context.folder.task))


def remove(task: str) -> None:
    """What a killed supervisor's clone left."""
    process_tree.send(process_tree.marked(task), signal.SIGKILL)
    delete_outside(task)


def owned(member: tarfile.TarInfo, owner: Tuple[int, int]) -> tarfile.TarInfo:
    member.uid, member.gid = owner
    member.uname = member.gname = ""
    return member


# What the container has -----------------------------------------------------------------------------------------------


def taken(docker: DockerClient, name: str, target: str) -> bool:
    """Is there more at the target than an empty folder?"""
    try:
        with archive_of(docker, name, target.rstrip("/") + "/.") as tar:
            members = iter(tar)
            next(members, None)  # the folder itself
            return any(repositories.NOT_THERE not in member.name.split("/") for member in members)
    except DockerError as problem:
        if problem.status == 404:
            return False
        if problem.status == 0:
            raise
        raise TaskError("executor_error", "repository: %s: %s" % (target, problem.message)) from None


def owner_of(docker: DockerClient, name: str, user: str) -> Tuple[int, int]:
    """The ids of a user as the container's own lists have them; a number needs no entry."""
    wanted, _, group = user.partition(":")
    uid, gid = 0, 0
    if wanted not in ("", "0", "root"):
        entry = listed(docker, name, "/etc/passwd", wanted)
        if entry is None and not wanted.isdecimal():
            raise TaskError("creating_container_error", "user %s: the image has no such user" % wanted)
        uid, gid = (int(entry[2]), int(entry[3] or 0)) if entry else (int(wanted), 0)
    if group and not group.isdecimal():
        found = listed(docker, name, "/etc/group", group)
        if found is None:
            raise TaskError("creating_container_error", "group %s: the image has no such group" % group)
        return uid, int(found[2])
    return uid, int(group) if group else gid


def listed(docker: DockerClient, name: str, path: str, wanted: str) -> Optional[List[str]]:
    """The entry with this name, or this number, in one of the container's lists. Broken ones are skipped."""
    for line in text_of(docker, name, path).splitlines():
        fields = line.split(":")
        if len(fields) < 4 or fields[2 if wanted.isdecimal() else 0] != wanted:
            continue
        group = fields[3] if path == "/etc/passwd" else ""  # engines take none as root's
        if _is_id(fields[2]) and _is_id(group or "0"):
            return fields
    return None


def _is_id(text: str) -> bool:
    return re.match(r"[0-9]{1,10}$", text) is not None and int(text) < 1 << 32


def text_of(docker: DockerClient, name: str, path: str) -> str:
    """A file of the container; empty if it has no such file."""
    return file_of(docker, name, path)[1].decode("utf-8", "replace")


def file_of(docker: DockerClient, name: str, path: str) -> Tuple[Optional[tarfile.TarInfo], bytes]:
    """What lies at a path of the container, and the beginning of its content if it is a file."""
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
    """What lies at a path of the container, read only as far as the caller goes on."""
    sock, rest = docker.stream("GET", "/containers/%s/archive" % quote(name), {"path": path})
    with contextlib.closing(sock), tarfile.open(fileobj=cast(Any, BodyReader(sock, rest)), mode="r|") as tar:
        yield tar


class BodyReader:
    """A response's body as a file: what came with its head, then the rest of the connection."""

    def __init__(self, sock: socket.socket, rest: bytes) -> None:
        self._sock, self._rest = sock, rest

    def read(self, size: int) -> bytes:
        found, self._rest = self._rest[:size], self._rest[size:]
        return found or self._sock.recv(size)
