"""A folder for each task with all that the agent and its supervisor know, so that either may be killed and restarted.

spec.json      the task as the server wants it, with the runtime and GPUs chosen here     (agent writes)
access.json    which keys may log in, and the server's id for this set of keys            (agent writes)
request.json   `stop` with its grace, or `abort`                                          (agent writes)
state.json     preparing, pulling, running or exited, with its details                    (supervisor writes)
log/           the output (see `spool`)                                                   (supervisor writes)
lock           held by the living supervisor; unlike a pid file, a lock can't be left behind
wake           a pipe on which the agent notifies the supervisor of a new request.json
home/          the task's home and working directory unless the spec names others
files/         archives, and the code of a repository, fetched before the start
repository-credentials   deleted when the repository is cloned                         (agent writes)
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, cast

from .lazy import LazyModule

if TYPE_CHECKING:
    import shutil
    from typing import TypedDict

    from ...contract.agent import Task, TaskRepo

    class StoredRepo(TaskRepo):
        """Without its credentials, which have a file of their own."""

        secret: bool  # was there one?

    class LaunchedTask(Task):
        gpu_vendor: str
        gpu_buses: List[str]  # of the chosen GPUs

    class Launch(TypedDict, total=False):
        """spec.json. Tasks of agents of earlier releases lack what came later."""

        runtime: str
        socket: str
        users: str
        gpus: List[str]
        host_port: Optional[int]
        spec: LaunchedTask

else:
    shutil = LazyModule("shutil")

FINAL = "exited"
FULL = (errno.ENOSPC, errno.EDQUOT)
SLOT_BYTES = 4000
KEYS_BYTES = 16000  # of access.json: it must be possible to revoke keys even if the disk is full


def write_atomic(path: str, text: str, mode: int = 0o600, durable: bool = False) -> None:
    """Replace a file's text in one step: readers see the old text or the new one. A full disk leaves the old one."""
    partial = "%s.%d" % (path, os.getpid())
    fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        try:
            data = text.encode("utf-8")
            while data:
                data = data[os.write(fd, data) :]
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(partial, path)
    except OSError:
        if os.path.exists(partial):
            os.unlink(partial)
        raise


def write_slot(path: str, value: Dict[str, Any], room: int = SLOT_BYTES) -> None:
    """Write a small record that can be replaced even on a full disk, where it is overwritten in place."""
    text = json.dumps(value).ljust(room)
    try:
        write_atomic(path, text)
    except OSError as problem:
        if problem.errno not in FULL or not os.path.exists(path) or os.path.getsize(path) < len(text):
            raise
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(fd, text.encode("ascii"), 0)
        finally:
            os.close(fd)


