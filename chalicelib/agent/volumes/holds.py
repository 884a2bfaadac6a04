"""Records of the disks that this machine's tasks have mounted, and of the mount points created for them.

A disk is mounted once and shared by the tasks that use it, even those of several agents. Its users can't be counted in
memory, because any process may be killed; so each task has a file, its hold, that lists what it may have mounted. An
entry is written before something is mounted and deleted after it was unmounted. A restart of the machine, which ends
its mounts, also empties /run, where the files are.

The folder is a shared mount, so that unmounting here also unmounts in namespaces that are slaves of the machine's. A
namespace created meanwhile would otherwise keep the disk in use.

A lock for each disk lets one task at a time inspect, format, mount and unmount it. The kernel releases it with its last
holder. A formatting program inherits it, so other tasks wait for its end.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import time
from typing import Any, Callable, Dict, Iterator, List, Optional

from ..kernel import mountinfo, namespaces
from ..kernel.tasks import TaskFolder, read_json, take_lock, write_slot
from .signatures import UnusableDisk

RETRY_EVERY = 0.5  # seconds between tries for a lock: formatting a disk takes seconds
Hold = Dict[str, Any]  # {data, volumes: {id: {device, name, node}}, made: [folders], pinned: [points]}


class Holds:
    def __init__(self, root: str = namespaces.VOLUMES) -> None:
        self.root = root
        self._holds, self._locks, self._points = (os.path.join(root, name) for name in ("holds", "locks", "disks"))

    def begin(self, task: str, data: str) -> None:
        """Write the task's hold, before it mounts anything. Raises UnusableDisk."""
        with self._exclusively():
            for place in (self.root, self._holds, self._locks, self._points):
                try:
                    os.mkdir(place, 0o700)
                except FileExistsError:
                    found = os.lstat(place)
                    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                        raise UnusableDisk("%s was made by user %d; delete it" % (place, found.st_uid)) from None
                if place == self.root:
                    self._share()
            if self.of(task) is None:
                self.write(task, {"data": data, "volumes": {}, "made": []})

    @contextlib.contextmanager
    def _exclusively(self) -> Iterator[None]:
        """Hold the lock for creating and deleting the folders. It is on their parent, because they may be deleted."""
        above = os.open(os.path.dirname(self.root), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(above, fcntl.LOCK_EX)
            yield
        finally:
            os.close(above)

    def _share(self) -> None:
        if not mountinfo.at(self.root):
            namespaces.mount(self.root, self.root, namespaces.MS_BIND)
        if not os.path.isdir(self._points):  # it is created last, so nothing is mounted here before
            # If /run is shared, this clone is its peer, and each disk would be mounted on /run itself, too.
            namespaces.mount("none", self.root, namespaces.MS_PRIVATE)
        namespaces.mount("none", self.root, namespaces.MS_SHARED)

    def point(self, volume: str) -> str:
        """The mount point of a volume's disk."""
        return os.path.join(self._points, valid_id(volume))

    def of(self, task: str) -> Optional[Hold]:
        return read_json(os.path.join(self._holds, task))

    def write(self, task: str, hold: Hold) -> None:
        write_slot(os.path.join(self._holds, task), hold)

    def forget(self, task: str) -> None:
        for name in self._files():
            if name.partition(".")[0] == task:  # interrupted writes, too
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(self._holds, name))

    def tasks(self) -> List[str]:
        return [name for name in self._files() if "." not in name]  # else an interrupted write

    def _files(self) -> List[str]:
        return sorted(os.listdir(self._holds)) if os.path.isdir(self._holds) else []

    def tidy(self) -> None:
        """Delete everything here if no task has anything mounted; mount points only if they are empty."""
        if not os.path.isdir(self.root):
            return
        with self._exclusively(), contextlib.suppress(OSError):
            if self.of_other_tasks(""):
                return
            for point in os.listdir(self._points):
                os.rmdir(os.path.join(self._points, point))
            for folder in (self._holds, self._locks):
                for name in os.listdir(folder):
                    os.unlink(os.path.join(folder, name))
            for place in (self._holds, self._locks, self._points):
                os.rmdir(place)
            for _ in mountinfo.at(self.root):
                namespaces.unmount(self.root)
            os.rmdir(self.root)

    def of_other_tasks(self, task: str) -> List[Hold]:
        """The holds of other tasks that have a folder: one without, whose agent is gone, would never be released."""
        found = ((name, self.of(name)) for name in self.tasks() if name != task)
        return [hold for name, hold in found if hold and os.path.exists(TaskFolder(hold["data"], name).path)]

    def is_used_by_other_tasks(self, task: str, volume: str) -> bool:
        return any(volume in hold["volumes"] for hold in self.of_other_tasks(task))

    @contextlib.contextmanager
    def locked(self, name: str, pause: Callable[[float], None] = time.sleep) -> Iterator[int]:
        """Hold a lock by name. The holder deletes the lock's file; who locked a deleted file locks the next one."""
        path = os.path.join(self._locks, valid_id(name))
        lock = take_lock(path)
        while lock is None or not _is_at(lock, path):
            if lock is not None:
                os.close(lock)
            else:
                pause(RETRY_EVERY)
            lock = take_lock(path)
        try:
            yield lock
        finally:
            if _is_at(lock, path):
                os.unlink(path)
            os.close(lock)


def _is_at(lock: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(lock), os.stat(path))
    except FileNotFoundError:
        return False


def valid_id(name: str) -> str:
    if not re.match(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}$", name):
        raise UnusableDisk("%r isn't a volume's id" % name)
    return name
