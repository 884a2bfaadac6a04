"""A separate user for each task: numeric ids without an account, each held by one living task at a time.

A task holds an id by a lock on a file, in one folder for the machine, which several agents may share. The lock ends
with the supervisor, even if that is killed; so a new holder first ends what the previous one left. The file lists the
holder's folders, which are closed before the id is reused, because the next holder could read them.
"""

from __future__ import annotations

import fcntl
import functools
import json
import os
import signal
import time
import zlib
from typing import TYPE_CHECKING, List, Optional

from ..kernel.lazy import LazyModule
from ..kernel.records import record
from ..kernel.task_runtime import NO_ISOLATION, OWN_USER, TaskError
from ..kernel.tasks import delete_tree

if TYPE_CHECKING:
    import shutil
    import tempfile

    from ..kernel import process_tree
else:
    shutil = LazyModule("shutil")
    tempfile = LazyModule("tempfile")
    process_tree = LazyModule(".kernel.process_tree")

DEFAULT = "61000-61999"
TRUSTING = "agent"  # instead of a range: tasks run as the agent's own user, or as the one that they name
LEAST = 1000  # ids below are the system's own
MOST = (1 << 31) - 1
CLEAR_SECONDS = 5.0  # for killed processes to end
SHARED_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")  # where every user may leave files


def id_range(text: str) -> range:
    """Parse a range such as `61000-61999`. Raises ValueError with a message for the user."""
    first, _, last = text.partition("-")
    if not (text.isascii() and first.isdigit() and last.isdigit() and LEAST <= int(first) <= int(last) <= MOST):
        raise ValueError("%r isn't a range of user ids from %d on, such as %s" % (text, LEAST, DEFAULT))
    return range(int(first), int(last) + 1)


def lock_folder() -> str:
    return "/run/dstack-users" if os.path.isdir("/run") else os.path.join(tempfile.gettempdir(), "dstack-users")


@record
class HeldId:
    """An id that a task holds until `release`."""

    uid: int
    lock: int

    def set_folders(self, folders: List[str]) -> None:
        os.ftruncate(self.lock, 0)
        os.pwrite(self.lock, json.dumps(folders).encode(), 0)

    def folders(self) -> List[str]:
        text = os.pread(self.lock, 1 << 16, 0)
        return list(json.loads(text)) if text else []

    def inherit(self) -> bool:
        """Clear what a killed holder left, and delete its folders. False if one of its processes can't be ended."""
        folders = self.folders()
        if not self.clear():
            return False
        for folder in folders:
            delete_tree(folder)
        return True

    def clear(self) -> bool:
        """End the user's processes, close its folders, delete its files in shared folders. False if a process can't be
        ended."""
        until = time.monotonic() + CLEAR_SECONDS
        while process_tree.of_user(self.uid):
            if time.monotonic() > until:
                return False
            kill_user(self.uid)
            time.sleep(0.005)
        for folder in self.folders():
            close_folder(folder)
        for place in SHARED_FOLDERS:
            sweep(place, self.uid)
        self.set_folders([])
        return True

    def release(self) -> None:
        self.clear()
        os.close(self.lock)


class Users:
    def __init__(self, id_text: str = "", locks: str = "") -> None:
        self._id_text = id_text or DEFAULT
        self._locks = locks or lock_folder()
        self.ids = range(0) if id_text == TRUSTING else id_range(self._id_text)

    @property
    def isolation(self) -> str:
        return OWN_USER if self.ids and os.getuid() == 0 and can_become(self.ids[0]) else NO_ISOLATION

    def take(self, task: str) -> HeldId:
        """A free id, cleared of what its previous holder left. Raises TaskError if none is free."""
        start = zlib.crc32(task.encode()) % len(self.ids)  # spread out, so that an id isn't reused soon
        for number in range(len(self.ids)):
            held = self.hold(self.ids[(start + number) % len(self.ids)])
            if held is not None and held.inherit():
                return held
            if held is not None:
                os.close(held.lock)
        raise TaskError("executor_error", "the user ids %s of this machine are all in use" % self._id_text)

    def hold(self, uid: int) -> Optional[HeldId]:
        self._make_folder()
        lock = os.open(os.path.join(self._locks, str(uid)), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        return HeldId(uid, lock)

    def _make_folder(self) -> None:
        os.makedirs(self._locks, mode=0o700, exist_ok=True)
        found = os.lstat(self._locks)
        if found.st_uid != os.getuid():
            raise TaskError("executor_error", "%s: it belongs to user %d; delete it" % (self._locks, found.st_uid))


@functools.lru_cache(maxsize=None)
def can_become(uid: int) -> bool:
    """Can this process take on a user id? Root may, except in some user namespaces. Tried once, before any thread."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            _take_ids(uid, uid, [])
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


def become(uid: int, gid: int, groups: List[int]) -> None:
    """Take on a user's ids, irrevocably, for this process and its children."""
    prctl = process_tree.prctl  # imported while the sources are readable
    _take_ids(uid, gid, groups)
    prctl(process_tree.PR_SET_NO_NEW_PRIVS)


def _take_ids(uid: int, gid: int, groups: List[int]) -> None:
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def kill_user(uid: int) -> None:
    """Kill every process of a user at once, as that user: a process that keeps forking can't escape that."""
    child = os.fork()
    if child == 0:
        try:
            _take_ids(uid, uid, [])
            if uid and os.getresuid() == (uid, uid, uid):
                os.kill(-1, signal.SIGKILL)
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def close_folder(path: str) -> None:
    """Give a folder to root only. Its parent is root's, so no user can have put a link in its place."""
    try:
        os.chown(path, 0, 0, follow_symlinks=False)
        os.chmod(path, 0o700)
    except FileNotFoundError:
        return  # deleted with its task


def sweep(place: str, uid: int) -> None:
    try:
        entries = list(os.scandir(place))
    except OSError:
        return  # the machine has no such folder
    for entry in entries:
        try:
            if entry.stat(follow_symlinks=False).st_uid != uid:
                continue
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                os.unlink(entry.path)
        except FileNotFoundError:
            continue