def read_text(path: str) -> Optional[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None


def read_json(path: str) -> Optional[Dict[str, Any]]:
    text = read_text(path)
    if not text:
        return None
    try:
        value = json.loads(text)
    except ValueError:  # read while it was overwritten in place, as happens on a full disk: read it again
        value = json.loads(read_text(path) or "null")
    return value if isinstance(value, dict) else None


def make_pipe(path: str) -> int:
    """A named pipe, opened for reading and writing so that it never reads as ended."""
    try:
        os.mkfifo(path, 0o600)
    except FileExistsError:
        if not stat.S_ISFIFO(os.stat(path).st_mode):
            os.unlink(path)
            os.mkfifo(path, 0o600)
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


def notify(path: str, line: str) -> None:
    """Wake the reader of the pipe at `path`. Does nothing without a reader or on a full pipe: the change is on disk."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as problem:
        if problem.errno in (errno.ENXIO, errno.ENOENT):
            return
        raise
    try:
        os.write(fd, line.encode("ascii") + b"\n")
    except (BlockingIOError, BrokenPipeError):
        return
    finally:
        os.close(fd)


class TaskFolder:
    def __init__(self, data: str, task: str) -> None:
        self.data, self.task = data, task
        self.path = os.path.join(data, "tasks", task)
        self.log = os.path.join(self.path, "log")
        self.home = os.path.join(self.path, "home")
        self.files = os.path.join(self.path, "files")
        self.wake = os.path.join(self.path, "wake")

    def launch(self) -> Launch:
        """Empty for a task that was removed, or whose creation isn't finished."""
        return cast("Launch", read_json(os.path.join(self.path, "spec.json")) or {})

    def create(self, launch: Launch) -> None:
        """Write the spec last: a folder without one is an unfinished creation, and the server repeats its order."""
        os.makedirs(self.path, mode=0o711, exist_ok=True)
        self.write_state({})
        write_slot(os.path.join(self.path, "request.json"), {})
        spec = launch.get("spec")
        if spec and "access" in spec:
            self.write_access(spec["access"], spec.get("authorized_keys") or [])
        write_atomic(os.path.join(self.path, "spec.json"), json.dumps(launch))

    def state(self) -> Dict[str, Any]:
        return read_json(os.path.join(self.path, "state.json")) or {}

    def over(self) -> bool:
        """Has the task ended, with nothing left mounted?"""
        state = self.state()
        return state.get("state") == FINAL and not state.get("held")

    def write_state(self, state: Dict[str, Any]) -> None:
        write_slot(os.path.join(self.path, "state.json"), state)

    def request(self) -> Dict[str, Any]:
        return read_json(os.path.join(self.path, "request.json")) or {}

    def write_request(self, request: Dict[str, Any]) -> None:
        write_slot(os.path.join(self.path, "request.json"), request)
        notify(self.wake, "request")

    def access(self) -> Dict[str, Any]:
        """`access` and `keys`; empty for a task that an agent created before keys could change."""
        return read_json(os.path.join(self.path, "access.json")) or {}

    def write_access(self, access: str, keys: List[str]) -> None:
        write_slot(os.path.join(self.path, "access.json"), {"access": access, "keys": keys}, KEYS_BYTES)

    def authorized_keys(self) -> List[str]:
        """The public keys that may log in now."""
        access = self.access()
        return access["keys"] if access else self.launch()["spec"].get("authorized_keys") or []

    def notify_agent(self) -> None:
        notify(os.path.join(self.data, "wake"), self.task)

    def take_lock(self) -> Optional[int]:
        """Take the supervisor's lock, which is held while the descriptor is open; None if a supervisor has it."""
        return take_lock(os.path.join(self.path, "lock"))

    def supervised(self) -> bool:
        held = self.take_lock()
        if held is None:
            return True
        os.close(held)
        return False

    def delete(self) -> None:
        """Move the folder to the trash in one step, then delete it: a half-deleted task must not look alive."""
        trash = os.path.join(self.data, "trash", "%s.%d" % (self.task, os.getpid()))
        os.makedirs(os.path.dirname(trash), exist_ok=True)
        try:
            os.rename(self.path, trash)
        except FileNotFoundError:
            return
        delete_tree(trash)


def take_lock(path: str) -> Optional[int]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def delete_tree(path: str) -> None:
    """Delete a folder even if the task made parts of it read-only. Root needs no other modes, and changes none, because
    the task's user might put a link in a file's place meanwhile."""

    def make_writable(function: Any, name: str, _: Any) -> None:
        if function in (os.scandir, os.listdir, os.open, os.lstat, os.rmdir, os.unlink) and not os.path.islink(name):
            os.chmod(os.path.dirname(name), 0o700)
            if os.path.isdir(name):
                os.chmod(name, 0o700)
                shutil.rmtree(name, ignore_errors=True)
            elif os.path.exists(name):
                os.unlink(name)

    root = os.geteuid() == 0
    if os.path.lexists(path):
        shutil.rmtree(path, ignore_errors=root, onerror=None if root else make_writable)


def tidy(data: str, program: Callable[[], str]) -> None:
    """Delete what earlier agents left: folders in the trash, and programs that no supervisor runs any more; while there
    are tasks, a supervisor may still load modules from one. `program` finds this agent's own folder, which is slow."""
    delete_tree(os.path.join(data, "trash"))
    for name in [] if list_tasks(data) else os.listdir(data):
        path = os.path.join(data, name)
        if name.startswith("program-") and path != program():
            delete_tree(path)


def list_tasks(data: str) -> List[str]:
    try:
        return sorted(os.listdir(os.path.join(data, "tasks")))
    except FileNotFoundError:
        return []
